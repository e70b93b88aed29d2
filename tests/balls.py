"""Balls of three norms in a box, for tests: projections and least moves by other means.

Projections are by halvings of a multiplier, least moves by linear programs.
"""

import numpy as np
from scipy.optimize import linprog

ORDER = {"linf": np.inf, "l2": 2, "l1": 1}
NORMS = tuple(ORDER)
DUAL = {"linf": 1, "l2": 2, "l1": np.inf}


def sizes(moves, norm):
  """Norm of each row, in float64."""
  rows = np.asarray(moves, np.float64).reshape(len(moves), -1)
  return np.linalg.norm(rows, ORDER[norm], axis=1)


def lengths(rows, norm):
  """Norms along the last axis, in float64."""
  return np.linalg.norm(np.float64(rows), ORDER[norm], axis=-1)


def margins(scores, labels):
  """Each row's largest score of another class minus the score of its label."""
  of_label = np.arange(scores.shape[-1]) == labels[:, None]
  return np.where(of_label, -np.inf, scores).max(-1) - scores[..., of_label]


def projected(point, center, epsilon, norm, low, high):
  """100 halvings of each row's multiplier of the ball; the box is closed form."""
  delta = point - center
  size, epsilon = np.abs(delta), np.broadcast_to(epsilon, len(delta))
  room = np.where(delta > 0, high - center, np.where(delta < 0, center - low, 0))

  def move(t):
    t = t[:, None]
    if norm == "linf":
      return np.minimum(np.minimum(size, t), room)
    shrunk = size / (1 + t) if norm == "l2" else np.maximum(size - t, 0)
    return np.minimum(shrunk, room)

  if norm == "linf":
    return center + np.sign(delta) * move(epsilon)
  least, most = np.zeros(len(delta)), np.full(len(delta), 1e6)
  for _ in range(100):  # of 1e6 to 1e-24
    middle = (least + most) / 2
    outside = sizes(move(middle), norm) > epsilon
    least, most = np.where(outside, middle, least), np.where(outside, most, middle)
  return center + np.sign(delta) * move(np.where(least > 0, most, 0))


def least_move(point, normal, offset, norm, low, high):
  """Size of the least move within the box to <normal, z> + offset = 0; inf if none.

  A linear program, or the quadratic one by its dual.
  """
  point, normal = point.astype(np.float64), normal.astype(np.float64)
  room = np.where(normal > 0, high - point, np.where(normal < 0, point - low, 0))
  missing, size = -(normal @ point + offset), len(point)
  if missing <= 0:
    return 0.0
  if np.abs(normal) @ room < missing:
    return np.inf
  if norm == "l2":
    less, more = 0.0, 1e9
    for _ in range(100):
      middle = (less + more) / 2
      enough = np.abs(normal) @ np.minimum(middle * np.abs(normal), room) >= missing
      less, more = (less, middle) if enough else (middle, more)
    return np.linalg.norm(np.minimum(more * np.abs(normal), room))
  # Moves up and moves down, and for linf the largest of them.
  uphill, zeros = np.append(-normal, normal), np.zeros(2 * size)
  bounds = [(0, room) for room in (*(high - point), *(point - low))]
  if norm == "l1":
    return linprog(zeros + 1, [uphill], [-missing], bounds=bounds).fun
  rows = np.block([[uphill, 0], [np.eye(2 * size), -np.ones((2 * size, 1))]])
  below = np.append(-missing, zeros)
  return linprog(np.append(zeros, 1), rows, below, bounds=[*bounds, (0, None)]).fun
