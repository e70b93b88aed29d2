"""Convex hulls of point sets: whether two of them meet, and how far they are apart."""

import itertools
from collections.abc import Sequence

import numpy as np
import scipy.optimize

from spherejax import solvers


def hulls_intersect(a: np.ndarray, b: np.ndarray) -> bool:
  """Decides if the convex hulls of `a` [p, dim] and `b` [q, dim] intersect.

  They do when weights of both sum to 1 and give the same point,

      sum_i u_i a_i = sum_j v_j b_j,   sum u = sum v = 1,   u, v >= 0

  which a linear program finds or refutes. A common point at the boundary counts; the
  hull of no point is empty and meets nothing.
  """
  if not len(a) or not len(b):
    return False
  first, second, _ = _normalized(a, b)
  # One box apart from the other: nothing to solve.
  if (first.min(0) > second.max(0)).any() or (second.min(0) > first.max(0)).any():
    return False
  sums = np.zeros((2, len(a) + len(b)))
  sums[0, : len(a)] = sums[1, len(a) :] = 1
  solution = scipy.optimize.linprog(
    np.zeros(len(a) + len(b)),
    A_eq=np.concatenate([np.concatenate([first, -second]).T, sums]),
    b_eq=np.concatenate([np.zeros(first.shape[1]), np.ones(2)]),
    method="highs",
  )
  if solution.status not in (0, 2):  # neither solved nor infeasible
    raise RuntimeError(f"the linear program failed: {solution.message}")
  return solution.status == 0


def hull_distance(a: np.ndarray, b: np.ndarray) -> float:
  """Euclidean distance between the convex hulls of `a` [p, dim] and `b` [q, dim].

  That of the origin from the hull of all differences d_ij = a_i - b_j. Nonnegative
  least squares finds its nearest point: the solution of

      min_{w >= 0} |sum_ij w_ij d_ij|^2 + (sum_ij w_ij - 1)^2

  is a multiple of the weights of that point (Lawson and Hanson 1974, chapter 23).
  """
  if not len(a) or not len(b):
    raise ValueError("the hull of no point has no distance")
  first, second, scale = _normalized(a, b)
  differences = (first[:, None] - second[None]).reshape(-1, first.shape[1])
  equations = np.concatenate([differences.T, np.ones((1, len(differences)))])
  right = np.append(np.zeros(first.shape[1]), 1)
  weights = solvers.host_nonnegative_least_squares(equations, right)
  return scale * float(np.linalg.norm(weights @ differences) / weights.sum())


def _normalized(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
  """Centres and rescales both sets to size 1, since tolerances are absolute."""
  a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
  if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
    raise ValueError(f"a and b must be [points, dim], got {a.shape} and {b.shape}")
  points = np.concatenate([a, b])
  if not np.isfinite(points).all():
    raise ValueError("a and b must be finite")
  centre = points.mean(axis=0)
  scale = float(np.abs(points - centre).max()) or 1.0
  return (a - centre) / scale, (b - centre) / scale, scale


def intersecting_pairs(sets: Sequence[np.ndarray]) -> int:
  """Number of pairs of point sets whose hulls intersect."""
  return sum(hulls_intersect(a, b) for a, b in itertools.combinations(sets, 2))
