"""Squared distances from differences, exact for small distances, in little memory."""

import jax
import jax.numpy as jnp
from jax import Array

from spherejax import distances


@jax.custom_jvp
def squared_distances(x: Array, y: Array) -> Array:
  """|x_i - y_j|^2 from differences, which are not kept for the derivatives."""
  return jnp.sum((x[:, None] - y[None]) ** 2, axis=-1)


@squared_distances.defjvp
def _squared_distances_jvp(
  primals: tuple[Array, Array], tangents: tuple[Array, Array]
) -> tuple[Array, Array]:
  """2 <x_i - y_j, dx_i - dy_j>, from products; for the nearest j, from differences.

  Where a difference is much smaller than its operands, products lose as many digits as
  rounding the operands would. These digits matter where a cotangent is large, that is,
  where a distance is small.
  """
  (x, y), (dx, dy) = primals, tangents
  squares = squared_distances(x, y)
  index = jnp.argmin(squares, axis=1)
  near = jnp.arange(len(y))[None] == index[:, None]
  choose = near.astype(x.dtype)  # its transposed product adds up in a fixed order
  dot = distances.pairwise_dot

  def along(a: Array, b: Array) -> Array:
    return jnp.sum(a * b, axis=1)

  far = along(x, dx)[:, None] + along(y, dy)[None] - dot(dx, y) - dot(x, dy)
  nearest = along(x - y[index], dx - dot(choose, dy.T))[:, None]
  return squares, 2 * jnp.where(near, nearest, far)
