"""BN-Inception: the second Inception network, and the first with BatchNorm."""

import flax.linen as nn
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from spherejax import _checks
from spherejax.models._backbones import as_images, batch_norm
from spherejax.models._convolution import Convolution

# Width of the published first convolution; all widths are multiples of its half.
_WIDTH = 64


class _Unit(nn.Module):
  """Convolution with bias, BatchNorm, ReLU."""

  width: int
  size: int
  stride: int
  frozen_norm: bool
  axis_name: str | None

  @nn.compact
  def __call__(self, x: Array, train: bool) -> Array:
    x = Convolution(self.width, self.size, self.stride, use_bias=True, name="conv")(x)
    return nn.relu(batch_norm(self, x, "norm", train))


class _Block(nn.Module):
  """Block of branches with three kernel sizes and a pooling, concatenated.

  Widths are those of the published network. A block without a 1x1 branch halves the
  map, and does not convolve the pooled map.
  """

  single: int
  three: tuple[int, int]
  double: tuple[int, int]
  pooled: int
  pool: str
  width: int
  frozen_norm: bool
  axis_name: str | None

  @nn.compact
  def __call__(self, x: Array, train: bool) -> Array:
    def unit(y, name, channels, size=1, stride=1):
      channels = _scaled(channels, self.width)
      options = (self.frozen_norm, self.axis_name)
      return _Unit(channels, size, stride, *options, name=name)(y, train)

    stride = 1 if self.single else 2
    parts = [unit(x, "1x1", self.single)] if self.single else []
    reduced = unit(x, "3x3_reduce", self.three[0])
    parts.append(unit(reduced, "3x3", self.three[1], 3, stride))
    reduced = unit(x, "double_3x3_reduce", self.double[0])
    wider = unit(reduced, "double_3x3_1", self.double[1], 3)
    parts.append(unit(wider, "double_3x3_2", self.double[1], 3, stride))
    if self.pool == "mean":  # mean of nine positions, including zeros around the map
      pooled = nn.avg_pool(x, (3, 3), padding="SAME")
    elif self.pool == "max":
      pooled = nn.max_pool(x, (3, 3), padding="SAME")
    else:
      pooled = _halve(x)
    parts.append(unit(pooled, "pool_proj", self.pooled) if self.pooled else pooled)
    return jnp.concatenate(parts, axis=-1)


# Widths of the 1x1, the 3x3 and the double 3x3 convolutions (with the 1x1 before them),
# and of the pooled map.
_BLOCKS = (
  ("3a", 64, (64, 64), (64, 96), 32, "mean"),
  ("3b", 64, (64, 96), (64, 96), 64, "mean"),
  ("3c", 0, (128, 160), (64, 96), 0, "halve"),
  ("4a", 224, (64, 96), (96, 128), 128, "mean"),
  ("4b", 192, (96, 128), (96, 128), 128, "mean"),
  ("4c", 160, (128, 160), (128, 160), 128, "mean"),
  ("4d", 96, (128, 192), (160, 192), 128, "mean"),
  ("4e", 0, (128, 192), (192, 256), 0, "halve"),
  ("5a", 352, (192, 320), (160, 224), 128, "mean"),
  ("5b", 352, (192, 320), (192, 224), 128, "max"),
)


class BNInception(nn.Module):
  """Feature maps of the Inception network with batch normalisation.

  Three convolutions and ten blocks of branches, without the pooling and the classifier:
  the usual backbone in metric learning. A 224x224 image gives a 7x7 map of 1024
  channels. `import_weights` fills it from files with the names of
  pretrained-models.pytorch ("bninception", converted from Caffe). Those weights were
  trained on pixels in [0, 255] with blue first, minus their means. To convert pixels in
  [0, 1] with red first:

      images = spherejax.data.normalize(
        255 * pixels[..., ::-1], (104.0, 117.0, 128.0), (1.0, 1.0, 1.0)
      )

  Attributes:
    width: static, even. Channels of the first convolution; all others are in
      proportion to it. 64 is the published network.
    frozen_norm: static. BatchNorm keeps its statistics when training and gives its
      parameters no gradient (exclude them from weight decay).
    axis_name: static. Device axis over which BatchNorm takes its training statistics;
      None takes those of this device's rows.
    remat: static. Recomputes the inside of a block for the gradient: memory of one map
      per block, a third more time.

  Call: `(images [batch, height, width, channels], *, train=False)` gives [batch,
  (height + 1) // 32, (width + 1) // 32, 16 x width]. Sides must be between 32 n - 1
  and 32 n + 6: pooling windows reach over the border and convolution windows lie
  around every second position, so for other sides their maps differ in size. Computes
  in the dtype of the images: bfloat16 images are convolved in bfloat16, the parameters
  and statistics stay float32. With `train=True` and unless `frozen_norm`, the
  collection "batch_stats" must be mutable.

  Raises:
    TypeError: images not floating.
    ValueError: images without 4 axes or with other sides, a width that is not even
      and positive.

  Differentiable in: parameters, images. Cost: 2.0 billion multiplications for a
  224x224 image; 10.3 million parameters.

  Source: Ioffe and Szegedy 2015, "Batch normalization", appendix, with the widths of
  the converted network. Differs from the code of the conversion: the statistics move by
  a tenth in each step (there by nine tenths, since torch defines momentum the other way
  round).

  Example:
    >>> network = spherejax.models.BNInception(frozen_norm=True)
    >>> images = jnp.zeros((1, 224, 224, 3))
    >>> variables = jax.eval_shape(network.init, jax.random.key(0), images)
    >>> jax.eval_shape(network.apply, variables, images).shape
    (1, 7, 7, 1024)
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
    if any(side < 31 or (side + 1) % 32 > 7 for side in x.shape[1:3]):
      raise ValueError(
        "sides of images must be between 32 n - 1 and 32 n + 6 for an n > 0, "
        f"got shape {x.shape}"
      )
    options = (self.frozen_norm, self.axis_name)

    def unit(y, name, channels, size, stride=1):
      channels = _scaled(channels, self.width)
      return _Unit(channels, size, stride, *options, name=name)(y, train)

    x = _halve(unit(x, "conv1_7x7_s2", 64, 7, 2))
    x = unit(x, "conv2_3x3_reduce", 64, 1)
    x = _halve(unit(x, "conv2_3x3", 192, 3))
    block_class = nn.remat(_Block, static_argnums=(2,)) if self.remat else _Block
    for name, single, three, double, pooled, pool in _BLOCKS:
      widths = (single, three, double, pooled, pool, self.width)
      x = block_class(*widths, *options, name=f"inception_{name}")(x, train)
    return x


def _halve(x: Array) -> Array:
  """Maximum of 3x3 positions, at every second position from the first.

  For an even size the last window reaches over the border. Zeros serve as -inf there,
  since no entry is negative.
  """
  padded = jnp.pad(x, [(0, 0), (0, 1), (0, 1), (0, 0)])
  return nn.max_pool(padded, (3, 3), (2, 2))


def _scaled(channels: int, width: int) -> int:
  """Scales the channels of the published network to another width."""
  return channels * width // _WIDTH
