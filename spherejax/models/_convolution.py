"""Convolution with two ways of computing it."""

from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from spherejax import _checks

Method = Literal["native", "patches"]

# Variance 2 / (k^2 channels_out) for a k x k convolution (He et al. 2015, eq. 14).
kernel_init = nn.initializers.variance_scaling(2.0, "fan_out", "normal")


class Convolution(nn.Module):
  """Square convolution, odd in size and centred on the input whatever the stride.

  "native" is XLA's convolution. "patches" gathers the shifted copies of the map and
  multiplies once. The result is the same; the input takes size^2 times the memory. On a
  CPU "patches" is much faster inside `lax.scan`, where XLA's convolution takes a slow
  path, and under `vmap` over the kernel, where XLA's becomes a grouped convolution.
  """

  width: int
  size: int = 3
  stride: int = 1
  use_bias: bool = False
  method: Method = "native"

  @nn.compact
  def __call__(self, x: Array) -> Array:
    _checks.one_of("convolution", self.method, Method)
    shape = (self.size, self.size, x.shape[-1], self.width)
    kernel = self.param("kernel", kernel_init, shape).astype(x.dtype)
    convolve = _from_patches if self.method == "patches" else _native
    result = convolve(x, kernel, self.stride)
    if self.use_bias:
      bias = self.param("bias", nn.initializers.zeros_init(), (self.width,))
      result += jnp.broadcast_to(bias.astype(x.dtype), result.shape)
    return result


def _native(x: Array, kernel: Array, stride: int) -> Array:
  return jax.lax.conv_general_dilated(
    x,
    kernel,
    (stride, stride),
    [(kernel.shape[0] // 2, kernel.shape[0] // 2)] * 2,
    dimension_numbers=("NHWC", "HWIO", "NHWC"),
  )


def _from_patches(x: Array, kernel: Array, stride: int) -> Array:
  size = kernel.shape[0]
  border = (size // 2, size // 2)
  padded = jnp.pad(x, [(0, 0), border, border, (0, 0)])
  # Only as far as the last window reaches.
  spans = [(extent - 1) // stride * stride + 1 for extent in x.shape[1:3]]
  shifted = [
    padded[:, row : row + spans[0] : stride, column : column + spans[1] : stride]
    for row in range(size)
    for column in range(size)
  ]
  patches = jnp.concatenate(shifted, axis=-1)
  return patches @ kernel.reshape(-1, kernel.shape[-1])
