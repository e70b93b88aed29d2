"""Convex hulls of point sets: whether two of them meet, and how far apart they are."""

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Real

from spherejax import _checks, solvers


def hulls_intersect(a: Real[ArrayLike, "p dim"], b: Real[ArrayLike, "q dim"]) -> bool:
  """Decides if the convex hulls of two point sets have a point in common.

  They do when weights that sum to 1 in each set give the same point,

      sum_i u_i a_i = sum_j v_j b_j,   sum u = sum v = 1,   u, v >= 0

  which a linear program finds or refutes. A common point at the boundary counts; the
  hull of no point is empty and meets nothing. Use it to see if hyperplanes can separate
  classes.

  Args:
    a: [p, dim], concrete.
    b: [q, dim], concrete.

  Returns:
    True where the hulls meet.

  Raises:
    TypeError: a or b not numbers.
    ValueError: shapes that do not match, or a point that is not finite.
    RuntimeError: the linear program failed.

  Differentiable in: nothing (runs on the host, in float64). Cost: a linear program of
  p + q unknowns and dim + 2 equations.

  Source: DML 5.3.1 (hulls of the tokens of a class).

  Example:
    >>> square = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> hulls_intersect = spherejax.metrics.hulls_intersect
    >>> hulls_intersect(square, square + 0.5), hulls_intersect(square, square + 2)
    (True, False)
  """
  import scipy.optimize

  first, second, _ = _normalized(a, b)
  if not len(first) or not len(second):
    return False
  # Disjoint bounding boxes: nothing to solve.
  if (first.min(0) > second.max(0)).any() or (second.min(0) > first.max(0)).any():
    return False
  sums = np.zeros((2, len(first) + len(second)))
  sums[0, : len(first)] = sums[1, len(first) :] = 1
  solution = scipy.optimize.linprog(
    np.zeros(sums.shape[1]),
    A_eq=np.concatenate([np.concatenate([first, -second]).T, sums]),
    b_eq=np.concatenate([np.zeros(first.shape[1]), np.ones(2)]),
    method="highs",
  )
  if solution.status not in (0, 2):  # neither solved nor infeasible
    raise RuntimeError(f"the linear program failed: {solution.message}")
  return solution.status == 0


def hull_distance(a: Real[ArrayLike, "p dim"], b: Real[ArrayLike, "q dim"]) -> float:
  """Euclidean distance between the convex hulls of two point sets.

  This is the distance of the origin from the hull of all differences d_ij = a_i - b_j.
  Nonnegative least squares finds the nearest point of that hull: the solution of

      min_{w >= 0} |sum_ij w_ij d_ij|^2 + (sum_ij w_ij - 1)^2

  is a multiple of the weights of that point.

  Args:
    a: [p, dim], concrete, not empty.
    b: [q, dim], concrete, not empty.

  Returns:
    The distance, 0 where the hulls meet.

  Raises:
    TypeError: a or b not numbers.
    ValueError: shapes that do not match, no row, or a point that is not finite.
    RuntimeError: no minimum was found.

  Differentiable in: nothing (runs on the host, in float64). Cost: least squares of p q
  unknowns and dim + 1 equations.

  Source: Lawson and Hanson 1974, "Solving least squares problems", chapter 23.

  Example:
    >>> square = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> round(spherejax.metrics.hull_distance(square, square + [3.0, 0.0]), 6)
    2.0
  """
  first, second, scale = _normalized(a, b)
  for name, points in (("a", first), ("b", second)):
    _checks.expect(name, points, empty=False)
  differences = (first[:, None] - second[None]).reshape(-1, first.shape[1])
  equations = np.concatenate([differences.T, np.ones((1, len(differences)))])
  right = np.append(np.zeros(first.shape[1]), 1)
  weights = solvers.host_nonnegative_least_squares(equations, right)
  return scale * float(np.linalg.norm(weights @ differences) / weights.sum())


def _normalized(a: ArrayLike, b: ArrayLike) -> tuple[np.ndarray, np.ndarray, float]:
  """Centres and rescales both sets to size 1, since tolerances are absolute."""
  first, second = (
    _checks.numbers_of(name, points) for name, points in (("a", a), ("b", b))
  )
  for name, points in (("a", first), ("b", second)):
    _checks.expect(name, points, rank=2)
    _checks.known_finite(name, points)
  _checks.shape("b", second, (len(second), first.shape[1]), "the dimension of a")
  points = np.concatenate([first, second])
  if not len(points):
    return first, second, 1.0
  centre = points.mean(axis=0)
  scale = float(np.abs(points - centre).max()) or 1.0
  return (first - centre) / scale, (second - centre) / scale, scale
