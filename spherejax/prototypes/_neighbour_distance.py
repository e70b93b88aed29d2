"""Exact minimal adversarial distances of the nearest-neighbour classifier."""

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Integer

from spherejax import _checks, solvers
from spherejax.distances._lp import Norm
from spherejax.prototypes import _classifiers

_SLACK = 1e-20  # squared residual below which no point meets all constraints


def nearest_neighbour_distance(
  points: Float[ArrayLike, "batch dim"],
  point_labels: Integer[ArrayLike, " batch"],
  sites: Float[ArrayLike, "sites dim"],
  labels: Integer[ArrayLike, " sites"],
  *,
  norm: Norm = "l2",
  low: float | int = -np.inf,
  high: float | int = np.inf,
) -> Float[np.ndarray, " batch"]:
  """Exact least perturbation that changes the class of the nearest site.

      min_s min_d ||d||_p   with  |x + d - s|_2 <= |x + d - r|_2  for all r of the class

  over the sites s of other classes, with r the sites of the point's class: a linear
  programme for l1 and l-infinity, a quadratic programme for l2. The cells are l2 cells
  for any norm of d. Sites are tried by increasing lower bound, until the bound exceeds
  the distance found.

  Args:
    points: [batch, dim], floating, in the box, concrete.
    point_labels: [batch], integer, the right classes.
    sites: [sites, dim], floating, concrete.
    labels: [sites], integer.
    norm: of the perturbation: "linf", "l2" or "l1".
    low: least value of an entry of x + d.
    high: largest value.

  Returns:
    [batch], float64: 0 where the nearest site is of another class, inf where no class
    can be reached.

  Raises:
    TypeError: points or sites not floating, labels not integers.
    ValueError: shapes do not match, a point or site is not finite, or an unknown norm.
    RuntimeError: a linear programme is neither solved nor infeasible.

  Differentiable in: nothing (runs on the host, in float64). Cost: several programmes
  per point, with as many constraints as sites of the class; meant for sets of hundreds.

  Source: DIST 5.2 names the classifier; the programmes as in Wang et al. 2019,
  "Evaluating the robustness of nearest neighbor classifiers: a primal-dual
  perspective"; for l2 by Lawson and Hanson 1974, "Solving least squares problems",
  chapter 23.

  Example:
    >>> spherejax.prototypes.nearest_neighbour_distance(
    ...   np.array([[0.5]]), np.array([0]), np.array([[0.0], [3.0]]), np.array([0, 1]))
    array([1.])
  """
  _checks.limits(low, high)
  for name, side in (("low", low), ("high", high)):
    _checks.expect(name, np.asarray(side), rank=0)
  x, names = _checks.host("points", points), _checks.host("point_labels", point_labels)
  s, y = _checks.host("sites", sites), _checks.host("labels", labels)
  _classifiers.check_points(x, s)
  _checks.known_finite("points", x)
  _checks.known_finite("sites", s)
  _checks.labels(names, x, "point_labels")
  _checks.labels(y, s)
  _checks.one_of("norm", norm, Norm)
  x, s = x.astype(np.float64), s.astype(np.float64)
  return np.array(
    [
      _least(p, s[y == c], s[y != c], norm, low, high)
      for p, c in zip(x, names, strict=True)
    ]
  )


def _least(
  x: np.ndarray,
  same_class: np.ndarray,
  others: np.ndarray,
  norm: Norm,
  low: float | int,
  high: float | int,
) -> float:
  if not len(others):
    return np.inf
  if not len(same_class):
    return 0.0
  squares = ((others - x) ** 2).sum(1), ((same_class - x) ** 2).sum(1)
  if squares[0].min() < squares[1].min():
    return 0.0
  dual = {"l1": np.inf, "l2": 2, "linf": 1}[norm]
  best = np.inf
  # The nearest own site comes first: its bound is nearly always the tightest.
  gap = squares[0] - squares[1].min()
  normals = 2 * (same_class[np.argmin(squares[1])] - others)
  bounds = gap / np.maximum(np.linalg.norm(normals, dual, axis=1), 1e-300)
  for j in np.argsort(bounds):
    if bounds[j] >= best:
      break
    # 2 <r - s, d> <= |x - r|^2 - |x - s|^2 for each own site r.
    matrix = 2 * (same_class - others[j])
    limit = squares[1] - squares[0][j]
    best = min(best, _programme(matrix, limit, low - x, high - x, norm))
  return float(best)


def _programme(
  matrix: np.ndarray, limit: np.ndarray, low: np.ndarray, high: np.ndarray, norm: Norm
) -> float:
  """Least norm of d with matrix d <= limit and low <= d <= high."""
  from scipy.optimize import linprog

  n = len(low)
  eye = np.eye(n)
  # The solvers' tolerances are absolute: unit normals, and offsets of at most 1.
  size = np.maximum(np.linalg.norm(matrix, axis=1), 1e-300)
  matrix, limit = matrix / size[:, None], limit / size
  scale = np.abs(limit).max() or 1.0
  limit, low, high = limit / scale, low / scale, high / scale
  if norm != "l2":
    columns = 1 if norm == "linf" else n
    sizes = np.ones((n, 1)) if norm == "linf" else eye
    rows = [[matrix, np.zeros((len(matrix), columns))], [eye, -sizes], [-eye, -sizes]]
    cost = np.concatenate([np.zeros(n), np.ones(columns)])
    right = np.concatenate([limit, np.zeros(2 * n)])
    bounds = [*zip(low, high, strict=True), *[(0, None)] * columns]
    solution = linprog(cost, np.block(rows), right, bounds=bounds)
    if solution.status == 2:  # no point is in all half-spaces and the box
      return np.inf
    if solution.status != 0:
      raise RuntimeError(
        f"linprog ended with status {solution.status}: {solution.message}"
      )
    return float(scale * solution.fun)
  upper, lower = np.isfinite(high), np.isfinite(low)
  a = np.concatenate([-matrix, -eye[upper], eye[lower]])
  b = np.concatenate([-limit, -high[upper], low[lower]])
  # a d >= b with the least |d|, from the residual of a nonnegative least squares fit.
  stacked = np.concatenate([a.T, b[None]])
  target = np.append(np.zeros(n), 1.0)
  weights = solvers.host_nonnegative_least_squares(stacked, target)
  residual = stacked @ weights - target
  if residual @ residual < _SLACK:
    return np.inf
  return float(scale * np.linalg.norm(residual[:-1] / residual[-1]))
