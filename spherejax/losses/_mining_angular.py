"""Miner of triplets with a wide angle."""

import math

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from spherejax import _checks, _numerics
from spherejax.losses import _batch, _mining, _selection, _triplet_counts
from spherejax.losses._batch import Measure


def mine_angular(
  matrix: Float[ArrayLike, "queries references"],
  positives: _selection.Selection,
  negatives: _selection.Selection,
  *,
  among: Float[ArrayLike, "references references"] | None = None,
  points: Float[ArrayLike, "references dim"] | None = None,
  angle: Real[ArrayLike, ""] = 0.35,
  of: Measure = "distance",
) -> tuple[_selection.Selected, _selection.Selected]:
  """Weights each pair by the number of its triplets with a wide angle.

  The angle of a triplet is the angle at which its negative sees half the segment from
  anchor to positive, whose midpoint is c:

      keep (i, p, n):  arctan(|x_i - x_p| / (2 |x_n - c_ip|)) > angle

  Args:
    matrix: [queries, references], floating.
    positives: [queries, references], boolean; weights count as True.
    negatives: [queries, references], boolean; weights count as True.
    among: [references, references], floating: the same measure between references. For
      a batch with itself, the matrix.
    points: [references, dim], floating, in place of `among`: the references as the loss
      sees them, of norm 1 if the loss normalises. No matrix between references is
      needed then.
    angle: radians in [0, pi / 2), may be traced; about 20 degrees by default.
    of: what the matrix holds: "distance", "squared_distance" or, of unit vectors,
      "similarity". Static; a loss that mines sets it.

  Returns:
    Weights of positives and of negatives, [queries, references] each: the number of
    triplets with an angle above `angle`.

  Raises:
    TypeError: the matrix is not floating, a mask neither boolean nor floating.
    ValueError: shapes do not match, an unknown `of`, a static angle outside
      [0, pi / 2), or not exactly one of `among` and `points`.

  Not differentiated. Cost: O(queries references) for each positive of a row, with
  `points` O(queries references dim).

  Source: Wang et al. 2017, "Deep metric learning with angular loss", eq. 3.

  Example:
    >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> d = spherejax.distances.pairwise_euclidean(x, x)
    >>> same = jnp.array([[False, True, False], [True, False, False], [False] * 3])
    >>> other = jnp.array([[False, False, True]] * 2 + [[False] * 3])
    >>> spherejax.losses.mine_angular(d, same, other, among=d)[1]
    Array([[0., 0., 1.],
           [0., 0., 1.],
           [0., 0., 0.]], dtype=float32)
  """
  _checks.one_of("of", of, Measure)
  _checks.between("angle", angle, 0, math.pi / 2, high_open=True)
  block, _ = _batch.matrix(matrix, positives, negatives, None, "matrix")
  tangent = jnp.tan(_checks.scalar("angle", angle, block.values.dtype))
  squares, tangent = jax.lax.stop_gradient(
    (_mining.squared_distances(block.values, of), tangent)
  )
  number = squares.shape[1]
  if points is None and among is not None:
    between = _checks.array("among", among, "floating")
    _checks.shape("among", between, (number, number), "the references")
    between = _numerics.upcast(jax.lax.stop_gradient(between))
    between = _mining.squared_distances(between, of)

    def from_each(index: Array) -> Array:
      return between[index]
  elif points is not None and among is None:
    rows = _checks.array("points", points, "floating", rank=2)
    _checks.shape("points", rows, (number, rows.shape[1]), "the references")
    rows = _numerics.upcast(jax.lax.stop_gradient(rows))

    def from_each(index: Array) -> Array:
      return _batch.squared_euclidean(rows[index], rows)
  else:
    choice = "neither" if among is None else "both"
    raise ValueError(f"exactly one of among and points must be given, got {choice}")
  return _triplet_counts.count_wide(squares, from_each, tangent, block)
