"""Shortest augmenting paths for a batch of assignment problems.

Every problem advances by itself: a step visits one more row of each, or turns one more
edge of a complete path. So no problem waits for the longest path of a round. The batch
is the last axis, where it fills vector registers.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from spherejax import _numerics

_GREEDY_PASSES = 2


class _Search(NamedTuple):
  """State of all searches, [K, B] and [B]."""

  dual: Array
  """v of the columns."""
  owner: Array
  """Row matched to each column, R for a free one."""
  distance: Array
  """From the row searched for to open columns; -inf where the path is known."""
  previous: Array
  """Column before each one on its path, K at the start."""
  root: Array
  """Row searched for, R when there is none left."""
  done: Array
  """Number of rows searched for so far."""
  row: Array
  """Row to look at, which is matched to `column`; the root at the start."""
  column: Array
  """Also the edge to turn."""
  slack: Array
  """u of the row."""
  shift: Array
  """Amount that known columns still have to lose."""
  turning: Array
  """True while a complete path is being turned."""
  fresh: Array
  """True where a search begins."""


def solve(costs: Array) -> tuple[Array, Array, Array]:
  """Solves from scratch: columns [B, R] and duals [B, R], [B, K] of least cost."""
  batch, rows, columns = costs.shape
  if rows == columns:
    dual = jnp.min(costs, axis=1)
  else:  # columns without a row must end at 0
    dual = jnp.zeros((batch, columns), costs.dtype)
  owner = jnp.full((columns, batch), rows, jnp.int32)
  mine = jnp.full((rows, batch), columns, jnp.int32)
  return _finish(costs, dual.T, owner, mine)


def solve_from(
  costs: Array, assignment: Array, dual: Array
) -> tuple[Array, Array, Array, Array]:
  """Solves from an earlier result; also returns how many rows [B] were matched anew."""
  dual, owner, mask = _still_optimal(costs, assignment, dual)
  mine = jnp.where(mask, assignment, costs.shape[2]).astype(jnp.int32)
  result = _finish(costs, dual.T, owner.T, mine.T)
  return *result, jnp.sum(~mask, axis=1, dtype=jnp.int32)


def batched(fn: Callable[..., Any]) -> Callable[..., Any]:
  """Wraps a function of arrays [B, ...] so that mapped axes are folded into B."""
  mapped = jax.custom_batching.custom_vmap(fn)

  @mapped.def_vmap
  def rule(size: int, in_batched: list[bool], *arrays: Array) -> tuple[Any, Any]:
    def fold(array: Array, is_batched: bool) -> Array:
      if not is_batched:
        array = jnp.broadcast_to(array[None], (size, *array.shape))
      return array.reshape(math.prod(array.shape[:2]), *array.shape[2:])

    results = mapped(*map(fold, arrays, in_batched))
    split = jax.tree.map(lambda x: x.reshape(size, -1, *x.shape[1:]), results)
    return split, jax.tree.map(lambda _: True, split)

  return jax.jit(mapped)


def _still_optimal(costs: Array, assignment: Array, dual: Array) -> tuple[Array, ...]:
  """Duals and owners [B, K] of the pairs still tight, and their row mask [B, R]."""
  _, rows, columns = costs.shape
  chosen = jnp.clip(assignment, 0, columns - 1)
  chosen_costs = jnp.take_along_axis(costs, chosen[:, :, None], axis=2)[:, :, 0]
  rounding = 8 * float(jnp.finfo(costs.dtype).eps)
  tolerance = rounding * jnp.max(jnp.abs(costs), axis=(1, 2))[:, None]
  names = jnp.arange(rows, dtype=jnp.int32)

  def owners(mask: Array) -> Array:
    match = (chosen[:, :, None] == jnp.arange(columns)[None, None]) & mask[:, :, None]
    return jnp.min(jnp.where(match, names[None, :, None], rows), axis=1)

  def drop(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
    dual, mask, _ = state
    if rows < columns:  # a free column must be at 0, where a row may prefer it
      dual = jnp.where(owners(mask) < rows, jnp.minimum(dual, 0), 0)
    least = jnp.min(costs - dual[:, None], axis=2)
    paid = chosen_costs - jnp.take_along_axis(dual, chosen, axis=1)
    fewer = mask & (paid <= least + tolerance)
    return dual, fewer, jnp.any(fewer != mask) & (rows < columns)

  inside = chosen == assignment
  mask = inside & (jnp.take_along_axis(owners(inside), chosen, axis=1) == names[None])
  start = _numerics.varying((dual, mask, jnp.array(True)), costs)
  dual, mask, _ = lax.while_loop(lambda state: state[2], drop, start)
  return dual, owners(mask), mask


def _finish(
  costs: Array, dual: Array, owner: Array, mine: Array
) -> tuple[Array, Array, Array]:
  """Matches the rows that own no column; duals and owners [K, B], columns [R, B]."""
  rows = costs.shape[1]
  dual, owner, mine = _greedy(costs, dual, owner, mine)
  dual, owner = _augment(costs, dual, owner, mine)
  # Sorting columns by owner puts them in the order of the rows, free columns last.
  assignment = jnp.argsort(owner, axis=0)[:rows].T.astype(jnp.int32)
  dual = dual.T
  return assignment, jnp.min(costs - dual[:, None], axis=2), dual


def _at(array: Array, index: Array) -> Array:
  """array[index[b], b] for every b."""
  return jnp.take_along_axis(array, index[None], axis=0, mode="clip")[0]


def _smallest(x: Array, free: Array, names: Array) -> tuple[Array, Array, Array]:
  """Minimum over columns: value, column (ties: free, then lowest), whether free."""
  columns = len(x)
  least = jnp.min(x, axis=0)
  rank = names + jnp.where(free, 0, columns)
  best = jnp.min(jnp.where(x == least[None], rank, 2 * columns), axis=0)
  is_free = best < columns
  return least, jnp.where(is_free, best, best - columns), is_free


def _greedy(
  costs: Array, dual: Array, owner: Array, mine: Array
) -> tuple[Array, Array, Array]:
  """Gives rows their best column, whose price rises to the row's second best.

  This leaves few rows to the searches. Matched pairs stay tight: a row that loses its
  column looks for another, and for a row that keeps its column the others become
  dearer.
  """
  columns, batch = owner.shape
  rows = costs.shape[1]
  names = lax.broadcasted_iota(jnp.int32, (columns, batch), 0)
  row_names = lax.broadcasted_iota(jnp.int32, (rows, batch), 0)

  def offer(state: tuple[Array, ...]) -> tuple[Array, ...]:
    number, dual, owner, mine = state
    row = number % rows
    x = lax.dynamic_index_in_dim(costs, row, 1, keepdims=False).T - dual
    least, column, is_free = _smallest(x, owner == rows, names)
    second = jnp.min(jnp.where(names == column[None], jnp.inf, x), axis=0)
    waiting = lax.dynamic_index_in_dim(mine, row, 0, keepdims=False) == columns
    takes = waiting & (is_free | (second > least))
    loser = _at(owner, column)
    rise = jnp.where(jnp.isfinite(second), second - least, 0)
    hit = (names == column[None]) & takes[None]
    gains = jnp.where((row_names == row) & takes[None], column[None], mine)
    mine = jnp.where((row_names == loser[None]) & takes[None], columns, gains)
    dual = jnp.where(hit, dual - rise[None], dual)
    return number + 1, dual, jnp.where(hit, row, owner), mine

  def unfinished(state: tuple[Array, ...]) -> Array:
    return (state[0] < _GREEDY_PASSES * rows) & jnp.any(state[3] == columns)

  start = _numerics.varying((jnp.zeros((), jnp.int32), dual, owner, mine), costs)
  _, dual, owner, mine = lax.while_loop(unfinished, offer, start)
  return dual, owner, mine


def _augment(
  costs: Array, dual: Array, owner: Array, mine: Array
) -> tuple[Array, Array]:
  """Finds a shortest augmenting path for every row without a column, in their order."""
  batch, rows, columns = costs.shape
  queue = jnp.where(mine == columns, jnp.arange(rows, dtype=jnp.int32)[:, None], rows)
  end = jnp.full((1, batch), rows, jnp.int32)
  queue = jnp.concatenate([jnp.sort(queue, axis=0), end])
  zero = jnp.zeros(batch, jnp.int32)
  start = _Search(
    dual=dual,
    owner=owner,
    distance=jnp.full_like(dual, jnp.inf),
    previous=jnp.zeros_like(owner),
    root=queue[0],
    done=zero,
    row=queue[0],
    column=jnp.full(batch, columns, jnp.int32),
    slack=jnp.zeros(batch, costs.dtype),
    shift=jnp.zeros(batch, costs.dtype),
    turning=jnp.zeros(batch, bool),
    fresh=jnp.ones(batch, bool),
  )
  start = _numerics.varying(start, costs)
  step = functools.partial(_step, costs.reshape(batch * rows, columns), queue)
  state = lax.while_loop(lambda state: jnp.any(state.root < rows), step, start)
  return state.dual, state.owner


def _step(costs: Array, queue: Array, s: _Search) -> _Search:
  """Advances every problem by one row, or by one edge."""
  columns, batch = s.owner.shape
  rows = len(queue) - 1
  names = lax.broadcasted_iota(jnp.int32, (columns, batch), 0)
  lane = jnp.arange(batch, dtype=jnp.int32) * rows
  searching = (s.root < rows) & ~s.turning
  # Each column with a known path loses the amount that the last step added to all
  # paths.
  dual = s.dual - jnp.where(s.distance == -jnp.inf, s.shift[None], 0)
  known = names == s.column[None]
  distance = jnp.where(known, -jnp.inf, s.distance - s.shift[None])
  distance = jnp.where(s.fresh[None], jnp.inf, distance)
  line = jnp.minimum(s.row, rows - 1) + lane
  x = jnp.take(costs, line, axis=0, mode="clip").T - dual
  x -= jnp.where(searching, s.slack, -jnp.inf)[None]
  x = jnp.where((x > 0) | s.fresh[None], x, 0)  # below 0 by rounding alone
  shorter = x < distance
  distance = jnp.where(shorter, x, distance)
  previous = jnp.where(shorter, s.column[None], s.previous)
  candidates = jnp.where(distance == -jnp.inf, jnp.inf, distance)
  least, column, is_free = _smallest(candidates, s.owner == rows, names)
  grows = searching & ~is_free
  row = _at(s.owner, column)
  entry = (jnp.minimum(row, rows - 1) + lane) * columns + column
  slack = jnp.take(costs.reshape(-1), entry, mode="clip") - _at(dual, column)
  # Second half: an edge of the path goes to the row before it.
  before = _at(previous, s.column)
  first = before == columns
  turned = known & s.turning[None]
  heir = jnp.where(first, s.root, _at(s.owner, before))
  ends = s.turning & first
  done = s.done + ends
  following = _at(queue, done)
  return _Search(
    dual=dual,
    owner=jnp.where(turned, heir[None], s.owner),
    distance=distance,
    previous=previous,
    root=jnp.where(ends, following, s.root),
    done=done,
    row=jnp.where(ends, following, jnp.where(grows, row, s.row)),
    column=jnp.where(s.turning, before, jnp.where(searching, column, s.column)),
    slack=jnp.where(ends, 0, jnp.where(grows, slack, s.slack)),
    shift=jnp.where(searching, least, 0),
    turning=(searching & is_free) | (s.turning & ~first),
    fresh=ends,
  )
