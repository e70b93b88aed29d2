"""EfficientNet-Lite, without the operations that are slow on small processors."""

import functools
import math

import flax.linen as nn
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from spherejax import _checks
from spherejax.models._backbones import as_images, batch_norm
from spherejax.models._convolution import Convolution, kernel_init
from spherejax.models._depthwise import DepthwiseConvolution

# Kernel, stride, expansion, channels and blocks of each stage, before scaling.
_STAGES = (
  (3, 1, 1, 16, 1),
  (3, 2, 6, 24, 2),
  (5, 2, 6, 40, 2),
  (3, 2, 6, 80, 3),
  (5, 1, 6, 112, 3),
  (5, 2, 6, 192, 4),
  (3, 1, 6, 320, 1),
)
_STEM, _HEAD = 32, 1280  # channels at every width
_PARTS = len(_STAGES) + 2


_batch_norm = functools.partial(batch_norm, epsilon=1e-3, momentum=0.99)


def _relu6(x: Array) -> Array:
  return jnp.clip(x, 0, 6)


class _Block(nn.Module):
  """Inverted residual block: 1x1 convolution to widen, depthwise, 1x1 to narrow."""

  width: int
  size: int
  stride: int
  expansion: int
  frozen_norm: bool
  axis_name: str | None

  @nn.compact
  def __call__(self, x: Array, train: bool) -> Array:
    y = x
    if self.expansion > 1:
      y = _product(y, self.expansion * x.shape[-1], "expand")
      y = _relu6(_batch_norm(self, y, "expand_norm", train))
    y = DepthwiseConvolution(self.size, self.stride, name="depthwise")(y)
    y = _relu6(_batch_norm(self, y, "depthwise_norm", train))
    y = _product(y, self.width, "project")
    y = _batch_norm(self, y, "project_norm", train)
    return x + y if self.stride == 1 and x.shape == y.shape else y


def _product(x: Array, width: int, name: str) -> Array:
  """Convolution 1x1, as a matrix product, which is faster on a CPU."""
  return Convolution(width, 1, method="patches", name=name)(x)


class EfficientNetLite(nn.Module):
  """Feature maps of EfficientNet-Lite, a small network for photographs.

  EfficientNet without squeeze-and-excitation and with ReLU6: a stem, seven stages of
  inverted residual blocks and a 1x1 convolution, without the pooling and the
  classifier. A 224x224 image gives a 7x7 map of 1280 channels. `pretrained` returns it
  with ImageNet weights; `import_weights` fills it from files.

  Attributes:
    width: static. Factor of the channels between stem and head: 1.0 for Lite0 and
      Lite1, 1.1 for Lite2.
    depth: static. Factor of the number of blocks in every stage except the first and
      the last, rounded up: 1.0 for Lite0, 1.1 for Lite1, 1.2 for Lite2.
    frozen_norm, axis_name, remat: as in `ResNet`.
    parts: static. First part to compute and the part to stop before: 0 is the stem, 1
      to 7 are the stages, 8 is the 1x1 convolution. To fine-tune the last stage on
      stored maps, store the maps of (0, 7) and pass them to (7, 9) as images.

  Call: as in `ResNet`, gives [batch, height / 32, width / 32, 1280].

  Raises:
    TypeError: images not floating.
    ValueError: images without 4 axes, a width or a depth that is not positive, parts
      that are not a range within 0 to 9.

  Differentiable in: parameters, images, by reverse mode (`jax.grad`, also twice);
  `jax.jvp` is refused, since the gradient of depthwise convolutions is written by hand.
  Cost: 0.4 billion multiplications for Lite0 and a 224x224 image; 3.4 million
  parameters.

  Source: Tan and Le 2019, "EfficientNet: rethinking model scaling for convolutional
  neural networks", table 1, as its authors released it in 2020 under the name
  EfficientNet-Lite. Differs from their training: no block is dropped at random.

  Example:
    >>> network = spherejax.models.EfficientNetLite()
    >>> images = jnp.zeros((1, 224, 224, 3))
    >>> variables = jax.eval_shape(network.init, jax.random.key(0), images)
    >>> jax.eval_shape(network.apply, variables, images).shape
    (1, 7, 7, 1280)
  """

  width: float = 1.0
  depth: float = 1.0
  frozen_norm: bool = False
  axis_name: str | None = None
  remat: bool = False
  parts: tuple[int, int] = (0, _PARTS)

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
    for name, factor in (("width", self.width), ("depth", self.depth)):
      _checks.number(name, factor)
      _checks.positive(name, factor)
    first, last = _checks.pair("parts", self.parts)
    if not 0 <= first < last <= _PARTS:
      raise ValueError(f"parts must be a range within 0 to {_PARTS}, got {self.parts}")
    if first == 0:
      stem = nn.Conv(
        _STEM,
        (3, 3),
        2,
        use_bias=False,
        kernel_init=kernel_init,
        dtype=x.dtype,
        name="stem",
      )
      x = _relu6(_batch_norm(self, stem(x), "stem_norm", train))
    block_class = nn.remat(_Block, static_argnums=(2,)) if self.remat else _Block
    for stage, (size, stride, expansion, width, blocks) in enumerate(_STAGES, 1):
      if stage not in (1, len(_STAGES)):
        blocks = math.ceil(self.depth * blocks)
      if not first <= stage < last:
        continue
      for number in range(blocks):
        block = block_class(
          _scaled(width, self.width),
          size,
          stride if number == 0 else 1,
          expansion,
          self.frozen_norm,
          self.axis_name,
          name=f"stage{stage}_{number}",
        )
        x = block(x, train)
    if last < _PARTS:
      return x
    x = _product(x, _HEAD, "head")
    return _relu6(_batch_norm(self, x, "head_norm", train))


def _scaled(channels: int, width: float) -> int:
  """Rounds to a multiple of 8, but takes away a tenth of the channels at most."""
  exact = channels * width
  rounded = max(8, int(exact + 4) // 8 * 8)
  return rounded + 8 if rounded < 0.9 * exact else rounded
