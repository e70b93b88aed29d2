"""Exact projections onto a norm ball cut by a box, and onto a half-space in a box.

Each depends on a single number, the root of a piecewise linear function. Newton steps
reach the right piece without sorting; the root is then the closed form of that piece.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Real

from spherejax import _checks, _numerics, distances
from spherejax.distances._lp import Norm
from spherejax.solvers._newton import newton


class HalfspaceResult(NamedTuple):
  """Nearest point of a half-space in a box."""

  value: Float[Array, "..."]
  """The point; where the box does not meet the half-space, the closest of the box."""
  distance: Float[Array, ""]
  """Norm of the move; 0 inside, inf where the box does not meet the half-space."""
  feasible: Bool[Array, ""]
  """True if the box meets the half-space."""


def project_ball(
  point: Float[ArrayLike, "*shape"],
  center: Float[ArrayLike, "*shape"],
  epsilon: Real[ArrayLike, ""],
  *,
  norm: Norm = "l2",
  low: Real[ArrayLike, "..."] = -jnp.inf,
  high: Real[ArrayLike, "..."] = jnp.inf,
) -> Float[Array, "*shape"]:
  """Euclidean projection onto a ball around a point of a box, cut by the box.

      argmin_z |z - point|_2   with |z - center|_p <= epsilon and low <= z <= high

  Scaling to the ball and then clipping to the box gives a point of the region, but for
  l1 and l2 not the nearest.

  Args:
    point: one point, floating, of any shape; many by vmap.
    center: the shape of `point`; inside the box.
    epsilon: at least 0, may be traced.
    norm: "linf", "l2" or "l1", over all entries. Static.
    low: broadcasts to `center`; may be traced.
    high: likewise.

  Returns:
    The projection, shape and dtype of `point`; feasible up to rounding.

  Raises:
    TypeError: point or center not floating.
    ValueError: shapes differ, epsilon not a scalar, an unknown norm, a static epsilon
      below 0, or a known low above high.

  Differentiable in: point, center, epsilon (positive), low, high. Cost: O(entries) for
  each of a few steps, usually below 10.

  Source: the conditions of Karush, Kuhn and Tucker; for l1 without a box Duchi et al.
  2008, "Efficient projections onto the l1-ball", with a box Croce and Hein 2021, "Mind
  the box".

  Example:
    >>> point, center = jnp.array([4.0, 0.5]), jnp.zeros(2)
    >>> spherejax.solvers.project_ball(point, center, 1.0, norm="l1", high=0.75)
    Array([0.75, 0.25], dtype=float32)
  """
  point = _checks.array("point", point, "floating")
  center = _checks.array("center", center, "floating")
  _checks.shape("center", center, point.shape, "the point")
  _checks.one_of("norm", norm, Norm)
  _checks.between("epsilon", epsilon, 0)
  _checks.limits(low, high, point.shape)
  wide, middle = _numerics.upcast(point), _numerics.upcast(center)
  radius = _checks.scalar("epsilon", epsilon, wide.dtype)
  low, high = (jnp.asarray(bound, wide.dtype) for bound in (low, high))
  if norm == "linf":
    low, high = jnp.maximum(low, middle - radius), jnp.minimum(high, middle + radius)
    return jnp.clip(wide, low, high).astype(point.dtype)
  delta = wide - middle
  # An entry that equals the centre's gets a side too, so that its derivative is right.
  side = jnp.where(delta < 0, -1, 1).astype(delta.dtype)
  size = side * delta
  # No entry moves farther than `point` itself, so a missing bound is finite here.
  room = jnp.minimum(_room(side, middle, low, high), size)
  largest = jax.lax.stop_gradient(jnp.max(size, initial=0))
  scale = jnp.where(largest > 0, largest, 1)
  size, room = size / scale, room / scale
  # Sizes are at most 1, so no larger radius matters; its square might overflow.
  radius = jnp.minimum(radius / scale, 2 * max(size.size, 1))
  shrunk = _shrink_l2 if norm == "l2" else _shrink_l1
  moved = side * shrunk(size, room, radius) * scale
  return jnp.clip(middle + moved, low, high).astype(point.dtype)


def project_halfspace(
  point: Float[ArrayLike, "*shape"],
  normal: Float[ArrayLike, "*shape"],
  offset: Real[ArrayLike, ""],
  *,
  norm: Norm = "l2",
  low: Real[ArrayLike, "..."] = -jnp.inf,
  high: Real[ArrayLike, "..."] = jnp.inf,
) -> HalfspaceResult:
  """Smallest move of a point of a box into a half-space, within the box.

      argmin_z |z - point|_p   with <normal, z> + offset >= 0 and low <= z <= high

  Args:
    point: one point, floating, of any shape, inside the box; many by vmap.
    normal: the shape of `point`; any length.
    offset: a number, may be traced.
    norm: "linf", "l2" or "l1", over all entries: the norm to minimise. Static.
    low: broadcasts to `point`; may be traced.
    high: likewise.

  Returns:
    HalfspaceResult(value, distance, feasible), dtype of `point`. Without a point of the
    half-space in the box, or with a zero normal, `value` goes as far towards it as it
    can.

  Raises:
    TypeError: point or normal not floating.
    ValueError: shapes differ, offset not a scalar, an unknown norm, or a known low
      above high.

  Differentiable in: nothing. Cost: O(entries) for each of a few steps; one sort for l1.

  Source: Croce and Hein 2020, "Minimally distorted adversarial examples with a fast
  adaptive boundary attack", section 2.2, there by sorting.

  Example:
    >>> point, normal = jnp.zeros(2), jnp.array([1.0, 1.0])
    >>> move = spherejax.solvers.project_halfspace(point, normal, -1.0, high=0.5)
    >>> move.value, move.distance
    (Array([0.5, 0.5], dtype=float32), Array(0.70710677, dtype=float32))
  """
  point = _checks.array("point", point, "floating")
  normal = _checks.array("normal", normal, "floating")
  _checks.shape("normal", normal, point.shape, "the point")
  _checks.one_of("norm", norm, Norm)
  _checks.limits(low, high, point.shape)
  wide, direction = (
    jax.lax.stop_gradient(_numerics.upcast(x)) for x in (point, normal)
  )
  offset = jax.lax.stop_gradient(_checks.scalar("offset", offset, wide.dtype))
  low, high = (jax.lax.stop_gradient(jnp.asarray(x, wide.dtype)) for x in (low, high))
  room = _room(direction, wide, low, high)
  gain = jnp.where(room > 0, jnp.abs(direction), 0)
  largest = jnp.max(gain, initial=0)
  scale = jnp.where(largest > 0, largest, 1)
  direction, gain = direction / scale, gain / scale
  product = jnp.sum(direction * wide)
  missing = jnp.maximum(-(product + offset / scale), 0)
  reach = jnp.where(gain > 0, gain * room, 0)
  feasible = jnp.sum(reach) >= missing
  moved = jnp.where(feasible, _least_move(gain, room, reach, missing, norm), room)
  length = distances.lp_norm(jnp.ravel(moved), norm=norm)
  distance = jnp.where(feasible, length, jnp.inf)
  value = jnp.clip(wide + jnp.sign(direction) * moved, low, high)
  return HalfspaceResult(
    value.astype(point.dtype), distance.astype(point.dtype), feasible
  )


def _room(direction: Array, start: Array, low: Array, high: Array) -> Array:
  """Distance that each entry may go to the side of `direction`; 0 for none."""
  room = jnp.where(direction > 0, high - start, start - low)
  return jnp.where(direction == 0, 0, jnp.maximum(room, 0))


def _fill(slopes: Array, caps: Array, total: Array) -> Array:
  """Solves sum_i min(t slopes_i, caps_i) = total, t >= 0; else the last break point.

  The sum is concave in t, so Newton's steps from 0 stay below the root. They end after
  finitely many steps, when the set of capped entries stays the same.
  """

  def solve(slopes, caps, total, t):
    free = jax.lax.stop_gradient(t * slopes < caps)
    slope = jnp.sum(jnp.where(free, slopes, 0))
    rest = total - jnp.sum(jnp.where(free, 0, caps))
    return jnp.where(slope > 0, _numerics.divide(rest, slope), t)

  p, q, r = (jax.lax.stop_gradient(x) for x in (slopes, caps, total))
  start = jnp.zeros_like(r)
  previous, _ = jax.lax.while_loop(
    lambda pair: pair[1] > pair[0],  # a step back is rounding
    lambda pair: (pair[1], solve(p, q, r, pair[1])),
    (start, solve(p, q, r, start)),
  )
  return solve(slopes, caps, total, previous)


def _shrink_l2(size: Array, room: Array, radius: Array) -> Array:
  """min(s size, room) with the s in [0, 1] that makes its norm `radius`."""
  inside = jnp.sum(room**2) <= radius**2
  factor = _numerics.sqrt(_fill(size**2, room**2, radius**2))
  return jnp.where(inside, room, _at_most(factor * size, room))


def _shrink_l1(size: Array, room: Array, radius: Array) -> Array:
  """The entries, at most 1, less the t that makes them sum to `radius` in [0, room]."""
  fixed = [jax.lax.stop_gradient(x) for x in (size, room, radius)]

  def excess(t):
    return jnp.sum(jnp.clip(fixed[0] - t, 0, fixed[1])) - fixed[2]

  # Sizes are at most 1: a smaller residual is below the rounding of t.
  tol = jnp.full_like(fixed[2], 2 * jnp.finfo(size.dtype).eps)
  bracket = jnp.zeros_like(tol), jnp.ones_like(tol)
  t = jax.lax.stop_gradient(newton(excess, bracket, tol=tol).value)
  free = (size > t) & (size - t < room)
  full = size - t >= room
  total = jnp.sum(jnp.where(free, size, 0)) + jnp.sum(jnp.where(full, room, 0))
  count = jnp.sum(free)
  exact = _numerics.divide(total - radius, count.astype(size.dtype))
  threshold = jnp.where(count > 0, exact, t)
  inside = jnp.sum(room) <= radius
  return jnp.where(inside, room, _at_most(jnp.maximum(size - threshold, 0), room))


def _at_most(x: Array, bound: Array) -> Array:
  """Minimum; among equals `x` takes the whole derivative."""
  return jnp.where(x <= bound, x, bound)


def _least_move(
  gain: Array, room: Array, reach: Array, missing: Array, norm: Norm
) -> Array:
  """Move in [0, room] of least norm with sum gain move = missing."""
  if norm == "linf":
    return jnp.where(gain > 0, jnp.minimum(_fill(gain, reach, missing), room), 0)
  if norm == "l2":
    return jnp.minimum(_fill(gain**2, reach, missing) * gain, room)
  flat_gain, flat_room, flat_reach = map(jnp.ravel, (gain, room, reach))
  order = jnp.argsort(-flat_gain)
  steep, most = flat_gain[order], flat_reach[order]
  before = jnp.concatenate([jnp.zeros(1, gain.dtype), jnp.cumsum(most)[:-1]])
  rest = jnp.where(steep > 0, (missing - before) / jnp.where(steep > 0, steep, 1), 0)
  moved = jnp.clip(rest, 0, flat_room[order])
  return jnp.zeros_like(flat_gain).at[order].set(moved).reshape(gain.shape)
