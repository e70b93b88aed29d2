"""Networks with an embedding, and the training options of DIST, article IV.

A setting is a loss, the origin of its proxies, and whether its scale is dynamic. The
`batch_stats` of the loss hold values that change without a gradient (proxies by moving
averages, the scale) and fixed ones (proxies that follow the tree).
"""

import dataclasses
import functools
from typing import Annotated, Literal, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.typing import Collection, VariableDict
from jax import Array

from experiments.frame import frozen, networks
from experiments.frame import images as class_sets
from experiments.frame import training as frame_training
from experiments.frame.settings import Within, Without
from spherejax import data, distances, losses, models, prototypes, training


@dataclasses.dataclass(frozen=True)
class Rates:
  """Hyperparameters of the losses."""

  learning_rate: float = 1e-3
  """Learning rate of Adam, for network and proxies."""
  scale: float = 10.0
  """Scale of the cosines, or exponent of the distance ratio, if it is not dynamic."""
  scale_rate: float = 1e-3
  """Learning rate of Adam for the dynamic scale."""
  ema_rate: float = 0.01
  """Weight of a batch in the moving averages (0.001 in the article's text, 0.01 in its
  released commands)."""


@dataclasses.dataclass(frozen=True)
class Architecture:
  """The network."""

  network: Literal["conv4", "resnet50", "inception_v3"] = "conv4"
  """Network: four convolutions, ResNet-50 or Inception v3."""
  width: int = 32
  """Channels of each convolution of conv4, of the first stage of resnet50, or of the
  first convolution of inception_v3."""
  weights: str = ""
  """File of ImageNet weights for resnet50 or inception_v3."""
  dim: Annotated[int, Within(1)] = 128
  """Dimension of the embedding."""


# The usual `width` of each network.
WIDTHS = {"conv4": 32, "resnet50": 64, "inception_v3": 32, frozen.NETWORK: 0}


@dataclasses.dataclass(frozen=True)
class Settings(Architecture):
  """Network and training; the experiment adds the settings that it compares."""

  network: Literal[  # pyright: ignore[reportIncompatibleVariableOverride]
    "paper", "conv4", "resnet50", "inception_v3", "efficientnet_lite0"
  ] = "conv4"
  """Network: four convolutions, ResNet-50, Inception v3, the paper's choice for the
  data, or a frozen EfficientNet-Lite0 with a trained linear layer."""
  width: Annotated[int, Without("network", frozen.NETWORK)] = 32
  """Channels of each convolution of conv4, of the first stage of resnet50, or of the
  first convolution of inception_v3; 0: the network's usual number."""
  seed: int = 0
  """Seed of everything random."""
  batch: int = 64
  """Images per batch."""
  epochs: int = 6
  """Passes over the training images; 0: as many as in the paper for the data."""
  augment: Annotated[bool, Without("network", frozen.NETWORK)] = False
  """Warps the training images, if the paper does so for the data."""
  keep_best: bool = False
  """Tests the epoch with the best validation accuracy, not the last one. Trained
  networks then write a checkpoint per epoch."""
  curve_images: int = 3200
  """Training images whose class means are measured after each epoch; 0: all."""
  joined: bool = False
  """Infers trees from proxies and class means by neighbour joining, and reports the
  share of the class tree's splits that they recover."""
  rates: Rates = dataclasses.field(default_factory=Rates)
  """Hyperparameters of the losses."""


class Network(nn.Module):
  """Backbone and linear layer; a second layer embeds the original image size."""

  settings: Architecture
  axis_name: str | None = None

  @nn.compact
  def __call__(self, images: Array, sizes: Array, *, train: bool = False) -> Array:
    s = self.settings
    if s.network == frozen.NETWORK:
      features = images
    elif s.network == "conv4":
      maps = models.Conv4(s.width, axis_name=self.axis_name)(images, train=train)
      features = maps.reshape(len(maps), -1)
    else:
      if images.shape[-1] == 1:
        images = jnp.repeat(images, 3, axis=-1)
      backbone = networks.photographic(
        s.network, s.width, axis_name=self.axis_name, name="backbone"
      )
      features = backbone(images, train=train).mean((1, 2))
    embedded = nn.Dense(s.dim, name="projection")(features)
    if sizes.shape[1]:
      embedded += nn.Dense(s.dim, name="size")(sizes)
    return embedded


# First convolutions, which are drawn anew for grey images or other non-photographs.
_FIRST = {"resnet50": "stem/", "inception_v3": "stem_1a/conv/"}
Shapes = tuple[tuple[int, ...], tuple[int, ...]]


def shapes(images: data.Images) -> Shapes:
  """Shapes of the network's inputs: two images and their sizes."""
  return (2, *images.images[0].shape), class_sets.log_sizes(images[:2]).shape


def initial_variables(
  key: Array, *, settings: Architecture, shapes: Shapes, fresh: bool = True
) -> VariableDict:
  """Initial variables; `fresh` draws the first convolution instead of reading it."""
  variables = _initialize(key, settings=settings, shapes=shapes)
  if not settings.weights:
    return variables
  if settings.network not in _FIRST:
    raise ValueError(
      f"weights are for {' and '.join(_FIRST)}, got network {settings.network!r}"
    )
  first = (_FIRST[settings.network],) if fresh else ()
  return networks.with_weights(variables, settings.weights, first)


@functools.partial(jax.jit, static_argnames=("settings", "shapes"))
def _initialize(key: Array, *, settings: Architecture, shapes: Shapes) -> VariableDict:
  inputs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
  return Network(settings).lazy_init(key, *inputs)


UNIT = models.ProxyDistanceRatio(1).init_proxies
# Initial weights of softmax, with products of about 1. The article only says "normal";
# with a variance of 1, softmax lags far behind after a few epochs of Adam.
DRAWN = jax.nn.initializers.variance_scaling(1.0, "fan_in", "normal", 1, 0)


class Setting(NamedTuple):
  """Setting of one training: loss, proxies and scale."""

  title: str  # title in tables and figures
  loss: str  # "softmax", "NormFace", "ProxyDR" or "CORR"
  proxies: str = "learned"
  """Origin: "learned", "ema" (moving averages of the embeddings) or "mds" (fixed, laid
  out to follow the tree)."""
  dynamic: bool = False  # whether the scale, or exponent, adapts during training

  @property
  def geometry(self) -> Literal["cosine", "chordal"]:
    """Geometry of the values that the scale multiplies."""
    return "chordal" if self.loss == "ProxyDR" else "cosine"


def _settings() -> dict[str, Setting]:
  by_name = {"softmax": Setting("softmax", "softmax")}
  for loss in ("NormFace", "ProxyDR"):
    for proxies, name in (("learned", ""), ("ema", "EMA"), ("mds", "MDS")):
      for dynamic in (False, True):
        words = [word for word in (name, "dynamic" * dynamic) if word]
        key = "-".join([loss.lower(), *(word.lower() for word in words)])
        by_name[key] = Setting(" ".join([loss, *words]), loss, proxies, dynamic)
  return by_name | {"corr": Setting("CORR", "CORR", "mds")}


SETTINGS = _settings()


def optimizer(rates: Rates, setting: Setting) -> optax.GradientTransformation:
  """Returns Adam for everything that has a gradient."""
  adam = optax.adam(rates.learning_rate)
  learned = setting.loss == "softmax" or setting.proxies == "learned"
  return training.optimizer({"network": adam} | ({"loss": adam} if learned else {}))


def initial_state(
  key: Array, fixed: Array, *, settings: Settings, setting: Setting, shapes: Shapes
) -> training.TrainState:
  """Initial state; all settings of a key share the network's first weights.

  `fixed` [classes, dim] are the proxies that follow the tree.
  """
  network_key, loss_key, step_key = jax.random.split(key, 3)
  rates, (classes, dim) = settings.rates, fixed.shape
  variables = initial_variables(network_key, settings=settings, shapes=shapes)
  params: dict[str, Array] = {}
  stats: dict[str, Array | prototypes.MovingPrototypes | losses.DynamicScale] = {}
  if setting.loss == "softmax":
    inputs = jnp.zeros((2, dim)), jnp.arange(2, dtype=jnp.int32)
    module = models.Softmax(classes, init_weights=DRAWN)
    params |= module.lazy_init(loss_key, *inputs)["params"]
  elif setting.proxies == "learned":
    params["proxies"] = UNIT(loss_key, (classes, dim))
  elif setting.proxies == "ema":
    stats["moving"] = prototypes.ema_init(loss_key, classes, dim)
  else:
    stats["fixed"] = fixed
  if setting.dynamic:
    stats["scale"] = losses.dynamic_scale_init(classes, geometry=setting.geometry)
  loss = {"params": params} | ({"batch_stats": stats} if stats else {})
  return training.create_state(step_key, optimizer(rates, setting), variables, loss)


class Head(NamedTuple):
  """Classifier: proxies or weights, biases or None, and the scale."""

  proxies: Array
  biases: Array | None
  scale: Array | float


def head(params: Collection, stats: Collection, rates: Rates) -> Head:
  """Extracts the classifier from the two halves of a train state."""
  parts = {**params.get("loss", {}), **stats.get("loss", {})}
  scale = parts["scale"].scale if "scale" in parts else rates.scale
  if "moving" in parts:
    return Head(parts["moving"].prototypes, None, scale)
  (proxies,) = (parts[x] for x in ("weights", "proxies", "fixed") if x in parts)
  return Head(proxies, parts.get("biases"), scale)


@functools.partial(jax.jit, static_argnames=("loss",))
def logits(features: Array, classifier: Head, *, loss: str) -> Array:
  """Logits [batch, classes], whose softmax gives the setting's probabilities.

  CORR defines no probabilities; its cosines are scaled like those of NormFace.
  """
  if classifier.biases is not None:
    return features @ classifier.proxies.T + classifier.biases[None]
  cosines = distances.pairwise_cosine(features, classifier.proxies)
  if loss == "ProxyDR":
    return distances.distance_ratio(
      jnp.maximum(2 - 2 * cosines, 0), exponent=classifier.scale
    )
  return classifier.scale * cosines


def forward(settings, params, stats, images, axis_name, sizes=None):
  """Features of images in training mode, and the network's updated statistics."""
  sizes = jnp.zeros((len(images), 0)) if sizes is None else sizes
  inputs = data.to_float(images), sizes
  features, updated = frame_training.forward(
    Network(settings, axis_name), params["network"], stats.get("network", {}), *inputs
  )
  return features, {"network": updated} if updated else {}


def objective(params, stats, batch, *, settings, setting, augment, key, axis_name):
  """Mean loss of a batch, with updated statistics, moving averages and scale."""
  rates, labels, images = settings.rates, batch["label"], data.to_float(batch["image"])
  if augment:
    images = data.random_affine(key, images)
  features, updated = forward(settings, params, stats, images, axis_name, batch["size"])
  classifier = head(params, stats, rates)
  cosines = distances.pairwise_cosine(features, classifier.proxies)
  if setting.loss == "softmax":
    module = models.Softmax(len(classifier.proxies))
    values = module.apply({"params": params["loss"]}, features, labels)
  elif setting.loss == "ProxyDR":
    values = losses.proxy_distance_ratio(
      features, labels, classifier.proxies, exponent=classifier.scale
    )
  elif setting.loss == "CORR":
    values = losses.correlation(cosines, labels)
  else:
    values = losses.normface(cosines, labels, scale=classifier.scale)
  loss_stats = dict(stats.get("loss", {}))
  if "moving" in loss_stats:
    loss_stats["moving"] = prototypes.ema_update(
      loss_stats["moving"], features, labels, decay=1 - rates.ema_rate,
      batch_mean="direction", start_at_first=True, axis_name=axis_name,
    )  # fmt: skip
  if "scale" in loss_stats:
    chordal = setting.geometry == "chordal"
    scaled = jnp.maximum(2 - 2 * cosines, 0) if chordal else cosines
    loss_stats["scale"] = losses.dynamic_scale_update(
      loss_stats["scale"], scaled, labels, geometry=setting.geometry,
      learning_rate=rates.scale_rate, axis_name=axis_name,
    )  # fmt: skip
  loss = training.global_mean(cast(Array, values), axis_name=axis_name)
  return training.Outcome(loss, updated | ({"loss": loss_stats} if loss_stats else {}))
