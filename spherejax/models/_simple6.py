"""Simple6: a plain network without any normalisation."""

from collections.abc import Sequence

import flax.linen as nn
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from spherejax import _checks
from spherejax.models._backbones import as_images, halve, same_length
from spherejax.models._convolution import Convolution, Method


class Simple6(nn.Module):
  """Feature maps of six 3x3 convolutions with ReLU, without normalisation.

  After every second layer the maximum of each 2x2 block of positions is taken. With
  global average pooling after it, the norm of an image's features follows the number of
  objects in it. Without biases, features of objects far enough apart simply add up.

  Attributes:
    widths: static. Channels of the six layers.
    use_bias: static. True gives the convolutions biases, initially zero.
    convolution: static. "native" (XLA's) or "patches" (a matrix product of shifted
      copies, with the same result; for small maps on a CPU, inside `lax.scan` or under
      `vmap` over the parameters).

  Call: `(images [batch, height, width, channels])` gives [batch, height // 8,
  width // 8, widths[-1]], not negative; `pooling.gap` comes after it.

  Raises:
    TypeError: images not floating.
    ValueError: images without 4 axes or smaller than 8x8, not six widths.

  Differentiable in: parameters, images. Cost: 29 million multiplications for a 28x28
  image; 0.3 million parameters.

  Source: NCH 4.1, which does not state the widths.

  Example:
    >>> network = spherejax.models.Simple6()
    >>> images = jnp.zeros((2, 28, 28, 1))
    >>> variables = jax.eval_shape(network.init, jax.random.key(0), images)
    >>> jax.eval_shape(network.apply, variables, images).shape
    (2, 3, 3, 128)
  """

  widths: Sequence[int] = (32, 32, 64, 64, 128, 128)
  use_bias: bool = True
  convolution: Method = "native"

  @nn.compact
  def __call__(
    self, images: Float[ArrayLike, "batch height width channels"]
  ) -> Float[Array, "batch rows columns features"]:
    """Feature maps of the images."""
    _checks.flag("use_bias", self.use_bias)
    x = as_images(images)
    same_length("widths", self.widths, "layers", 6)
    if min(x.shape[1:3]) < 8:
      raise ValueError(
        f"images must be at least 8x8 for three halvings, got shape {x.shape}"
      )
    for number, width in enumerate(self.widths, 1):
      layer = Convolution(width, use_bias=self.use_bias, method=self.convolution)
      x = nn.relu(layer(x))
      if number % 2 == 0:
        x = halve(x)
    return x
