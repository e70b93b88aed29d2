"""Nonnegative least squares, on the host."""

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from spherejax import _checks

_SLOPE = 1e-10  # slope along unit columns, relative to the target's length
_GAP = 1e-13  # change of the squared error, relative to the target's square
_STEPS = 50  # steps per unknown


def host_nonnegative_least_squares(
  matrix: Float[ArrayLike, "rows columns"], target: Float[ArrayLike, " rows"]
) -> Float[np.ndarray, " columns"]:
  """Nonnegative x with the least |matrix x - target|, on the host in float64.

  The result fulfils the conditions of a minimum: the slope along a positive entry is 0,
  and no slope is below 0. Use it to find the nearest point of a cone, of a hull, or of
  many half-spaces (Lawson and Hanson, chapter 23).

  Args:
    matrix: [rows, columns], floating, concrete.
    target: [rows], floating, concrete.

  Returns:
    [columns], float64.

  Raises:
    TypeError: matrix or target not floating.
    ValueError: shapes that do not match, no column, or an entry that is not finite.
    RuntimeError: neither method of scipy found a minimum.

  Not differentiable. Cost: about columns least-squares problems at worst.

  Source: Lawson and Hanson 1974, "Solving least squares problems", chapter 23;
  `scipy.optimize.nnls`, and `scipy.optimize.lsq_linear` where its result is no minimum
  (in scipy 1.15 to 1.17 some are not, https://github.com/scipy/scipy/issues/25389).

  Example:
    >>> import numpy as np
    >>> matrix, target = np.array([[1.0, 1.0], [0.0, 2.0]]), np.array([-1.0, 1.0])
    >>> spherejax.solvers.host_nonnegative_least_squares(matrix, target)
    array([0. , 0.2])
  """
  from scipy.optimize import lsq_linear, nnls

  rows, right = _checks.host("matrix", matrix), _checks.host("target", target)
  for name, array, rank in (("matrix", rows, 2), ("target", right, 1)):
    _checks.expect(name, array, "floating", rank=rank)
    _checks.known_finite(name, array)
  if not rows.shape[1]:
    raise ValueError(f"matrix must have a column, got shape {rows.shape}")
  _checks.shape("target", right, rows.shape[:1], "the rows of the matrix")
  # Columns of length 1, so that their slopes can be compared.
  a, b = rows.astype(np.float64), right.astype(np.float64)
  lengths = np.linalg.norm(a, axis=0)
  lengths = np.where(lengths > 0, lengths, 1)
  a = a / lengths
  steps = _STEPS * a.shape[1]
  try:
    solution = nnls(a, b, maxiter=steps)[0]
  except RuntimeError:  # the solver did not converge
    solution = np.full(a.shape[1], np.nan)
  if not _is_minimum(a, b, solution):
    bounds = (0, np.inf)
    solution = lsq_linear(a, b, bounds, "bvls", tol=1e-15, max_iter=steps).x
    solution = np.maximum(solution, 0)
    if not _is_minimum(a, b, solution):
      raise RuntimeError("no nonnegative least-squares solution was found")
  return solution / lengths


def _is_minimum(a: np.ndarray, b: np.ndarray, x: np.ndarray) -> bool:
  """True if no slope is below 0, and none above 0 where an entry exceeds rounding."""
  slopes, size = a.T @ (a @ x - b), max(np.linalg.norm(b), np.finfo(float).tiny)
  gaps = np.abs(x * slopes)
  return bool((slopes >= -_SLOPE * size).all() and (gaps <= _GAP * size**2).all())
