"""Small convolutional networks that turn images into feature maps."""

from collections.abc import Sequence
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from spherejax import _checks, _numerics
from spherejax.models._convolution import Convolution, Method

Norm = Literal["batch", "group"]


def as_images(images: ArrayLike) -> Array:
  """Checks that images are a floating array of four axes."""
  return _checks.array("images", images, "floating", rank=4)


def same_length(name: str, values: Sequence[int], other: str, count: int) -> None:
  """Raises unless the values are counts, and as many as expected."""
  _checks.sequence(name, values)
  if len(values) != count:
    raise ValueError(
      f"{name} must have one entry for each of the {count} {other}, got {values}"
    )
  _checks.counts(name, values)


def batch_norm(
  owner: Any,
  x: Array,
  name: str,
  train: bool,
  *,
  epsilon: float = 1e-5,
  momentum: float = 0.9,
) -> Array:
  """Applies BatchNorm in the dtype of x; call it in a compact method of the owner.

  The owner's `frozen_norm` keeps the statistics and gives the parameters no gradient.
  Its `axis_name` is the axis of the training statistics.
  """
  norm, frozen = nn.BatchNorm, owner.frozen_norm
  if frozen:
    starts = owner.is_initializing()
    norm = nn.map_variables(norm, "params", jax.lax.stop_gradient, init=starts)
  return norm(
    use_running_average=frozen or not train,
    momentum=momentum,
    epsilon=epsilon,
    axis_name=owner.axis_name,
    dtype=x.dtype,
    name=name,
  )(x)


def halve(x: Array) -> Array:
  """Maximum of each 2x2 block; an odd row or column at the end is left out.

  On a CPU the gradient of XLA's own pooling takes twice the time of a small network.
  Here positions that tie share the gradient.
  """
  rows, columns = x.shape[1] // 2, x.shape[2] // 2
  whole = x[:, : 2 * rows, : 2 * columns]
  return jnp.max(whole.reshape(len(x), rows, 2, columns, 2, x.shape[-1]), axis=(2, 4))


class _HalvedBatchNorm(nn.Module):
  """BatchNorm and the maximum of each 2x2 block of positions, in the cheaper order.

  Normalising is linear, so the largest value (the smallest for a negative factor) is
  taken first, and only a quarter of the positions is normalised.
  """

  axis_name: str | None

  @nn.compact
  def __call__(self, x: Array, train: bool) -> Array:
    shape, wide = x.shape[-1:], _numerics.upcast(x)
    mean = self.variable("batch_stats", "mean", jnp.zeros, shape)
    var = self.variable("batch_stats", "var", jnp.ones, shape)
    scale = self.param("scale", nn.initializers.ones, shape)
    bias = self.param("bias", nn.initializers.zeros, shape)
    centre, spread = mean.value, var.value
    if train:
      moments = jnp.mean(wide, (0, 1, 2)), jnp.mean(wide**2, (0, 1, 2))
      if self.axis_name is not None and not self.is_initializing():
        moments = jax.lax.pmean(moments, self.axis_name)
      centre, spread = moments[0], jnp.maximum(moments[1] - moments[0] ** 2, 0)
      if not self.is_initializing():
        mean.value = 0.9 * mean.value + 0.1 * centre
        var.value = 0.9 * var.value + 0.1 * spread
    factor = scale * jax.lax.rsqrt(spread + 1e-5)
    sign, factor, centre, bias = (
      channel[None, None, None]
      for channel in (jnp.where(scale < 0, -1.0, 1.0), factor, centre, bias)
    )
    return ((sign * halve(sign * wide) - centre) * factor + bias).astype(x.dtype)


class _Normalization(nn.Module):
  """BatchNorm or GroupNorm over the channels, chosen by name, then 2x2 maxima."""

  kind: Norm
  groups: int
  axis_name: str | None
  halve: bool = False
  frozen_norm: bool = False

  @nn.compact
  def __call__(self, x: Array, train: bool) -> Array:
    _checks.one_of("norm", self.kind, Norm)
    _checks.count("groups", self.groups)
    if self.kind == "group":
      if x.shape[-1] % self.groups:
        raise ValueError(
          f"groups must divide {x.shape[-1]} channels, got {self.groups}"
        )
      normalized = nn.GroupNorm(num_groups=self.groups, dtype=x.dtype)(x)
      return halve(normalized) if self.halve else normalized
    if self.halve:
      return _HalvedBatchNorm(self.axis_name, name="BatchNorm_0")(x, train)
    return batch_norm(self, x, "BatchNorm_0", train)


class ConvNet(nn.Module):
  """Feature maps of a plain stack of 3x3 convolutions.

  Each layer is convolution (no bias, as the normalisation has one), normalisation,
  ReLU. With the defaults a 16x16 image gives an 8x8 map of 32 channels: enough for
  small images such as digits and collages of them.

  Attributes:
    widths: static. Channels of each layer.
    strides: static. Stride of each layer; the map shrinks by their product.
    norm: static. "group" or "batch".
    groups: static. Groups of GroupNorm; must divide every width.
    axis_name: static. Device axis over which BatchNorm takes its training
      statistics; None takes those of this device's rows.
    convolution: static. "native" (XLA's) or "patches" (a matrix product of shifted
      copies, with the same result; for small maps on a CPU, inside `lax.scan` or under
      `vmap` over the parameters).
    frozen_norm: static. BatchNorm keeps its statistics when training and gives its
      parameters no gradient.

  Call: `(images [batch, height, width, channels], *, train=False)` gives
  [batch, height / product of strides, ..., widths[-1]], sizes rounded up. With
  `train=True` and BatchNorm that is not frozen, the collection "batch_stats" must be
  mutable.

  Raises:
    TypeError: images not floating.
    ValueError: images without 4 axes, strides not as many as widths, an unknown
      norm, groups that do not divide a width, `frozen_norm` without BatchNorm.

  Differentiable in: parameters, images. Cost: nine multiplications per pair of channels
  and position.

  Source: none; it is the convolutional embedding of DML 3.2.4 in its smallest form.

  Example:
    >>> network = spherejax.models.ConvNet(widths=(8, 8), strides=(1, 2))
    >>> images = jnp.zeros((2, 8, 8, 1))
    >>> variables = network.init(jax.random.key(0), images)
    >>> network.apply(variables, images).shape
    (2, 4, 4, 8)
  """

  widths: Sequence[int] = (16, 32, 32)
  strides: Sequence[int] = (1, 2, 1)
  norm: Norm = "group"
  groups: int = 8
  axis_name: str | None = None
  convolution: Method = "native"
  frozen_norm: bool = False

  @nn.compact
  def __call__(
    self,
    images: Float[ArrayLike, "batch height width channels"],
    *,
    train: bool = False,
  ) -> Float[Array, "batch rows columns features"]:
    """Feature maps of the images."""
    _checks.flag("frozen_norm", self.frozen_norm)
    x = as_images(images)
    _checks.counts("widths", self.widths)
    same_length("strides", self.strides, "widths", len(self.widths))
    if self.frozen_norm and self.norm != "batch":
      raise ValueError(f"frozen_norm needs norm 'batch', got {self.norm!r}")
    for width, stride in zip(self.widths, self.strides, strict=True):
      x = Convolution(width, stride=stride, method=self.convolution)(x)
      norm = _Normalization(
        self.norm, self.groups, self.axis_name, frozen_norm=self.frozen_norm
      )
      x = nn.relu(norm(x, train))
    return x


class Conv4(nn.Module):
  """Feature maps of the four-block network of few-shot learning.

  Four times: 3x3 convolution with bias, normalisation, ReLU, 2x2 max pooling. An
  84x84 image gives a 5x5 map of 64 channels (1600 numbers when flattened).

  Attributes:
    width: static. Channels of every block.
    norm: static. "batch" (the paper's) or "group".
    groups: static. Groups of GroupNorm; must divide `width`.
    axis_name: static. Device axis over which BatchNorm takes its training
      statistics; None takes those of this device's rows.
    convolution: static. "native" (XLA's) or "patches" (a matrix product of shifted
      copies, with the same result; for small maps on a CPU, inside `lax.scan` or under
      `vmap` over the parameters).

  Call: `(images [batch, height, width, channels], *, train=False)` gives
  [batch, height // 16, width // 16, width]. With `train=True` and BatchNorm, the
  collection "batch_stats" must be mutable.

  Raises:
    TypeError: images not floating.
    ValueError: images without 4 axes or smaller than 16x16, an unknown norm, groups
      that do not divide the width.

  Differentiable in: parameters, images. Cost: 0.1 billion multiplications
  for an 84x84 image.

  Source: DIST II 3.1; Snell et al. 2017, "Prototypical networks for few-shot learning";
  Chen et al. 2019, "A closer look at few-shot classification".

  Example:
    >>> network = spherejax.models.Conv4(width=8)
    >>> images = jnp.zeros((2, 32, 32, 3))
    >>> variables = network.init(jax.random.key(0), images)
    >>> network.apply(variables, images).shape
    (2, 2, 2, 8)
  """

  width: int = 64
  norm: Norm = "batch"
  groups: int = 8
  axis_name: str | None = None
  convolution: Method = "native"

  @nn.compact
  def __call__(
    self,
    images: Float[ArrayLike, "batch height width channels"],
    *,
    train: bool = False,
  ) -> Float[Array, "batch rows columns features"]:
    """Feature maps of the images."""
    x = as_images(images)
    _checks.count("width", self.width)
    if min(x.shape[1:3]) < 16:
      raise ValueError(
        f"images must be at least 16x16 for four halvings, got shape {x.shape}"
      )
    for _ in range(4):
      x = Convolution(self.width, use_bias=True, method=self.convolution)(x)
      norm = _Normalization(self.norm, self.groups, self.axis_name, halve=True)
      x = nn.relu(norm(x, train))
    return x


class _PreActivationBlock(nn.Module):
  """Pre-activation block: norm, relu, 3x3, norm, relu, 3x3, added to the input."""

  width: int
  stride: int
  norm: Norm
  groups: int
  axis_name: str | None
  convolution: Method

  @nn.compact
  def __call__(self, x: Array, train: bool) -> Array:
    def activate(y: Array) -> Array:
      return nn.relu(_Normalization(self.norm, self.groups, self.axis_name)(y, train))

    def convolve(y: Array, size: int, stride: int) -> Array:
      return Convolution(self.width, size, stride, method=self.convolution)(y)

    activated = activate(x)
    changes = x.shape[-1] != self.width or self.stride != 1
    # A shortcut that changes shape starts after the shared activation.
    shortcut = convolve(activated, 1, self.stride) if changes else x
    residual = convolve(activated, 3, self.stride)
    return shortcut + convolve(activate(residual), 3, 1)


class ResNet20(nn.Module):
  """Feature maps of the pre-activation residual network for small images.

  A 3x3 convolution, three stages of basic blocks, normalisation and ReLU: 20
  layers with three blocks per stage. A 32x32 image gives an 8x8 map of 64 channels,
  a 64x64 image a 16x16 map; the strides choose other sizes.

  Attributes:
    blocks: static. Basic blocks in each stage.
    widths: static. Channels of each stage; the first is also the stem's.
    strides: static. Stride of each stage's first block.
    stem_stride: static. Stride of the first convolution.
    norm: static. "batch" (the paper's) or "group".
    groups: static. Groups of GroupNorm; must divide every width.
    axis_name: static. Device axis over which BatchNorm takes its training
      statistics; None takes those of this device's rows.
    convolution: static. "native" (XLA's) or "patches" (a matrix product of shifted
      copies, with the same result; for small maps on a CPU, inside `lax.scan` or under
      `vmap` over the parameters).

  Call: `(images [batch, height, width, channels], *, train=False)` gives
  [batch, height / product of all strides, ..., widths[-1]], sizes rounded up. With
  `train=True` and BatchNorm, the collection "batch_stats" must be mutable.

  Raises:
    TypeError: images not floating.
    ValueError: images without 4 axes, strides not as many as widths, an unknown
      norm, groups that do not divide a width.

  Differentiable in: parameters, images. Cost: 41 million multiplications for a
  32x32 image; 0.27 million parameters.

  Source: DML 5.3.2; He et al. 2016, "Identity mappings in deep residual networks",
  with the widths of He et al. 2016, "Deep residual learning", section 4.2.

  Example:
    >>> network = spherejax.models.ResNet20(blocks=1, widths=(8, 8), strides=(1, 2))
    >>> images = jnp.zeros((2, 8, 8, 3))
    >>> variables = network.init(jax.random.key(0), images)
    >>> network.apply(variables, images).shape
    (2, 4, 4, 8)
  """

  blocks: int = 3
  widths: Sequence[int] = (16, 32, 64)
  strides: Sequence[int] = (1, 2, 2)
  stem_stride: int = 1
  norm: Norm = "batch"
  groups: int = 8
  axis_name: str | None = None
  convolution: Method = "native"

  @nn.compact
  def __call__(
    self,
    images: Float[ArrayLike, "batch height width channels"],
    *,
    train: bool = False,
  ) -> Float[Array, "batch rows columns features"]:
    """Feature maps of the images."""
    x = as_images(images)
    _checks.count("blocks", self.blocks)
    _checks.count("stem_stride", self.stem_stride)
    _checks.counts("widths", self.widths)
    same_length("strides", self.strides, "widths", len(self.widths))
    stem = Convolution(self.widths[0], stride=self.stem_stride, method=self.convolution)
    x = stem(x)
    norm = (self.norm, self.groups, self.axis_name)
    for width, first_stride in zip(self.widths, self.strides, strict=True):
      for block in range(self.blocks):
        stride = first_stride if block == 0 else 1
        x = _PreActivationBlock(width, stride, *norm, self.convolution)(x, train)
    return nn.relu(_Normalization(*norm)(x, train))
