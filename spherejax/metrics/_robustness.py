"""Accuracy under attack: curves over budgets, and upper bounds for any classifier."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, distances
from spherejax.distances._lp import Norm

_METRICS: dict[Norm, str] = {
  "l1": "cityblock",
  "l2": "euclidean",
  "linf": "chebyshev",
}  # SciPy's names


class Separation(NamedTuple):
  """Result of `separation`."""

  nearest: Float[Array, " n"]
  """Distance to the nearest other point; inf for a single point."""
  nearest_other_class: Float[Array, " n"]
  """Distance to the nearest point of another class; inf without one."""


def accuracy_curve(
  success: Bool[ArrayLike, "budgets batch"],
  *,
  where: Bool[ArrayLike, " batch"] | None = None,
) -> Float[Array, " budgets"]:
  """Adversarial accuracy over growing budgets, from successes of attacks.

      accuracy_k = share of points that no attack of budgets 0..k has broken

  A broken point stays broken in every larger region, so the curve never rises. Attacks
  may miss points that can be broken, so each value is an upper bound of the accuracy,
  both for standard regions (SAA) and for regions bounded by Voronoi cells (VAA). VAA at
  an infinite budget is the global robustness.

  Args:
    success: [budgets, batch], boolean, by growing budget: True if an attack found a
      misclassified point of the region. The first row may have budget 0: the mistakes
      on clean points.
    where: [batch], boolean, True keeps. None keeps all.

  Returns:
    [budgets], floating; NaN when no point is kept.

  Raises:
    TypeError: success or where not boolean.
    ValueError: shapes do not match.

  Differentiable in: nothing. Cost: one read.

  Source: DIST eq. 3.6; DIST III definitions 1 to 4.

  Example:
    >>> broken = jnp.array([[False, True, False], [True, False, False]])
    >>> spherejax.metrics.accuracy_curve(broken)
    Array([0.6666667 , 0.33333334], dtype=float32)
  """
  success = _checks.array("success", success, "boolean", rank=2)
  mask = _checks.where_mask(where, success.shape[1:])
  broken = jnp.cumsum(success, axis=0, dtype=jnp.int32) > 0
  standing = jnp.sum(mask[None] & ~broken, axis=1).astype(jnp.result_type(float))
  return standing / jnp.sum(mask)


def accuracy_curve_from_distances(
  minimal: Float[ArrayLike, " batch"],
  budgets: Real[ArrayLike, " budgets"],
  *,
  where: Bool[ArrayLike, " batch"] | None = None,
) -> Float[Array, " budgets"]:
  """Adversarial accuracy over budgets, from minimal adversarial distances.

      accuracy_k = share of points with minimal > budget_k

  Args:
    minimal: [batch], floating: 0 where a clean point is classified wrongly, inf where
      nothing breaks it. Distances found by a minimal-norm attack give upper bounds of
      the accuracy, certified distances lower bounds.
    budgets: [budgets], at least 0.
    where: [batch], boolean, True keeps. May be traced.

  Returns:
    [budgets], floating; NaN if no point is kept, or a kept distance is NaN.

  Raises:
    TypeError: minimal not floating, budgets not real numbers, or where not boolean.
    ValueError: an array without exactly one axis, a known budget below 0 or NaN, or
      where of another shape.

  Differentiable in: nothing. Cost: O(batch budgets).

  Source: DIST eqs. 3.3 and 3.6.

  Example:
    >>> spherejax.metrics.accuracy_curve_from_distances(
    ...   jnp.array([0.0, 0.3, 0.5]), jnp.array([0.0, 0.4]))
    Array([0.6666667 , 0.33333334], dtype=float32)
  """
  minimal = _checks.array("minimal", minimal, "floating", rank=1)
  budgets = _checks.array("budgets", budgets, "real", rank=1)
  _checks.not_negative("budgets", budgets)
  mask = _checks.where_mask(where, minimal.shape)
  standing = jnp.sum(mask[None] & (minimal[None] > budgets[:, None]), axis=1)
  share = standing.astype(jnp.result_type(float)) / jnp.sum(mask)
  return jnp.where(jnp.any(mask & jnp.isnan(minimal)), jnp.nan, share)


def separation(
  points: Float[ArrayLike, "n dim"],
  labels: Integer[ArrayLike, " n"],
  *,
  norm: Norm = "l2",
  block_size: int = 128,
) -> Separation:
  """Distances of each point to the nearest other point, and to the nearest other class.

  For budgets below half the smallest `nearest`, Voronoi cells cut nothing off, so VAA
  equals SAA (see `accuracy_curve`). For budgets below half the smallest
  `nearest_other_class`, the nearest-neighbour classifier is robust at every point. Any
  classifier without a mistake in the balls of that radius agrees with it inside them.

  Args:
    points: [n, dim], floating, n > 0.
    labels: [n], integer.
    norm: "linf", "l2" or "l1". Static.
    block_size: static. Points at once; memory is block_size x n.

  Returns:
    Separation(nearest, nearest_other_class); NaN for a point that is not finite.

  Raises:
    TypeError: points not floating, labels not integers.
    ValueError: shapes do not match, or an unknown norm.

  Differentiable in: nothing. Cost: O(n^2 dim).

  Source: DIST III observation 1 and lemma 1.

  Example:
    >>> x = jnp.array([[0.0], [1.0], [4.0]])
    >>> spherejax.metrics.separation(x, jnp.array([0, 0, 1])).nearest_other_class
    Array([4., 3., 3.], dtype=float32)
  """
  points = _checks.array("points", points, "floating", rank=2)
  (labels,) = _checks.names(("labels", labels))
  _checks.labels(labels, points)
  itself = jnp.arange(len(points))
  nearest = distances.k_nearest(
    points, points, k=1, norm=norm, exclude=itself, block_size=block_size
  )
  other = distances.k_nearest(
    points, points, k=1, norm=norm, apart=(labels, labels), block_size=block_size
  )
  known = jnp.all(jnp.isfinite(points), axis=1)
  return Separation(
    *(
      jnp.where(known, neighbours.distances[:, 0], jnp.nan)
      for neighbours in (nearest, other)
    )
  )


def best_accuracy(
  points: Float[ArrayLike, "n dim"],
  labels: Integer[ArrayLike, " n"],
  budgets: Real[ArrayLike, " budgets"],
  *,
  norm: Norm = "l2",
  block_size: int = 512,
) -> Float[np.ndarray, " budgets"]:
  """Largest standard adversarial accuracy that a classifier of two classes can have.

      1 - (maximum matching of {(i, j): y_i != y_j, ||x_i - x_j|| <= 2 budget}) / n

  If the closed balls of two points of different classes meet, only one of the points
  can be robust. By König's theorem, as many points must be given up as pairs can be
  matched. The nearest-neighbour classifier, which is globally robust, may stay below
  this accuracy.

  Args:
    points: [n, dim], concrete, in a convex domain.
    labels: [n], integers of at most two values, concrete.
    budgets: [budgets], at least 0, concrete.
    norm: "linf", "l2" or "l1".
    block_size: rows of distances at once.

  Returns:
    [budgets], float64.

  Raises:
    TypeError: points or budgets not numbers, labels not integers, block_size not an
      integer.
    ValueError: more than two classes, shapes that do not match, a point that is not
      finite, a budget below 0, or an unknown norm.

  Differentiable in: nothing (runs on the host, in float64). Cost: O(n^2 dim), and a
  matching for each budget.

  Source: DIST III 1.3 (balls of different classes that overlap); König 1931; Hopcroft
  and Karp 1973.

  Example:
    >>> x = np.array([[0.0], [1.0], [1.5]], np.float32)
    >>> spherejax.metrics.best_accuracy(x, np.array([0, 1, 0]), np.array([0.2, 0.3]))
    array([1. , 0.66666667])
  """
  from scipy import sparse
  from scipy.sparse.csgraph import maximum_bipartite_matching
  from scipy.spatial.distance import cdist

  x, y = _checks.numbers_of("points", points), _checks.host("labels", labels)
  budgets = _checks.numbers_of("budgets", budgets)
  _checks.expect("points", x, rank=2)
  _checks.known_finite("points", x)
  _checks.labels(y, x)
  _checks.expect("budgets", budgets, rank=1)
  _checks.not_negative("budgets", budgets)
  _checks.one_of("norm", norm, Norm)
  _checks.count("block_size", block_size)
  classes = np.unique(y)
  if len(classes) > 2:
    raise ValueError(f"labels must be of at most two classes, got {len(classes)}")
  if len(classes) < 2 or not budgets.size:
    return np.ones(budgets.shape)
  first, second = (x[y == c] for c in classes)
  rows, columns, lengths = [], [], []
  for start in range(0, len(first), block_size):
    block = cdist(first[start : start + block_size], second, _METRICS[norm])  # pyright: ignore[reportArgumentType, reportCallIssue]
    row, column = np.nonzero(block <= 2 * budgets.max())
    rows.append(row + start)
    columns.append(column)
    lengths.append(block[row, column])
  row, column, length = map(np.concatenate, (rows, columns, lengths))
  best = []
  for budget in budgets:
    near = length <= 2 * budget
    edges = sparse.csr_matrix(
      (np.ones(near.sum(), bool), (row[near], column[near])), (len(first), len(second))
    )
    matched = maximum_bipartite_matching(edges, "column")
    best.append(1 - np.sum(matched >= 0) / len(x))
  return np.array(best)
