"""Residual networks with the activation after the sum, for photographs and CIFAR."""

from collections.abc import Sequence
from typing import Literal

import flax.linen as nn
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from spherejax import _checks
from spherejax.models._backbones import as_images, batch_norm, same_length
from spherejax.models._convolution import Convolution, Method

Stem = Literal["photograph", "small"]
Shortcut = Literal["projection", "projection_3x3", "padding"]


class _Block(nn.Module):
  """Residual block: two or three convolutions with BatchNorm, shortcut, sum, ReLU."""

  width: int
  stride: int
  bottleneck: bool
  shortcut: Shortcut
  frozen_norm: bool
  axis_name: str | None
  convolution: Method

  @nn.compact
  def __call__(self, x: Array, train: bool) -> Array:
    def convolve(y: Array, width: int, size: int, stride: int, name: str) -> Array:
      return Convolution(width, size, stride, method=self.convolution, name=name)(y)

    if self.bottleneck:  # stride at the 3x3, as in torchvision ("v1.5")
      out = 4 * self.width
      layers = ((self.width, 1, 1), (self.width, 3, self.stride), (out, 1, 1))
    else:
      out = self.width
      layers = ((out, 3, self.stride), (out, 3, 1))
    y = x
    for number, (width, size, stride) in enumerate(layers, 1):
      y = nn.relu(y) if number > 1 else y
      y = convolve(y, width, size, stride, f"convolution{number}")
      y = batch_norm(self, y, f"norm{number}", train)
    if self.stride != 1 or x.shape[-1] != out:
      if self.shortcut == "padding":
        extra = out - x.shape[-1]
        x = x[:, :: self.stride, :: self.stride]
        x = jnp.pad(x, [(0, 0)] * 3 + [(extra // 2, extra - extra // 2)])
      else:
        size = 3 if self.shortcut == "projection_3x3" else 1
        x = convolve(x, out, size, self.stride, "shortcut")
        x = batch_norm(self, x, "shortcut_norm", train)
    return nn.relu(x + y)


class ResNet(nn.Module):
  """Feature maps of a residual network (ResNet) whose blocks end with the activation.

  A stem, stages of blocks, no pooling and no classifier: put `EmbeddingHead` or a
  pooling and a linear layer after it. `ResNet18`, `ResNet50`, `ResNet101` and
  `ResNet32` are this module with other defaults; `import_weights` fills them from
  files.

  Attributes:
    blocks: static. Blocks of each stage.
    widths: static. Channels of each stage; for a bottleneck, of its inner convolutions
      (it ends with four times as many). The first is also the stem's.
    strides: static. Stride of each stage's first block.
    bottleneck: static. False: blocks of two 3x3 convolutions. True: 1x1, 3x3 (which
      has the stride), 1x1.
    stem: static. "photograph" (7x7 convolution of stride 2 and 3x3 maximum of
      stride 2) or "small" (3x3 convolution of stride 1, for images such as CIFAR's).
    shortcut: static. Where a block changes the shape: "projection" (1x1 convolution
      and BatchNorm), "projection_3x3" or "padding" (subsampled, with channels of
      zeros: no parameters).
    frozen_norm: static. BatchNorm keeps its statistics when training and gives its
      parameters no gradient (exclude them from weight decay).
    axis_name: static. Device axis over which BatchNorm takes its training
      statistics; None takes those of this device's rows.
    remat: static. Recomputes the inside of a block for the gradient: memory of one map
      per block, a third more time.
    convolution: static. "native" (XLA's) or "patches" (a matrix product of shifted
      copies, with the same result; for small maps on a CPU, inside `lax.scan` or under
      `vmap` over the parameters).

  Call: `(images [batch, height, width, channels], *, train=False)` gives
  [batch, height / product of all strides, ..., widths[-1] or 4 times that], sizes
  rounded up. Computes in the dtype of the images: bfloat16 images are convolved in
  bfloat16, the parameters and statistics stay float32. With `train=True` and unless
  `frozen_norm`, the collection "batch_stats" must be mutable.

  Raises:
    TypeError: images not floating.
    ValueError: images without 4 axes, strides or blocks not as many as widths, an
      unknown stem or shortcut, "padding" to fewer channels.

  Differentiable in: parameters, images. Cost: `ResNet18` 1.8, `ResNet50` 4.1
  billion multiplications for a 224x224 image, `ResNet32` 69 million for a 32x32 one.

  Source: He et al. 2016, "Deep residual learning for image recognition", sections 3.4
  and 4.2. Differs from the paper: a bottleneck's stride is at its 3x3 convolution, as
  in the common weight files.

  Example:
    >>> network = spherejax.models.ResNet(blocks=(1, 1), widths=(8, 8), strides=(1, 2))
    >>> images = jnp.zeros((2, 32, 32, 3))
    >>> variables = jax.eval_shape(network.init, jax.random.key(0), images)
    >>> jax.eval_shape(network.apply, variables, images).shape
    (2, 4, 4, 8)
  """

  blocks: Sequence[int] = (2, 2, 2, 2)
  widths: Sequence[int] = (64, 128, 256, 512)
  strides: Sequence[int] = (1, 2, 2, 2)
  bottleneck: bool = False
  stem: Stem = "photograph"
  shortcut: Shortcut = "projection"
  frozen_norm: bool = False
  axis_name: str | None = None
  remat: bool = False
  convolution: Method = "native"

  @nn.compact
  def __call__(
    self,
    images: Float[ArrayLike, "batch height width channels"],
    *,
    train: bool = False,
  ) -> Float[Array, "batch rows columns features"]:
    """Feature maps of the images."""
    _checks.flag("bottleneck", self.bottleneck)
    _checks.flag("frozen_norm", self.frozen_norm)
    _checks.flag("remat", self.remat)
    x = as_images(images)
    _checks.counts("widths", self.widths)
    same_length("strides", self.strides, "widths", len(self.widths))
    same_length("blocks", self.blocks, "widths", len(self.widths))
    _checks.one_of("stem", self.stem, Stem)
    _checks.one_of("shortcut", self.shortcut, Shortcut)
    if self.shortcut == "padding" and list(self.widths) != sorted(self.widths):
      raise ValueError(f'shortcut "padding" needs widths that grow, got {self.widths}')
    size, stride = (7, 2) if self.stem == "photograph" else (3, 1)
    stem = Convolution(
      self.widths[0], size, stride, method=self.convolution, name="stem"
    )
    x = nn.relu(batch_norm(self, stem(x), "stem_norm", train))
    if self.stem == "photograph":
      # Zeros around the map serve as -inf, since the map is not negative.
      x = jnp.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)])
      x = nn.max_pool(x, (3, 3), strides=(2, 2))
    block_class = nn.remat(_Block, static_argnums=(2,)) if self.remat else _Block
    stages = zip(self.widths, self.strides, self.blocks, strict=True)
    for stage, (width, first_stride, blocks) in enumerate(stages, 1):
      for number in range(blocks):
        block = block_class(
          width,
          first_stride if number == 0 else 1,
          self.bottleneck,
          self.shortcut,
          self.frozen_norm,
          self.axis_name,
          self.convolution,
          name=f"stage{stage}_{number}",
        )
        x = block(x, train)
    return x


class ResNet18(ResNet):
  """`ResNet` of 18 layers: two blocks in each of four stages.

  A 224x224 image gives a 7x7 map of 512 channels, a 32x32 image with `stem="small"` a
  4x4 map. With `blocks=(3, 4, 6, 3)` it is ResNet-34.

  Attributes, call, errors, derivatives: those of `ResNet`. Cost: 1.8 billion
  multiplications for a 224x224 image; 11.2 million parameters.

  Source: He et al. 2016, "Deep residual learning for image recognition", table 1.

  Example:
    >>> network = spherejax.models.ResNet18()
    >>> images = jnp.zeros((1, 224, 224, 3))
    >>> variables = jax.eval_shape(network.init, jax.random.key(0), images)
    >>> jax.eval_shape(network.apply, variables, images).shape
    (1, 7, 7, 512)
  """


class ResNet50(ResNet):
  """`ResNet` of 50 layers: 3, 4, 6 and 3 bottlenecks.

  A 224x224 image gives a 7x7 map of 2048 channels.

  Attributes, call, errors, derivatives: those of `ResNet`. Cost: 4.1 billion
  multiplications for a 224x224 image; 23.5 million parameters.

  Source: He et al. 2016, "Deep residual learning for image recognition", table 1; DL2P
  table 3; DIST IV. The stride is at the 3x3 convolution.

  Example:
    >>> network = spherejax.models.ResNet50(frozen_norm=True)
    >>> images = jnp.zeros((1, 64, 64, 3))
    >>> variables = jax.eval_shape(network.init, jax.random.key(0), images)
    >>> jax.eval_shape(network.apply, variables, images).shape
    (1, 2, 2, 2048)
  """

  blocks: Sequence[int] = (3, 4, 6, 3)
  bottleneck: bool = True


class ResNet101(ResNet50):
  """`ResNet50` with 23 instead of 6 blocks in the third stage.

  Attributes, call, errors, derivatives: those of `ResNet`. Cost: 7.8 billion
  multiplications for a 224x224 image; 42.5 million parameters.

  Source: He et al. 2016, "Deep residual learning for image recognition", table 1;
  DL2P table 3.

  Example:
    >>> spherejax.models.ResNet101().blocks
    (3, 4, 23, 3)
  """

  blocks: Sequence[int] = (3, 4, 23, 3)


class ResNet32(ResNet):
  """`ResNet` of 32 layers for images of 32x32: five blocks in each of three stages.

  A 32x32 image gives an 8x8 map of 64 channels. DL2P's public code has
  `shortcut="projection_3x3"` (23 thousand parameters more), and for long tails
  `widths=(32, 64, 128)`.

  Attributes, call, errors, derivatives: those of `ResNet`. Cost: 69 million
  multiplications for a 32x32 image; 0.46 million parameters.

  Source: He et al. 2016, "Deep residual learning for image recognition", section 4.2
  (shortcuts without parameters); DL2P tables 1, 4 and 6.

  Example:
    >>> network = spherejax.models.ResNet32()
    >>> images = jnp.zeros((2, 32, 32, 3))
    >>> variables = jax.eval_shape(network.init, jax.random.key(0), images)
    >>> jax.eval_shape(network.apply, variables, images).shape
    (2, 8, 8, 64)
  """

  blocks: Sequence[int] = (5, 5, 5)
  widths: Sequence[int] = (16, 32, 64)
  strides: Sequence[int] = (1, 2, 2)
  stem: Stem = "small"
  shortcut: Shortcut = "padding"
