"""Cosine of the sum of an angle and a shift, from the cosine of the angle."""

import jax.numpy as jnp
from jax import Array

from spherejax import _numerics


def turned(cosines: Array, by: Array, noise: float = 0.0) -> Array:
  """cos(angle + by); where the sine is 0, its derivative in the cosine is cos(by).

  Args:
    cosines: of the angles; beyond -1 and 1 the sine is taken as 0.
    by: radians.
    noise: squares of the sine up to this number are taken as 0.
  """
  # 1 - cosine^2 would lose the digits of a small angle.
  square = (1 - cosines) * (1 + cosines)
  sines = _numerics.sqrt(jnp.where(square <= noise, 0, square))
  return cosines * jnp.cos(by) - sines * jnp.sin(by)
