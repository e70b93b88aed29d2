"""Box of values that an input may have."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from spherejax import _checks, _compiled, _numerics
from spherejax.distances._lp import Norm


def box(x: Array, low: ArrayLike, high: ArrayLike) -> tuple[Array, Array]:
  """Lower and upper side [batch, ...] of a checked box, in the computing type of x.

  Known sides are rounded inwards: float32 has no 0.6, and its nearest number is larger
  and so lies outside. An entry of x that equals that number stays where it is.

  Raises ValueError for low > high or an entry of x outside, where they are known.
  """
  _checks.limits(low, high, x.shape)
  _check(x, low, high)
  clean = jax.lax.stop_gradient(x).astype(_numerics.compute_dtype(x.dtype))
  sides = []
  for sign, bound in ((-1, low), (1, high)):
    upper = functools.partial(_upper, sign, clean.dtype, x.dtype)
    known = _compiled.derived(upper, bound)
    if known is None:
      side = jax.lax.stop_gradient(jnp.asarray(bound, clean.dtype))
    else:
      side, nearest = (jnp.broadcast_to(entry, x.shape) for entry in known)
      # An entry that is the number nearest to the bound stays, even if it is above the
      # bound.
      there = sign * clean
      side = sign * jnp.where((there > side) & (there <= nearest), there, side)
    sides.append(jnp.broadcast_to(side, x.shape))
  return sides[0], sides[1]


def _upper(
  sign: int, wide: jnp.dtype, dtype: jnp.dtype, bound: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
  """Upper side, rounded down in type `wide`, and rounded to the nearest in `dtype`."""
  exact = np.asarray(sign * np.asarray(bound).astype(np.float64))
  side = exact.astype(wide)
  side = np.where(side > exact, np.nextafter(side, side.dtype.type(-np.inf)), side)
  return side, exact.astype(dtype).astype(wide)


@_compiled.check
def _check(x: ArrayLike, low: ArrayLike, high: ArrayLike) -> None:
  """Raises for a known entry outside the box."""
  points, least, most = _checks.known(x), _checks.known(low), _checks.known(high)
  for name, bound, wrong in (
    ("at least low", least, np.less),
    ("at most high", most, np.greater),
  ):
    if points is None or bound is None or not points.size:
      continue
    # Compared in the type of x, so that its 0.1 lies within the bound 0.1.
    outside = ~np.isfinite(points) | wrong(points, bound.astype(points.dtype))
    if outside.any():
      place = np.unravel_index(np.argmax(outside), points.shape)
      limit = np.broadcast_to(bound, points.shape)[place]
      raise ValueError(
        f"x must be {name} = {limit}, got {points[place]} at {[int(i) for i in place]}"
      )


def finite_box(low: ArrayLike, high: ArrayLike) -> None:
  """Raises for a known side that is not finite."""
  _checks.limits(low, high)
  _checks.known_finite("low", low)
  _checks.known_finite("high", high)


@_compiled.check
def check_radius(
  epsilon: ArrayLike,
  low: ArrayLike | None,
  high: ArrayLike | None,
  shape: tuple[int, ...],
  norm: Norm,
) -> None:
  """Raises for a known radius larger than a known box, such as 8 instead of 8/255.

  An infinite radius is no mistake: it asks for the whole box.
  """
  radius, least, most = _checks.known(epsilon), _checks.known(low), _checks.known(high)
  if radius is None or least is None or most is None or 0 in shape:
    return
  order = {"linf": np.inf, "l2": 2, "l1": 1}[norm]
  entries = math.prod(shape[1:])
  span = np.asarray(most.astype(np.float64) - least.astype(np.float64))
  if span.ndim:
    rows = np.broadcast_to(span, shape).reshape(-1, entries)
    extent = float(np.linalg.norm(rows, order, axis=1).max())
  else:
    extent = float(span) * entries ** (1 / order)
  wide = radius[np.isfinite(radius) & (radius > extent * (1 + 1e-5))]
  if wide.size:
    raise ValueError(
      f"epsilon must be at most {extent:g}, the extent of the box in {norm}, or inf,"
      f" got {wide.flat[0]:g}; give it, low and high in the scale of x"
    )
