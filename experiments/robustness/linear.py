"""A linear classifier by regression, and the least moves that change its answer."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.frame.digits import CLASSES, Points


def ridge(x, labels, penalty: float = 1.0) -> tuple[Array, Array]:
  """Weights [dim, classes] and offsets of a regression on the classes' indicators."""
  rows = np.c_[np.asarray(x, np.float64), np.ones(len(x))]
  targets = np.eye(CLASSES)[np.asarray(labels)]
  gram = rows.T @ rows + penalty * np.eye(rows.shape[1])
  solved = np.linalg.solve(gram, rows.T @ targets)
  return jnp.asarray(solved[:-1], jnp.float32), jnp.asarray(solved[-1], jnp.float32)


def scores(weights: Array, offset: Array) -> Callable[[Array], Array]:
  """Of images to scores, to be attacked."""
  return lambda x: x @ weights + offset[None]


def least_linear_moves(weights, offset, x, labels, norm: str) -> np.ndarray:
  """min_k (z_y - z_k) / ||w_y - w_k|| in the dual norm; 0 of a mistake (no box)."""
  w, x = np.asarray(weights, np.float64), np.asarray(x, np.float64)
  y = np.asarray(labels)
  z = x @ w + np.asarray(offset, np.float64)
  order = {"l2": 2, "linf": 1, "l1": np.inf}[norm]
  slopes = np.linalg.norm(w.T[:, None] - w.T[None], ord=order, axis=2)[y]
  gaps = z[np.arange(len(y)), y][:, None] - z
  with np.errstate(invalid="ignore", divide="ignore"):
    moves = np.where(slopes > 0, gaps / slopes, np.inf)
  return np.maximum(moves.min(1), 0)


def accuracy(weights, offset, points: Points) -> float:
  """Share of the points that the linear classifier has right."""
  z = np.asarray(points.x) @ np.asarray(weights) + np.asarray(offset)
  return float(np.mean(z.argmax(1) == np.asarray(points.y)))
