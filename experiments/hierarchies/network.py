"""Networks of images with an embedding: of `class_hierarchy` and of `plankton`."""

import dataclasses
import functools
from typing import Annotated, Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from experiments.frame import images as class_sets
from experiments.frame import networks
from experiments.frame.settings import Within
from spherejax import data, models


@dataclasses.dataclass(frozen=True)
class Rates:
  """Numbers of the losses."""

  learning_rate: float = 1e-3
  """Of Adam, for the network and the proxies alike."""
  scale: float = 10.0
  """Of the cosines, and exponent of the distance ratio, where it is not dynamic."""
  scale_rate: float = 1e-3
  """Of Adam, for the dynamic scale."""
  ema_rate: float = 0.01
  """Share of a batch in the moving averages (0.001 in the article's text, 0.01 in its
  released commands)."""


@dataclasses.dataclass(frozen=True)
class Architecture:
  """The network."""

  network: Literal["conv4", "resnet50", "inception_v3"] = "conv4"
  """Four convolutions, ResNet-50, or Inception v3."""
  width: int = 32
  """Channels of each convolution of conv4, of the first stage of resnet50, of the first
  convolution of inception_v3."""
  weights: str = ""
  """File of ImageNet's weights for resnet50 or inception_v3."""
  dim: Annotated[int, Within(1)] = 128
  """Dimension of the embedding."""


# The usual `width` of each network.
WIDTHS = {"conv4": 32, "resnet50": 64, "inception_v3": 32}


@dataclasses.dataclass(frozen=True)
class Settings(Architecture):
  """Network and training; the experiment adds what it compares."""

  network: Literal["paper", "conv4", "resnet50", "inception_v3"] = "conv4"  # pyright: ignore[reportIncompatibleVariableOverride]
  """Four convolutions, ResNet-50, Inception v3, or the paper's, by the data."""
  width: int = 32
  """Channels of each convolution of conv4, of the first stage of resnet50, of the first
  convolution of inception_v3; 0: as many as usual, by the network."""
  seed: int = 0
  """Everything random follows from it."""
  batch: int = 64
  """Images in a batch."""
  epochs: int = 6
  """Passes over the training images; 0: as many as the paper's, by the data."""
  augment: bool = False
  """Warp the training images, where the paper does so for the data."""
  keep_best: bool = False
  """Test the epoch of the best validation accuracy, not the last one, and write a
  checkpoint after each."""
  curve_images: int = 3200
  """Training images whose class means are followed after each epoch; 0: all."""
  joined: bool = False
  """Infer trees from proxies and class means by neighbour joining, and report the share
  of the given tree's splits that they have."""
  rates: Rates = dataclasses.field(default_factory=Rates)
  """Numbers of the losses."""


class Network(nn.Module):
  """Feature maps, a linear layer, and the size of the original image."""

  settings: Architecture
  axis_name: str | None = None

  @nn.compact
  def __call__(self, images: Array, sizes: Array, *, train: bool = False) -> Array:
    s = self.settings
    if s.network == "conv4":
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


# Where grey images or others than photographs meet the weights first.
_FIRST = {"resnet50": "stem/", "inception_v3": "stem_1a/conv/"}


Shapes = tuple[tuple[int, ...], tuple[int, ...]]


def shapes(images: data.Images) -> Shapes:
  """Of what the network is given: two images and their sizes."""
  return (2, *images.images[0].shape), class_sets.log_sizes(images[:2]).shape


def initial_variables(
  key: Array, *, settings: Architecture, shapes: Shapes, fresh: bool = True
) -> Any:
  """The network before the first step; `fresh`: its first convolution is not read."""
  variables = _initialize(key, settings=settings, shapes=shapes)
  if not settings.weights:
    return variables
  if settings.network not in _FIRST:
    raise ValueError(
      f"weights are for {' and '.join(_FIRST)}, got network {settings.network!r}"
    )
  backbone = models.import_weights(
    {name: tree["backbone"] for name, tree in variables.items()},
    models.read_weights(settings.weights),
    fresh=(_FIRST[settings.network],) if fresh else (),
  )
  return {
    name: {**tree, "backbone": backbone[name]} for name, tree in variables.items()
  }


@functools.partial(jax.jit, static_argnames=("settings", "shapes"))
def _initialize(key: Array, *, settings: Architecture, shapes: Shapes) -> Any:
  given = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
  return Network(settings).lazy_init(key, *given)
