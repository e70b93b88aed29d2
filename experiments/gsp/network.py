"""A small residual network under average or generalized sum pooling.

A convolutional map becomes one normalised vector through a 1x1 convolution and a
pooling, trained with a contrastive loss or ProxyNCA++, and with zero-shot prediction
where the pooling has attributes.
"""

import dataclasses
import functools
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.typing import Collection, VariableDict
from jax import Array

from experiments.frame.settings import Decided, Limited, MultipleOf
from spherejax import data, losses, models, pooling, training

_AT_ONCE = 250  # images to embed at once
_MARGIN = 0.5  # distance beyond which C2 ignores pairs of different classes
_PROXY_RATE = 100.0  # learning rate of proxies, relative to the network's (DML 5.3.4)


@dataclasses.dataclass(frozen=True)
class Settings(Limited):
  """Network and training; an experiment adds its own."""

  seed: int = 0
  """Seed of everything random."""
  image_size: int = 16
  """Side of the images, in pixels, averaged down from 32."""
  blocks: int = 1
  """Basic blocks per stage of the residual network."""
  widths: tuple[int, ...] = (16, 32, 64)
  """Channels of each stage."""
  strides: tuple[int, ...] = (1, 1, 1)
  """Stride of each stage."""
  stem_stride: int = 2
  """Stride of the first convolution."""
  norm: Literal["batch", "group"] = "group"
  """Normalisation inside the network: batch or group."""
  convolution: Literal["native", "patches"] = "patches"
  """Implementation of convolutions: patches (faster on a CPU) or native."""
  dim: int = 64
  """Dimension of the local features and of the embedding."""
  pooling: Decided[str] = "gap"
  """Pooling of the maps: gap or gsp."""
  prototypes: int = 64
  """Prototypes of generalized sum pooling."""
  inverse_temperature: float = 0.5
  """Inverse temperature of the pooling (DML 5.2.4, for proxy losses)."""
  normalization: Literal["l2", "unit_ball", "none"] = "l2"
  """Normalisation of the embedding: l2, unit_ball or none."""
  steps: Annotated[int, MultipleOf("parts")] = 400
  """Training steps; 0 keeps the random weights."""
  parts: int = 4
  """Parts of the training. The first one pools by averages; then the prototypes are
  chosen."""
  batch_classes: int = 16
  """Largest number of classes per batch."""
  per_class: int = 4
  """Images per class in a batch."""
  loss: Decided[str] = "proxy_nca"
  """Loss: contrastive (C2) or proxy_nca (ProxyNCA++)."""
  learning_rate: float = 1e-3
  """Learning rate of Adam."""
  zero_shot: ClassVar[bool] = True  # whether a GSP network also predicts labels

  def local_features(self, images: Array, *, train: bool) -> Array:
    """Maps of images; the module that calls this owns the layers."""
    pixels = data.to_float(images) - 0.5
    return cast(Array, backbone(self, "backbone")(pixels, train=train))


LOSSES = {"C2": "contrastive", "PNCA": "proxy_nca"}  # losses by their name in tables
PUBLISHED: dict[str, Any] = {
  "image_size": 32, "blocks": 3, "strides": (1, 2, 2), "stem_stride": 1,
  "norm": "batch", "convolution": "native", "steps": 20_000, "parts": 20,
}  # fmt: skip
"""Network and images of DML 4.3 and 5.3.3, which state no schedule."""


class Variant(NamedTuple):
  """Two numbers by which variants differ, so that the same program runs them all."""

  mass: float
  zero_shot_weight: float


AVERAGE = Variant(1.0, 0.0)  # at mass 1 GSP is exactly the average
PROTOTYPES = "pooling/prototypes"  # path among the parameters


def backbone(settings: Settings, name: str | None = None) -> models.ResNet20:
  fields = ("blocks", "widths", "strides", "stem_stride", "norm", "convolution")
  return models.ResNet20(**{x: getattr(settings, x) for x in fields}, name=name)


class Network(nn.Module):
  """Local features, 1x1 convolution, pooling, normalisation."""

  settings: Settings
  pooled: bool = True

  @nn.compact
  def __call__(
    self, images: Array, mass: Array | float = 1.0, *, train: bool = False
  ) -> models.HeadResult:
    s = self.settings
    features = s.local_features(images, train=train)
    pool, normalization = pooling.gap, s.normalization
    if not self.pooled:
      pool, normalization = (lambda features, *, where=None: features), "none"
    elif s.pooling == "gsp":
      pool = models.GSP(s.prototypes, mass, s.inverse_temperature, name="pooling")
    return models.EmbeddingHead(s.dim, pool, normalization, name="head")(features)


def loss_modules(settings: Settings, classes: int) -> dict[str, nn.Module]:
  """Losses with parameters."""
  modules: dict[str, nn.Module] = {}
  if settings.loss == "proxy_nca":
    modules["proxies"] = models.ProxyNCAPlusPlus(
      classes, normalize=settings.normalization
    )
  if settings.pooling == "gsp" and settings.zero_shot:
    # Logits have no factor (DML eq. 5.2.4); the authors' code multiplies them by 9.5.
    modules["zero_shot"] = models.ZeroShotPrediction(classes, settings.dim)
  return modules


def mixture(
  settings: Settings,
  classes: int,
  params: Collection,
  result: models.HeadResult,
  labels: Array,
  zero_shot_weight: Array | float,
) -> Array:
  """A metric loss and zero-shot prediction, as one number (DML eq. 5.2.5).

  The prediction loss is the mean over the batch, as in the authors' released code;
  that is half of eq. 5.2.4.
  """
  modules = loss_modules(settings, classes)

  def mean_of(name: str, inputs: Array | None) -> Array:
    values = modules[name].apply({"params": params[name]}, inputs, labels)
    return cast(Array, values).mean()

  if "proxies" in modules:
    loss = mean_of("proxies", result.embeddings)
  else:
    loss = losses.contrastive(result.embeddings, labels, negative_margin=_MARGIN).mean()
  if "zero_shot" not in modules:
    return loss
  unseen = mean_of("zero_shot", result.attributes)
  return (1 - zero_shot_weight) * loss + zero_shot_weight * unseen


def make_optimizer(settings: Settings) -> optax.GradientTransformation:
  """Adam, with a rate of its own for proxies."""
  adam = optax.adam(settings.learning_rate)
  fast = optax.adam(_PROXY_RATE * settings.learning_rate)
  rates = {
    f"loss/{name}": fast if name == "proxies" else adam
    for name in loss_modules(settings, 1)
  }
  return training.optimizer({"network": adam} | rates)


def loss_parameters(
  settings: Settings, classes: int, proxy_key: Array, label_key: Array
) -> dict[str, Collection]:
  """Proxies and label embeddings at the start, by the name of their loss."""
  points = jnp.ones((2, settings.dim))
  even = jnp.ones((2, settings.prototypes)) / settings.prototypes
  inputs = {"proxies": (proxy_key, points), "zero_shot": (label_key, even)}
  return {
    name: module.lazy_init(*inputs[name], jnp.arange(2))["params"]
    for name, module in loss_modules(settings, classes).items()
  }


@functools.partial(jax.jit, static_argnames=("settings", "pooled"))
def _apply(
  variables: VariableDict,
  images: Array,
  mass: Array,
  *,
  settings: Settings,
  pooled: bool,
):
  return Network(settings, pooled).apply(variables, images, mass)


def embed(
  state: training.TrainState,
  images: data.Images,
  settings: Settings,
  *,
  mass: float = 1.0,
  pooled: bool = True,
) -> models.HeadResult:
  """Embeds images; `pooled=False` returns the maps in the field `pooled`.

  Batches have one size, so that one program serves sets of any size.
  """
  pixels = np.asarray(images.images)
  padding = -len(images) % _AT_ONCE
  rows = np.arange(len(images) + padding) % len(images)
  results = [
    _apply(state.variables(), pixels[block], mass, settings=settings, pooled=pooled)
    for block in np.split(rows, len(rows) // _AT_ONCE)
  ]
  return jax.tree.map(lambda *parts: np.concatenate(parts)[: len(images)], *results)
