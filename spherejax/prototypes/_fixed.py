"""Fixed prototypes, chosen once from given points."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int

from spherejax import _checks, _numerics


class KCentre(NamedTuple):
  """Result of `greedy_k_centre`."""

  indices: Int[Array, " k"]
  """Rows of the points that are centres, in the order of their choice."""
  radii: Float[Array, " k"]
  """Covering radius after each choice: largest distance to the nearest centre."""


def greedy_k_centre(
  points: Float[ArrayLike, "n dim"],
  k: int,
  *,
  initial: Float[ArrayLike, "m dim"] | None = None,
  first: int = 0,
  where: Bool[ArrayLike, " n"] | None = None,
) -> KCentre:
  """Greedy k-centre: chooses the point farthest from all previous centres as the next.

      i_t = argmax_i min_{s < t} |x_i - x_{i_s}|

  The covering radius is at most twice the least that k of the points can reach.

  Args:
    points: [n, dim], floating. Their rows may be split over devices by a
      `jax.NamedSharding` of a mesh with automatic axes; each device keeps its own rows.
    k: static, at least 1 and at most n. Number of centres.
    initial: [m, dim], floating. Existing centres, which are not returned; None starts
      with the point `first`.
    first: static. Row of the first centre; ignored when `initial` is given.
    where: [n], boolean, True keeps. None keeps all. Masked points are neither chosen
      nor covered, and may be NaN.

  Returns:
    KCentre: indices [k], int32, without repetition (ties to the lowest index), and
    radii [k], non-increasing. Where fewer than k points are kept, the rest of the
    indices are masked points and the rest of the radii 0.

  Raises:
    TypeError: points or initial not floating, where not boolean, k not an integer.
    ValueError: shapes do not match, k above n, first not a row.

  Not differentiable; `covering_radius` is. Cost: O(n k dim) time, O(n) memory beyond
  the points.

  Source: DML algorithm 2; Gonzalez 1985, "Clustering to minimize the maximum
  intercluster distance".

  Example:
    >>> points = jnp.array([[0.0], [1.0], [5.0], [6.0]])
    >>> spherejax.prototypes.greedy_k_centre(points, 2)
    KCentre(indices=Array([0, 3], dtype=int32), radii=Array([6., 1.], dtype=float32))
  """
  points = _checks.array("points", points, "floating", rank=2)
  number = len(points)
  _checks.count("k", k)
  if k > number:
    raise ValueError(f"k must be at most the {number} points, got {k}")
  _checks.count("first", first, 0)
  if first >= number:
    raise ValueError(f"first must be a row of the {number} points, got {first}")
  mask = _checks.where_mask(where, (number,))
  rows = jax.lax.stop_gradient(_numerics.upcast(points))
  rows = jnp.where(mask[:, None], rows, 0)
  centres = rows[:0]
  if initial is not None:
    initial = _checks.array("initial", initial, "floating")
    _checks.shape("initial", initial, (len(initial), rows.shape[1]), "the points")
    centres = jax.lax.stop_gradient(_numerics.upcast(initial)).astype(rows.dtype)
  power = _numerics.shrinking(rows, centres, grow=True)
  rows, centres = rows * power, centres * power

  def to_centre(centre: Array) -> Array:
    # Computed by differences, so that a centre is at distance 0 from its duplicates.
    return jnp.sum((rows - centre[None]) ** 2, axis=1)

  if initial is None:
    nearest = jnp.full(number, jnp.inf, rows.dtype)
    start = jnp.where(mask[first], first, jnp.argmax(mask))
  else:
    nearest = jax.lax.fori_loop(
      0,
      len(centres),
      lambda i, least: jnp.minimum(least, to_centre(centres[i])),
      _numerics.varying(jnp.full(number, jnp.inf, rows.dtype), rows, centres),
    )
    start = jnp.argmax(jnp.where(mask, nearest, -1))

  def choose(carry, _):
    nearest, free, index = carry
    # A gather: a slice of split points would bring all of them to every device.
    nearest = jnp.minimum(nearest, to_centre(rows[index[None]][0]))
    free &= jnp.arange(number) != index
    radius = jnp.sqrt(jnp.max(jnp.where(mask, nearest, 0)))
    # -1 for masked points and -2 for centres, so that no point is chosen twice.
    rank = jnp.where(free, jnp.where(mask, nearest, -1), -2)
    following = jnp.argmax(rank).astype(jnp.int32)
    return (nearest, free, following), (index, radius)

  carry = (nearest, jnp.ones(number, bool), start.astype(jnp.int32))
  carry = _numerics.varying(carry, rows, mask)
  _, (indices, radii) = jax.lax.scan(choose, carry, length=k)
  return KCentre(indices.astype(jnp.int32), (radii / power).astype(points.dtype))
