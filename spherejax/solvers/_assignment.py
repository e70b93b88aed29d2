"""Linear assignment problem: rows to columns, one to one, at least cost."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Int, Integer

from spherejax import _checks, _numerics
from spherejax.solvers import _assignment_host, _assignment_paths


class Assignment(NamedTuple):
  """Optimal assignment, and the duals that certify it.

  Every cost is at least the sum of its two duals, with equality on the chosen entries,
  and the dual of a column without a row is 0: so the duals add up to the cost, and no
  assignment costs less.
  """

  assignment: Int[Array, "*batch rows"] | Int[np.ndarray, " rows"]
  """Column of each row, all different; int32."""
  cost: Float[Array, "*batch"] | Float[np.ndarray, ""]
  """Sum of the chosen entries."""
  row_dual: Float[Array, "*batch rows"] | Float[np.ndarray, " rows"] | None
  """u; None where the host was not asked for duals."""
  column_dual: Float[Array, "*batch columns"] | Float[np.ndarray, " columns"] | None
  """v, at most 0 where there are more columns than rows."""
  augmentations: Int[Array, "*batch"] | Int[np.ndarray, ""]
  """Number of rows that were matched anew; all rows without a start."""


_solve = _assignment_paths.batched(_assignment_paths.solve)
_solve_from = _assignment_paths.batched(_assignment_paths.solve_from)


def linear_assignment(
  costs: Float[ArrayLike, "*batch rows columns"],
  *,
  start: tuple[Integer[ArrayLike, "*batch rows"], Float[ArrayLike, "*batch columns"]]
  | None = None,
  host: bool = False,
) -> Assignment:
  """Assigns rows to different columns at the smallest total cost, under jit and vmap.

      min_a  sum_k c[k, a_k]                        a_k all different
      max    sum_k u_k + sum_j v_j,  u_k + v_j <= c_kj,  v_j = 0 for free columns

  Shortest augmenting paths solve the problem exactly, to the rounding of the costs'
  type. Under vmap and for leading axes all problems advance together. Outside jit,
  `host_linear_assignment` is exact to float64.

  Args:
    costs: [..., rows, columns], floating, columns >= rows >= 1.
    start: assignment [..., rows], integer, and column duals [..., columns] of an
      earlier result for similar costs. Pairs that are still tight under those duals
      are kept, and only the other rows are matched anew; the result is as exact as
      without a start.
    host: static; True leaves the device and solves one problem after another by scipy,
      in float64. On a GPU or TPU this avoids starting kernels for each of a search's
      many small steps.

  Returns:
    Assignment. With ties the result is reproducible; equal costs give the identity.
    Where costs are not finite, or so large that their sum is not, the assignment is the
    identity, the cost NaN and the duals are 0.

  Raises:
    TypeError: costs or duals not floating, assignment not integer, host not boolean.
    ValueError: more rows than columns, no row, or shapes that do not match.

  Differentiable in: costs, for `cost` alone (the assignment is held constant).
  Cost: O(rows^2 columns) time at worst.

  Source: DL2P eq. 9; Jonker, Volgenant 1987, "A shortest augmenting path algorithm for
  dense and sparse linear assignment problems".

  Example:
    >>> costs = jnp.array([[1.0, 2.0], [1.0, 4.0]])
    >>> result = spherejax.solvers.linear_assignment(costs)
    >>> result.assignment, result.cost
    (Array([1, 0], dtype=int32), Array(3., dtype=float32))
  """
  _checks.flag("host", host)
  costs = _checks.array("costs", costs, "floating")
  _check_sizes(costs.shape)
  *batch, rows, columns = costs.shape
  values = _numerics.upcast(jax.lax.stop_gradient(costs))
  finite = jnp.isfinite(8 * jnp.sum(jnp.abs(values), axis=(-2, -1)))
  values = jnp.where(finite[..., None, None], values, 0).reshape(-1, rows, columns)
  if start is None:
    earlier = ()
  else:
    before, dual = _checks.pair("start", start)
    before = _checks.integers("the start's assignment", before)
    dual = jnp.asarray(dual)
    _check_start(before, dual, costs.shape)
    dual = dual.astype(values.dtype)
    dual = jnp.where(jnp.isfinite(dual) & finite[..., None], dual, 0)
    before = jnp.where(finite[..., None], before, -1)
    earlier = before.reshape(-1, rows), dual.reshape(-1, columns)
  if host:
    solution = _assignment_host.solve_traced(values, *earlier)
  elif earlier:
    solution = _solve_from(values, *earlier)
  else:
    solution = (*_solve(values), jnp.full(len(values), rows, jnp.int32))
  assignment, row_dual, column_dual, augmentations = (
    x.reshape(*batch, *x.shape[1:]) for x in solution
  )
  chosen = jnp.take_along_axis(costs, assignment[..., None], axis=-1)
  cost = jnp.sum(_numerics.upcast(chosen), axis=(-2, -1))
  return Assignment(
    assignment,
    jnp.where(finite, cost, jnp.nan).astype(costs.dtype),
    row_dual.astype(costs.dtype),
    column_dual.astype(costs.dtype),
    augmentations,
  )


def host_linear_assignment(
  costs: Float[ArrayLike, "rows columns"],
  *,
  start: tuple[Integer[ArrayLike, " rows"], Float[ArrayLike, " columns"]] | None = None,
  duals: bool = False,
) -> Assignment:
  """Assigns rows to different columns at the smallest total cost, on the host.

  Solves the problem of `linear_assignment` in float64 by scipy, for one large matrix
  outside jit.

  Args:
    costs: [rows, columns], floating, columns >= rows >= 1.
    start: assignment [rows] and column duals [columns] of an earlier result for similar
      costs. Pairs that are still tight are kept, and the other rows are matched anew;
      if more than one row in 8 changed, all rows are. With a start, the result has
      duals.
    duals: True computes the duals even without a start, which doubles the time.

  Returns:
    Assignment of NumPy arrays; costs and duals are float64.

  Raises:
    TypeError: costs or duals not floating, assignment not integer, duals not boolean.
    ValueError: an entry that is not finite, more rows than columns, no row, or shapes
      that do not match.

  Not differentiable. Cost: O(rows^2 columns) time at worst.

  Source: DL2P eq. 9; `scipy.optimize.linear_sum_assignment`.

  Example:
    >>> import numpy as np
    >>> costs = np.array([[1.0, 2.0], [1.0, 4.0]])
    >>> solve = spherejax.solvers.host_linear_assignment
    >>> result = solve(costs, duals=True)
    >>> result.assignment, result.row_dual, result.column_dual
    (array([1, 0], dtype=int32), array([2., 2.]), array([-1., 0.]))
    >>> solve(costs + 0.1, start=(result.assignment, result.column_dual)).augmentations
    array(0, dtype=int32)
  """
  _checks.flag("duals", duals)
  matrix = _checks.host("costs", costs)
  _checks.expect("costs", matrix, "floating", rank=2)
  _check_sizes(matrix.shape)
  rows = len(matrix)
  if start is None:
    assignment = _assignment_host.solve(matrix)
    row_dual, column_dual, augmentations = None, None, rows
    if duals:
      row_dual, column_dual = _assignment_host.duals(matrix, assignment)
  else:
    before, dual = map(np.asarray, _checks.pair("start", start))
    _check_start(before, dual, matrix.shape)
    assignment, row_dual, column_dual, augmentations = _assignment_host.solve_from(
      matrix, before, dual.astype(np.float64)
    )
  chosen = matrix[np.arange(rows), assignment]
  return Assignment(
    assignment.astype(np.int32),
    np.asarray(chosen.sum(dtype=np.float64)),
    row_dual,
    column_dual,
    np.asarray(augmentations, np.int32),
  )


def _check_sizes(shape: tuple[int, ...]) -> None:
  if len(shape) < 2 or not 1 <= shape[-2] <= shape[-1]:
    raise ValueError(
      f"costs must be [..., rows, columns] with 1 <= rows <= columns, got {shape}"
    )


def _check_start(
  assignment: Array | np.ndarray, dual: Array | np.ndarray, shape: tuple[int, ...]
) -> None:
  """Raises unless a start has the types and shapes for costs of this shape."""
  *batch, rows, columns = shape
  _checks.expect("the start's assignment", assignment, "integer")
  _checks.expect("the start's column duals", dual, "floating")
  _checks.shape("the start's assignment", assignment, (*batch, rows), "the costs")
  _checks.shape("the start's column duals", dual, (*batch, columns), "the costs")
