"""Assignments on the host by scipy, their duals, and repairs of old results."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

_BLOCK = 32  # rows; a block of 1000 columns stays in a core's cache
_ROUNDING = 8  # tolerance in units in the last place
_PIECE = 96_000  # bytes
_REPAIRED = 8  # beyond one changed row in this many, solving afresh is faster


def check_finite(costs: np.ndarray, extremes: np.ndarray | np.floating) -> None:
  """Raises ValueError that names an entry, if one of the extremes is not finite."""
  if np.isfinite(extremes).all():
    return
  row, column = map(int, np.argwhere(~np.isfinite(costs))[0])
  value = costs[row, column]
  raise ValueError(f"costs must be finite, got {value} at [{row}, {column}]")


def solve(costs: np.ndarray) -> np.ndarray:
  """Column of each row."""
  from scipy.optimize import linear_sum_assignment

  check_finite(costs, costs.max())  # scipy allows +inf, and rejects the others itself
  try:
    return linear_sum_assignment(costs)[1]
  except ValueError:
    check_finite(costs, costs.min())
    raise


def duals(costs: np.ndarray, assignment: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Duals that certify an optimal assignment.

  The column duals are shortest distances from a point at distance 0 to all columns,
  where row k leads from its column a_k to column j at length c[k, j] - c[k, a_k]. No
  cycle is negative, because no exchange lowers the cost. Only rows whose column came
  nearer are visited again.
  """
  rows, columns = costs.shape
  chosen_costs = costs[np.arange(rows), assignment].astype(np.float64)
  tolerance = _rounding(np.float64) * np.max(np.abs(chosen_costs))
  distance = np.zeros(columns)
  active = np.arange(rows)
  for _ in range(columns):
    nearest = np.zeros(columns)
    for first in range(0, len(active), _BLOCK):
      some = active[first : first + _BLOCK]
      offset = distance[assignment[some]] - chosen_costs[some]
      reached = np.min(costs[some] + offset[:, None], axis=0)
      np.minimum(nearest, reached, out=nearest)
    nearer = nearest < distance - tolerance
    if not nearer.any():
      break
    distance[nearer] = nearest[nearer]
    active = np.flatnonzero(nearer[assignment])
  return row_duals(costs, distance), distance


def row_duals(costs: np.ndarray, column_dual: np.ndarray) -> np.ndarray:
  """u_k = min_j (c_kj - v_j)."""
  least = np.empty(len(costs))
  reduced = np.empty((_BLOCK, costs.shape[1]))
  for first in range(0, len(costs), _BLOCK):
    some = costs[first : first + _BLOCK]
    part = np.subtract(some, column_dual, out=reduced[: len(some)])
    np.min(part, axis=1, out=least[first : first + _BLOCK])
  return least


def solve_from(
  costs: np.ndarray,
  assignment: np.ndarray,
  column_dual: np.ndarray,
  precision: type = np.float64,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
  """Columns, duals and the number of rows matched anew, from an earlier result.

  `precision` is the type in which the duals were stored.
  """
  rows, columns = costs.shape
  dual = np.where(np.isfinite(column_dual), column_dual, 0)
  check_finite(costs, costs.max())
  inside = (assignment >= 0) & (assignment < columns)
  chosen = np.where(inside, assignment, 0)
  unique = np.zeros(rows, bool)
  unique[np.unique(assignment, return_index=True)[1]] = True
  settled_rows = inside & unique
  chosen_costs = costs[np.arange(rows), chosen].astype(np.float64)
  tolerance = _rounding(precision) * max(
    np.max(np.abs(chosen_costs)), np.max(np.abs(dual))
  )
  cheapest = np.min(costs, axis=1)
  check_finite(costs, cheapest)
  while True:
    if rows < columns:  # a free column must be at 0
      free = np.ones(columns, bool)
      free[chosen[settled_rows]] = False
      dual = np.where(free, 0, np.minimum(dual, 0))
    least = _least(costs, cheapest, chosen_costs - dual[chosen], dual, tolerance)
    tight = settled_rows & (chosen_costs - dual[chosen] <= least + tolerance)
    settled = rows == columns or np.array_equal(tight, settled_rows)
    settled_rows = tight
    if settled:
      break
  new = int(rows - settled_rows.sum())
  if new == 0:
    return chosen, least, dual, 0
  if new * _REPAIRED > rows:
    assignment_anew = solve(costs)
    return assignment_anew, *duals(costs, assignment_anew), rows
  owner = np.full(columns, -1)
  owner[chosen[settled_rows]] = np.flatnonzero(settled_rows)
  for row in np.flatnonzero(~settled_rows):
    _augment(costs, dual, owner, int(row))
  matched = np.flatnonzero(owner >= 0)
  result = np.empty(rows, int)
  result[owner[matched]] = matched
  return result, row_duals(costs, dual), dual, new


def solve_traced(costs: Array, *start: Array) -> tuple[Array, Array, Array, Array]:
  """Solves finite costs [B, R, K] inside a program; returns all four results."""
  _, rows, columns = costs.shape
  shapes = (
    jax.ShapeDtypeStruct((rows,), jnp.int32),
    jax.ShapeDtypeStruct((rows,), costs.dtype),
    jax.ShapeDtypeStruct((columns,), costs.dtype),
    jax.ShapeDtypeStruct((), jnp.int32),
  )

  solve_here = functools.partial(_solve_pieces, columns=columns)

  def called(split: Callable[[Array], list[Array]], *operands: Array):
    pieces = tuple(map(split, operands))
    return jax.pure_callback(solve_here, shapes, pieces, vmap_method="sequential")

  def solve_problem(operands: tuple[Array, ...]) -> tuple[Array, Array, Array, Array]:
    return jax.lax.platform_dependent(
      *operands,
      cpu=functools.partial(called, _pieces),
      default=functools.partial(called, lambda x: [x.ravel()]),
    )

  return jax.lax.map(solve_problem, (costs, *start))


def _pieces(array: Array) -> list[Array]:
  """Splits an array into pieces that a CPU hands to a callback at once.

  Larger arrays are copied by a thread of the pool whose threads run the callbacks. With
  as many callbacks as threads they would deadlock.
  """
  entries, step = array.ravel(), _PIECE // array.dtype.itemsize
  return [entries[first : first + step] for first in range(0, entries.size, step)]


def _solve_pieces(
  pieces: tuple[list[Array], ...], columns: int
) -> tuple[np.ndarray, ...]:
  """Results for one matrix, in the types of the costs."""
  costs, *start = (np.concatenate([np.asarray(x) for x in parts]) for parts in pieces)
  matrix = costs.reshape(-1, columns)
  if start:
    before, dual = start
    result = solve_from(matrix, before, dual.astype(np.float64), costs.dtype.type)
  else:
    assignment = solve(matrix)
    result = assignment, *duals(matrix, assignment), len(matrix)
  types = np.int32, costs.dtype, costs.dtype, np.int32
  return tuple(np.asarray(x, dtype) for x, dtype in zip(result, types, strict=True))


def _rounding(precision: type) -> float:
  return _ROUNDING * float(np.finfo(precision).eps)


def _least(
  costs: np.ndarray,
  cheapest: np.ndarray,
  paid: np.ndarray,
  dual: np.ndarray,
  tolerance: float,
) -> np.ndarray:
  """Duals of rows, recomputed for rows that may find a lower price than they pay."""
  least = paid.copy()
  unsure = np.flatnonzero(paid > cheapest - np.max(dual) + tolerance)
  if len(unsure):
    least[unsure] = row_duals(costs[unsure], dual)
  return least


def _augment(costs: np.ndarray, dual: np.ndarray, owner: np.ndarray, root: int) -> None:
  """Gives the row a column by the shortest path; changes duals and owners."""
  columns = len(dual)
  distance = np.full(columns, np.inf)
  previous = np.full(columns, -1)
  known = np.zeros(columns, bool)
  row, column, length, slack = root, -1, 0.0, 0.0
  while True:
    x = costs[row] - dual + (length - slack)
    shorter = (x < distance) & ~known
    distance[shorter] = x[shorter]
    previous[shorter] = column
    column = int(np.argmin(np.where(known, np.inf, distance)))
    length = distance[column]
    row = int(owner[column])
    if row < 0:
      break
    known[column] = True
    slack = costs[row, column] - dual[column]
  dual[known] += distance[known] - length
  while previous[column] >= 0:
    owner[column] = owner[previous[column]]
    column = int(previous[column])
  owner[column] = root
