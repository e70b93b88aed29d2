"""Inception v3, whose blocks have kernels of several shapes."""

import flax.linen as nn
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from spherejax import _checks
from spherejax.models._backbones import as_images, batch_norm
from spherejax.models._convolution import kernel_init

# Width of the published first convolution; all widths are multiples of its half.
_WIDTH = 32


class _Unit(nn.Module):
  """Convolution without bias, BatchNorm, ReLU."""

  width: int
  size: tuple[int, int]
  stride: int
  padding: bool
  frozen_norm: bool
  axis_name: str | None

  @nn.compact
  def __call__(self, x: Array, train: bool) -> Array:
    border = [(n // 2, n // 2) if self.padding else (0, 0) for n in self.size]
    x = nn.Conv(
      self.width,
      self.size,
      self.stride,
      padding=border,
      use_bias=False,
      kernel_init=kernel_init,
      dtype=x.dtype,
      name="conv",
    )(x)
    return nn.relu(batch_norm(self, x, "norm", train, epsilon=1e-3))


class _Block(nn.Module):
  """Block of several branches, concatenated.

  `kind` is "a" to "e" in the order of the network; `inner` is the width that differs
  between blocks of one kind.
  """

  kind: str
  inner: int
  width: int
  frozen_norm: bool
  axis_name: str | None

  @nn.compact
  def __call__(self, x: Array, train: bool) -> Array:
    def unit(y, name, channels, size: int | tuple[int, int] = 1, stride=1, pad=True):
      size = (size, size) if isinstance(size, int) else size
      channels = _scaled(channels, self.width)
      options = (self.frozen_norm, self.axis_name)
      return _Unit(channels, size, stride, pad, *options, name=name)(y, train)

    def chain(name, *layers):
      """Applies units one after another, numbered if there are several."""
      y = x
      for number, (channels, *rest) in enumerate(layers, 1):
        y = unit(y, f"{name}_{number}" if len(layers) > 1 else name, channels, *rest)
      return y

    def pair(y, name, *numbers):
      """Two convolutions of one map, along the rows and along the columns."""
      sizes = zip(numbers, ((1, 3), (3, 1)), strict=True)
      return [unit(y, f"{name}_{number}", 384, size) for number, size in sizes]

    def pooled(channels):
      mean = nn.avg_pool(x, (3, 3), padding="SAME")
      return unit(mean, "branch_pool", channels)

    def halved():
      return nn.max_pool(x, (3, 3), (2, 2))

    c, wide, high, valid = self.inner, (1, 7), (7, 1), (3, 2, False)
    match self.kind:
      case "a":
        parts = [
          chain("branch1x1", (64,)),
          chain("branch5x5", (48,), (64, 5)),
          chain("branch3x3dbl", (64,), (96, 3), (96, 3)),
          pooled(c),
        ]
      case "b":
        parts = [
          chain("branch3x3", (384, *valid)),
          chain("branch3x3dbl", (64,), (96, 3), (96, *valid)),
          halved(),
        ]
      case "c":
        parts = [
          chain("branch1x1", (192,)),
          chain("branch7x7", (c,), (c, wide), (192, high)),
          chain("branch7x7dbl", (c,), (c, high), (c, wide), (c, high), (192, wide)),
          pooled(192),
        ]
      case "d":
        parts = [
          chain("branch3x3", (192,), (320, *valid)),
          chain("branch7x7x3", (192,), (192, wide), (192, high), (192, *valid)),
          halved(),
        ]
      case _:
        branch = unit(x, "branch3x3_1", 384)
        two = unit(unit(x, "branch3x3dbl_1", 448), "branch3x3dbl_2", 384, 3)
        parts = [
          chain("branch1x1", (320,)),
          *pair(branch, "branch3x3", "2a", "2b"),
          *pair(two, "branch3x3dbl", "3a", "3b"),
          pooled(192),
        ]
    return jnp.concatenate(parts, axis=-1)


_BLOCKS = (
  ("5b", "a", 32), ("5c", "a", 64), ("5d", "a", 64), ("6a", "b", 0),
  ("6b", "c", 128), ("6c", "c", 160), ("6d", "c", 160), ("6e", "c", 192),
  ("7a", "d", 0), ("7b", "e", 0), ("7c", "e", 0),
)  # fmt: skip


class InceptionV3(nn.Module):
  """Feature maps of the third Inception network.

  Five convolutions and eleven blocks of branches, without the auxiliary classifier,
  the pooling and the classifier. A 299x299 image gives an 8x8 map of 2048 channels.
  `import_weights` fills it from torchvision's and timm's files; those weights were
  trained on pixels in [-1, 1].

  Attributes:
    width: static, even. Channels of the first convolution; all others are in
      proportion to it. 32 is the published network.
    frozen_norm: static. BatchNorm keeps its statistics when training and gives its
      parameters no gradient (exclude them from weight decay).
    axis_name: static. Device axis over which BatchNorm takes its training statistics;
      None takes those of this device's rows.
    remat: static. Recomputes the inside of a block for the gradient: memory of one map
      per block, a third more time.

  Call: `(images [batch, height, width, channels], *, train=False)` gives
  [batch, rows, columns, 64 x width]. Computes in the dtype of the images; parameters
  and statistics stay float32. With `train=True` and unless `frozen_norm`, the
  collection "batch_stats" must be mutable.

  Raises:
    TypeError: images not floating.
    ValueError: images without 4 axes or smaller than 75x75, a width that is not even
      and positive.

  Differentiable in: parameters, images. Cost: 5.7 billion multiplications for a
  299x299 image; 21.8 million parameters.

  Source: Szegedy et al. 2016, "Rethinking the Inception architecture for computer
  vision", table 1, with the blocks of the released network; DIST I 2.2; DIST IV.

  Example:
    >>> network = spherejax.models.InceptionV3()
    >>> images = jnp.zeros((1, 299, 299, 3))
    >>> variables = jax.eval_shape(network.init, jax.random.key(0), images)
    >>> jax.eval_shape(network.apply, variables, images).shape
    (1, 8, 8, 2048)
  """

  width: int = _WIDTH
  frozen_norm: bool = False
  axis_name: str | None = None
  remat: bool = False

  @nn.compact
  def __call__(
    self,
    images: Float[ArrayLike, "batch height width channels"],
    *,
    train: bool = False,
  ) -> Float[Array, "batch rows columns features"]:
    """Feature maps of the images."""
    _checks.flag("frozen_norm", self.frozen_norm)
    _checks.flag("remat", self.remat)
    x = as_images(images)
    _checks.count("width", self.width)
    if self.width % 2:
      raise ValueError(f"width must be even and positive, got {self.width}")
    if min(x.shape[1:3]) < 75:
      raise ValueError(f"images must be at least 75x75, got shape {x.shape}")
    options = (self.frozen_norm, self.axis_name)

    def unit(y, name, channels, size=3, stride=1, padding=False):
      channels = _scaled(channels, self.width)
      settings = (channels, (size, size), stride, padding, *options)
      return _Unit(*settings, name=name)(y, train)

    x = unit(x, "stem_1a", 32, stride=2)
    x = unit(unit(x, "stem_2a", 32), "stem_2b", 64, padding=True)
    x = nn.max_pool(x, (3, 3), (2, 2))
    x = unit(unit(x, "stem_3b", 80, 1), "stem_4a", 192)
    x = nn.max_pool(x, (3, 3), (2, 2))
    block_class = nn.remat(_Block, static_argnums=(2,)) if self.remat else _Block
    for name, kind, inner in _BLOCKS:
      block = block_class(kind, inner, self.width, *options, name=f"mixed_{name}")
      x = block(x, train)
    return x


def _scaled(channels: int, width: int) -> int:
  """Scales the channels of the published network to another width."""
  return channels * width // _WIDTH
