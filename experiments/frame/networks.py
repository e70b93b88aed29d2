"""The embedding network of `retrieval`: architecture, inputs and storage."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Sequence
from typing import Annotated, Literal, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.typing import VariableDict
from jax import Array
from PIL import Image

from experiments.frame import at_once, command, poolings, results
from experiments.frame import images as class_sets
from experiments.frame import kept as finished
from experiments.frame.settings import Limited, Within
from spherejax import data, models, training

DIGITS = ("resnet8", "resnet20")
STORED = ("maps", "last_stage")  # backbones that take stored maps instead of images
SMALL = ("conv", *DIGITS, "mlp", *STORED)
LITE = "efficientnet_lite0"  # the extra `pretrained` installs its weights
BEFORE_LAST, LAST_STAGE = (0, 7), (7, 9)
"""Parts of that network: the frozen one, and the last stage with its convolution."""
_STAGE_CHANNELS = 192  # of the maps between the two parts
# Means and deviations of ImageNet, as the weights of each framework expect them.
_TORCH = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_EVEN = ((0.5,) * 3, (0.5,) * 3)
_CAFFE = (104.0, 117.0, 128.0)  # blue, green, red
_TRAIN = "a network must be trained again"


@dataclasses.dataclass(frozen=True)
class Architecture(Limited):
  """Network, and the images that it sees."""

  backbone: Literal[
    "conv", "resnet8", "resnet20", "mlp", "bn_inception", "resnet50", "inception_v3",
    "maps", "last_stage",
  ] = "conv"  # fmt: skip
  """Backbone: four convolutions (conv), a residual network for digits (resnet8, or
  resnet20 as published), two hidden layers (mlp), or a network for photographs. On
  stored feature maps: none (maps), or the last stage of a pretrained network."""
  width: Annotated[int, Within(1)] = 32
  """Channels of each convolution of conv, of each layer of mlp, or of the first
  convolution of other backbones."""
  strides: tuple[int, int, int, int] = (1, 2, 2, 2)
  """Strides of the convolutions of conv."""
  convolution: Literal["native", "patches"] = "patches"
  """Implementation of convolutions in small networks: patches (faster on a CPU) or
  native."""
  weights: str = ""
  """File of ImageNet weights, for a network of photographs."""
  frozen_norm: bool = False
  """Freezes the batch norms of conv and of networks of photographs."""
  remat: bool = False
  """Recomputes the maps of networks of photographs for the gradient, to save memory."""
  pooling: str = "gap"
  """Pooling of the maps: gap, gsp or another; the error for a wrong name lists all."""
  prototypes: int = 64
  """Prototypes of generalized sum pooling."""
  mass: float = 0.3
  """Share of a map's features that generalized sum pooling keeps, from 0 to 1."""
  inverse_temperature: float = 5.0
  """Inverse temperature of generalized sum pooling."""
  dim: Annotated[int, Within(1)] = 64
  """Dimension of the embedding."""
  image_size: Annotated[int, Within(1)] = 28
  """Side of the images, in pixels."""
  shorter_side: int = 0
  """Length of the shorter side after scaling, before the centre is cut; 0 scales the
  image to a square."""
  channels: int = 1
  """Channels of the images, 1 or 3, or of stored maps: the number of principal
  directions for maps, and the network's 192 channels for last_stage."""

  def __post_init__(self) -> None:
    super().__post_init__()
    if self.channels not in (1, 3) and self.backbone not in STORED:
      raise ValueError(f"channels of images must be 1 or 3, got {self.channels}")
    if self.backbone == "last_stage" and self.channels != _STAGE_CHANNELS:
      raise ValueError(
        f"channels must be {_STAGE_CHANNELS} for last_stage, got {self.channels}"
      )
    if self.weights and self.backbone in SMALL:
      raise ValueError(
        f"weights must be empty for {self.backbone}, got {self.weights!r}"
      )
    if self.frozen_norm and self.backbone in (*DIGITS, "mlp", "maps"):
      raise ValueError(f"frozen_norm must be False for {self.backbone}, got True")

  @property
  def embedding_dim(self) -> int:
    """Length of an embedding; wide poolings have more than `dim`."""
    return poolings.embedding_dim(self.pooling, self.dim)

  @property
  def architecture(self) -> "Architecture":
    """Selects the architecture's fields from settings that have more."""
    return command.only(Architecture, self)


class Network(nn.Module):
  """Backbone, linear layer without bias, pooling; raw embeddings."""

  architecture: Architecture
  axis_name: str | None = None

  @nn.compact
  def __call__(self, images: Array, *, train: bool = False) -> models.HeadResult:
    a = self.architecture
    features = _network_input(a, images)
    if a.backbone != "maps":
      features = _backbone(a, self.axis_name)(features, train=train)
    pooling = recipe(a)
    head = models.EmbeddingHead(
      pooling.dim, pooling.pool, "none", pooling.projection, name="head"
    )
    return head(features, train=train)


class _Layers(nn.Module):
  """Two hidden layers on all pixels; returns a map of one position."""

  width: int

  @nn.compact
  def __call__(self, x: Array, *, train: bool = False) -> Array:
    del train  # there is no batch norm
    x = x.reshape(len(x), 1, 1, -1)
    return nn.relu(nn.Dense(self.width)(nn.relu(nn.Dense(self.width)(x))))


def recipe(architecture: Architecture) -> poolings.Recipe:
  a, names = architecture, ("prototypes", "mass", "inverse_temperature")
  return poolings.recipe(a.pooling, a.dim, **{x: getattr(a, x) for x in names})


def _backbone(a: Architecture, axis_name: str | None) -> nn.Module:
  name = "backbone"
  if a.backbone == "conv":
    return models.ConvNet(
      (a.width,) * 4, a.strides, norm="batch", convolution=a.convolution,
      frozen_norm=a.frozen_norm, axis_name=axis_name, name=name,
    )  # fmt: skip
  if a.backbone in DIGITS:
    blocks, stride = (1, 2) if a.backbone == "resnet8" else (3, 1)
    return models.ResNet20(
      blocks, (a.width, 2 * a.width, 4 * a.width), stem_stride=stride,
      convolution=a.convolution, axis_name=axis_name, name=name,
    )  # fmt: skip
  if a.backbone == "mlp":
    return _Layers(a.width, name=name)
  network = functools.partial(photographic, a.backbone, a.width)
  if a.backbone == "last_stage":
    network = functools.partial(models.EfficientNetLite, parts=LAST_STAGE)
  return network(
    frozen_norm=a.frozen_norm, remat=a.remat, axis_name=axis_name, name=name
  )


def photographic(
  backbone: str,
  width: int,
  *,
  axis_name: str | None,
  name: str,
  frozen_norm: bool = False,
  remat: bool = False,
) -> nn.Module:
  """A network for photographs: bn_inception, inception_v3 or resnet50."""
  if backbone == "resnet50":
    widths = tuple(width * 2**stage for stage in range(4))
    network = functools.partial(models.ResNet50, widths=widths)
  else:
    kind = models.BNInception if backbone == "bn_inception" else models.InceptionV3
    network = functools.partial(kind, width)
  return network(frozen_norm=frozen_norm, remat=remat, axis_name=axis_name, name=name)


def _network_input(a: Architecture, images: Array) -> Array:
  """Bytes, or floats in [0, 1], as the backbone takes them."""
  x = data.to_float(images) if images.dtype == jnp.uint8 else images
  if a.backbone in STORED:
    return x.astype(jnp.float32)  # maps are stored in half precision
  if a.backbone in SMALL:
    return x
  if x.shape[-1] == 1:
    x = jnp.repeat(x, 3, axis=-1)
  if a.backbone == "bn_inception":
    return data.normalize(255 * x[..., ::-1], _CAFFE, (1.0, 1.0, 1.0))
  return data.normalize(x, *(_EVEN if a.backbone == "inception_v3" else _TORCH))


def initial_variables(key: Array, architecture: Architecture) -> VariableDict:
  """Draws the initial variables; reads the backbone's if a file has them."""
  variables = _initialize(key, architecture=architecture)
  if architecture.weights:
    return with_weights(variables, architecture.weights)
  if architecture.backbone != "last_stage":
    return variables
  stored = models.pretrained(LITE).variables
  return {
    name: {**tree, "backbone": {part: stored[name][part] for part in tree["backbone"]}}
    for name, tree in variables.items()
  }


def with_weights(
  variables: VariableDict, file: str, fresh: Sequence[str] = ()
) -> VariableDict:
  """Variables, or shapes, with the backbone's from a file, except for `fresh` ones."""
  backbones = {name: tree["backbone"] for name, tree in variables.items()}
  read = models.import_weights(backbones, models.read_weights(file), fresh=fresh)
  return {name: {**tree, "backbone": read[name]} for name, tree in variables.items()}


@functools.partial(jax.jit, static_argnames=("architecture",))
def _initialize(key: Array, *, architecture: Architecture) -> VariableDict:
  a = architecture
  images = jax.ShapeDtypeStruct(
    (2, a.image_size, a.image_size, a.channels), jnp.float32
  )
  return Network(a).lazy_init(key, images)


def _shapes(architecture: Architecture) -> VariableDict:
  draw = functools.partial(_initialize, architecture=architecture)
  return jax.eval_shape(draw, jax.random.key(0))


def check(architecture: Architecture) -> None:
  """Raises for settings or weights that do not fit, before anything is computed."""
  shapes = _shapes(architecture)
  if architecture.weights:
    with_weights(shapes, architecture.weights)


def prepare(image: np.ndarray, architecture: Architecture) -> np.ndarray:
  """Prepares one uint8 image [height, width, channels] for evaluation."""
  a = architecture
  single = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
  pixels = np.asarray(single.convert("L" if a.channels == 1 else "RGB"))
  pixels = pixels.reshape(*pixels.shape[:2], a.channels)
  if a.shorter_side:
    return class_sets.centred(pixels, size=a.image_size, shorter_side=a.shorter_side)
  return class_sets.squared(pixels, size=a.image_size)


def outputs(
  architecture: Architecture, variables: VariableDict, images: Array
) -> models.HeadResult:
  """Raw embeddings [batch, dim], weights and attributes of prepared images; for jit."""
  return cast(models.HeadResult, Network(architecture).apply(variables, images))


class _StoredModel(NamedTuple):
  step: Array
  variables: VariableDict


class Model(NamedTuple):
  """A trained network."""

  architecture: Architecture
  variables: VariableDict

  def prepare(self) -> Callable[[np.ndarray], np.ndarray]:
    """Returns the function that prepares images, picklable for other processes."""
    return functools.partial(prepare, architecture=self.architecture)

  def embed(self, images: Array) -> Array:
    """Raw embeddings [batch, dim] of prepared images; for jit."""
    return outputs(self.architecture, self.variables, images).embeddings

  def embed_blocks(self, images: Array) -> Array:
    return at_once.mapped(self.embed, images)


def keep(folder: pathlib.Path, model: Model, step: int) -> None:
  """Writes a model for `load`, which reads the newest."""
  described = dataclasses.asdict(model.architecture)
  results.write_json(described, folder / "network.json")
  with training.Checkpoints(folder / "weights") as checkpoints:
    checkpoints.save(_StoredModel(jnp.int32(step), model.variables))


def load(folder: pathlib.Path) -> Model:
  """Reads a model that `keep` wrote; FileNotFoundError if the folder holds none."""
  path = folder / "network.json"
  if not path.is_file():
    raise FileNotFoundError(
      f"no network.json in {folder}: a model is a folder that `retrieval` wrote"
    )
  fields = {
    name: tuple(value) if isinstance(value, list) else value
    for name, value in finished.read_record(path, remedy=_TRAIN).items()
    if (name, value) not in (("padded", False), ("inverted", False))  # old fields
  }
  # The trained weights lie next to the record, and replace those of ImageNet.
  try:
    architecture = Architecture(**{**fields, "weights": ""})
  except TypeError as error:
    raise ValueError(f"{path} describes no network of this version: {error}") from error
  with training.Checkpoints(folder / "weights") as checkpoints:
    restored = checkpoints.restore(_StoredModel(jnp.int32(0), _shapes(architecture)))
  if restored is None:
    raise FileNotFoundError(f"no weights in {folder}")
  return Model(architecture, restored.state.variables)
