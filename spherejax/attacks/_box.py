"""The box of values that an input may have."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from spherejax import _numerics
from spherejax.attacks._ball import known


def box(x: Array, low: ArrayLike, high: ArrayLike) -> tuple[Array, Array]:
  """Both sides [batch, ...] of a checked box, in the computing type of x.

  Known ones are rounded inwards: float32 has no 0.6 but a larger number, which is
  outside. An entry of x that is that number stays where it is.

  Raises ValueError for low > high or an entry of x outside, where they are known.
  """
  check_box(x, low, high)
  dtype = _numerics.compute_dtype(x.dtype)
  clean = jax.lax.stop_gradient(x).astype(dtype)
  sides = []
  for bound, inwards in ((low, np.inf), (high, -np.inf)):
    values = known(bound)
    if values is None:
      side = jax.lax.stop_gradient(jnp.asarray(bound, dtype))
    else:
      side = _rounded(clean, values.astype(np.float64), x.dtype, inwards)
    sides.append(jnp.broadcast_to(side, x.shape))
  return sides[0], sides[1]


def _rounded(
  clean: Array, bound: np.ndarray, dtype: DTypeLike, inwards: float
) -> ArrayLike:
  """The bound in the type of `clean`, inwards, or the entry of x that is nearer."""
  side = bound.astype(clean.dtype)
  outside = side < bound if inwards > 0 else side > bound
  side = np.where(outside, np.nextafter(side, side.dtype.type(inwards)), side)
  nearest = bound.astype(dtype).astype(clean.dtype)
  if inwards > 0 and np.any(nearest < side):
    return jnp.where((clean >= nearest) & (clean < side), clean, side)
  if inwards < 0 and np.any(nearest > side):
    return jnp.where((clean <= nearest) & (clean > side), clean, side)
  return side


def check_box(x: Array, low: ArrayLike, high: ArrayLike) -> None:
  """Raises for a known entry outside of the box."""
  points, least, most = known(x), known(low), known(high)
  if least is not None and most is not None and np.any(least > most):
    place = np.unravel_index(np.argmax(least > most), np.broadcast(least, most).shape)
    least, most = np.broadcast_arrays(least, most)
    raise ValueError(f"low must be at most high, got {least[place]} > {most[place]}")
  for name, bound, wrong in (
    ("at least low", least, np.less),
    ("at most high", most, np.greater),
  ):
    if points is None or bound is None or not points.size:
      continue
    # In the type of x, in which 0.1 bounds what is 0.1 there.
    outside = ~np.isfinite(points) | wrong(points, bound.astype(points.dtype))
    if outside.any():
      place = np.unravel_index(np.argmax(outside), points.shape)
      limit = np.broadcast_to(bound, points.shape)[place]
      raise ValueError(
        f"x must be {name} = {limit}, got {points[place]} at {[int(i) for i in place]}"
      )


def finite_box(low: ArrayLike, high: ArrayLike) -> None:
  """Raises for a known side that is not finite."""
  for name, bound in (("low", low), ("high", high)):
    values = known(bound)
    if values is not None and not np.isfinite(values).all():
      raise ValueError(f"{name} must be finite, got {values[~np.isfinite(values)][0]}")
