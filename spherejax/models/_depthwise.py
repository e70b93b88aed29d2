"""Convolution of each channel by its own kernel."""

import functools
from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from spherejax import _numerics

# Variance 2 / size^2, since each channel sees only its own kernel.
_kernel_init = nn.initializers.variance_scaling(2.0, "fan_in", "normal")


class DepthwiseConvolution(nn.Module):
  """Square convolution of each channel alone, with XLA's "SAME" padding.

  On a CPU, XLA's grouped convolution takes some ten times as long as the sum of shifted
  copies of the map, which is used there.
  """

  size: int
  stride: int = 1

  @nn.compact
  def __call__(self, x: Array) -> Array:
    shape = (self.size, self.size, 1, x.shape[-1])
    kernel = self.param("kernel", _kernel_init, shape).astype(x.dtype)
    return depthwise(x, kernel, self.stride)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def depthwise(x: Array, kernel: Array, stride: int) -> Array:
  """[batch, rows, columns, channels] convolved with [size, size, 1, channels]."""
  return jax.lax.platform_dependent(
    x,
    kernel,
    cpu=functools.partial(_shifted_sum, stride=stride),
    default=functools.partial(_grouped, stride=stride),
  )


def _forwards(x: Array, kernel: Array, stride: int) -> tuple[Array, tuple]:
  return depthwise(x, kernel, stride), (x, kernel)


def _backwards(stride: int, residuals: tuple, cotangent: Array) -> tuple[Array, Array]:
  def of_grouped(x: Array, kernel: Array, cotangent: Array) -> tuple[Array, Array]:
    convolve = functools.partial(_grouped, stride=stride)
    return jax.vjp(convolve, x, kernel)[1](cotangent)

  def of_shifted(x: Array, kernel: Array, cotangent: Array) -> tuple[Array, Array]:
    of_x = _to_input(x.shape, kernel, cotangent, stride)
    return of_x, _to_kernel(x, kernel, cotangent, stride)

  return jax.lax.platform_dependent(
    *residuals, cotangent, cpu=of_shifted, default=of_grouped
  )


depthwise.defvjp(_forwards, _backwards)


def _grouped(x: Array, kernel: Array, stride: int) -> Array:
  return jax.lax.conv_general_dilated(
    x,
    kernel,
    (stride, stride),
    "SAME",
    dimension_numbers=("NHWC", "HWIO", "NHWC"),
    feature_group_count=x.shape[-1],
  )


def _shifted_sum(x: Array, kernel: Array, stride: int) -> Array:
  spans, borders = _reach(x.shape, len(kernel), stride)
  padded = jnp.pad(x, [(0, 0), *borders, (0, 0)])
  return _windows(padded, kernel, spans, stride).astype(x.dtype)


def _to_input(
  shape: tuple[int, ...], kernel: Array, cotangent: Array, stride: int
) -> Array:
  """Gradient of the input: the same sum, for a map with gaps and a turned kernel."""
  last = len(kernel) - 1
  spans, borders = _reach(shape, len(kernel), stride)
  gaps = [
    (last - low, side - span + low, stride - 1)
    for (low, _), side, span in zip(borders, shape[1:3], spans, strict=True)
  ]
  nothing = jnp.zeros((), cotangent.dtype)
  padded = jax.lax.pad(cotangent, nothing, [(0, 0, 0), *gaps, (0, 0, 0)])
  return _windows(padded, kernel[::-1, ::-1], shape[1:3], 1).astype(cotangent.dtype)


def _to_kernel(x: Array, kernel: Array, cotangent: Array, stride: int) -> Array:
  """Gradient of the kernel: entry by entry, for one image at a time.

  So a map stays in the cache, and one program serves all entries.
  """
  size, channels = len(kernel), x.shape[-1]
  spans, borders = _reach(x.shape, size, stride)
  places = jnp.stack(jnp.divmod(jnp.arange(size**2), size), axis=-1)

  def of_image(total: Array, image: tuple[Array, Array]) -> tuple[Array, None]:
    padded, behind = jnp.pad(image[0], [*borders, (0, 0)]), image[1]

    def of_place(place: Array) -> Array:
      part = jax.lax.dynamic_slice(padded, (*place, 0), (*spans, channels))
      return jnp.sum(part[::stride, ::stride] * behind, axis=(0, 1))

    return total + jax.lax.map(of_place, places), None

  x, cotangent = _numerics.upcast(x), _numerics.upcast(cotangent)
  total = jnp.zeros((size**2, channels), x.dtype)
  total, _ = jax.lax.scan(of_image, total, (x, cotangent))
  return total.reshape(kernel.shape).astype(kernel.dtype)


def _reach(
  shape: Sequence[int], size: int, stride: int
) -> tuple[list[int], list[tuple[int, int]]]:
  """Extent of the windows' first cells, and the borders around the map."""
  spans = [(side - 1) // stride * stride + 1 for side in shape[1:3]]
  totals = [
    max(span + size - 1 - side, 0) for span, side in zip(spans, shape[1:3], strict=True)
  ]
  return spans, [(total // 2, total - total // 2) for total in totals]


def _windows(padded: Array, kernel: Array, spans: Sequence[int], stride: int) -> Array:
  """Sum over the kernel's cells of the map shifted to each cell."""
  padded, kernel = _numerics.upcast(padded), _numerics.upcast(kernel)
  rows, columns = spans
  size = len(kernel)
  return sum(
    (
      padded[:, row : row + rows : stride, column : column + columns : stride]
      * kernel[row : row + 1, column : column + 1]
      for row in range(size)
      for column in range(size)
    ),
    start=jnp.zeros((), padded.dtype),
  )
