"""Ranks of the relevant references within a row block, by counting."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from spherejax import _numerics
from spherejax.distances import _order
from spherejax.distances._order import Distance
from spherejax.metrics import _plan

TILE = 8  # relevant references counted in one pass over the row block
NEVER = jnp.iinfo(jnp.int32).max  # rank of a reference that is never retrieved
# Sorting a row costs as much as this many passes for a relevant reference, times log2
# of the row's length (measured on a CPU for rows of 15,000).
_SORT_COST = 64
_PAIRS = 8  # undecided ranks looked at together
_FEW = 32  # references in doubt around a relevant one; with more the row is sorted
_ROWS = 4  # rows put in order together


class Rows(NamedTuple):
  """Row block, and the rows that decide where its products cannot.

  Attributes:
    product: [block, references], NaN where the query leaves the reference out.
    slack: [block], of the queries, as in `_order.Proposal`.
    proposal: of all queries.
    query: [block, dim], as they were given.
    references: [references, dim], likewise.
    excluded: [references], boolean.
    left_out: [block], index of the reference that the query leaves out, or -1.
  """

  product: Array
  slack: Array
  proposal: _order.Proposal
  query: Array
  references: Array
  excluded: Array
  left_out: Array


def row_block(
  proposal: _order.Proposal,
  queries: Array,
  references: Array,
  excluded: Array,
  block: _plan.Block,
) -> Rows:
  """Computes the products of a block's queries once, for every count to read."""
  query, left_out = jnp.asarray(block.query), jnp.asarray(block.left_out)
  product = _order.products(proposal.queries[query], proposal.references)
  rows = jnp.arange(len(query))
  out = jnp.where(left_out < 0, product.shape[1], left_out)
  # Replaces a comparison of each column in every pass.
  product = (
    jax.lax.optimization_barrier(product).at[rows, out].set(jnp.nan, mode="drop")
  )
  return Rows(
    jax.lax.optimization_barrier(product),
    proposal.slack[query],
    proposal,
    queries[query],
    references,
    excluded,
    left_out,
  )


def ranks(
  rows: Rows,
  block: _plan.Block,
  by_class: Array,
  most: int,
  distance: Distance,
  certain: bool | None,
  decide: bool,
) -> tuple[Array, Array]:
  """[block, most], rank from 1 of each relevant reference; `NEVER` for the rest.

  Ranks are exact up to R, and for the nearest relevant reference; the metrics need no
  more. A reference without a key also has `NEVER`. `certain` is the proposal's where it
  is known, so that only one way to count is compiled.

  Also returns [block], whether the products leave a rank in doubt; with `decide`
  none is. Deciding takes most of the compilation time.
  """
  relevant = jnp.asarray(block.relevant)
  start, skip = jnp.asarray(block.start)[:, None], jnp.asarray(block.skip)[:, None]
  place = jnp.arange(most, dtype=jnp.int32)[None]
  member = start + place + (place >= skip)
  index = by_class[jnp.minimum(member, by_class.shape[0] - 1)]
  product = jnp.take_along_axis(rows.product, index, axis=1)
  low = rows.proposal.low[index] - product - rows.slack[:, None]
  high = rows.proposal.high[index] - product + rows.slack[:, None]
  valid = (place < relevant[:, None]) & ~jnp.isnan(low)
  longest = jnp.max(relevant)
  limit = _limit(rows)

  none = jnp.zeros(len(index), bool)

  def by_count() -> tuple[Array, Array]:
    if certain:
      return count_exactly()
    if certain is None:
      return _numerics.either(rows.proposal.certain, count_exactly, count_near)
    return count_near()

  def count_exactly() -> tuple[Array, Array]:
    return 1 + _count_exactly(rows, low, index, longest), none

  def count_near() -> tuple[Array, Array]:
    before, near = count(rows, low, high, longest)
    nearest = jnp.min(jnp.where(valid, high, jnp.inf), axis=1, keepdims=True)
    wanted = valid & ((before < relevant[:, None]) | (low <= nearest))
    # The reference itself is one of them.
    doubt = jnp.where(wanted, near - before - 1, 0)
    if not decide:
      return 1 + before, jnp.any(doubt > 0, axis=1)
    return _decide(rows, index, low, high, 1 + before, doubt, distance), none

  def sort() -> tuple[Array, Array]:
    return _in_order(rows, jnp.arange(len(index)), index, distance), none

  result, doubt = (
    by_count() if most <= limit else _numerics.either(longest <= limit, by_count, sort)
  )
  return jnp.where(valid, result, NEVER), doubt


def _limit(rows: Rows) -> int:
  """Number of relevant references above which a query's row is sorted."""
  return _SORT_COST * math.ceil(math.log2(rows.product.shape[1] + 1))


def _columns(x: Array) -> tuple[Array, ...]:
  return tuple(x[:, i, None] for i in range(x.shape[1]))


def _sum_all(conditions: tuple[Array, ...]) -> Array:
  """Row counts [block, conditions], all in one pass over the row block.

  A reduction over several operands needs a single pass: separate sums, or a sum over a
  third axis, ran 20 times slower on a CPU.
  """
  zeros = (jnp.int32(0),) * len(conditions)
  counts = jax.lax.reduce(
    tuple(condition.astype(jnp.int32) for condition in conditions),
    zeros,
    lambda x, y: tuple(a + b for a, b in zip(x, y, strict=True)),
    (1,),
  )
  return jnp.stack(counts, axis=1)


def count(rows: Rows, low: Array, high: Array, longest: Array) -> tuple[Array, Array]:
  """Counts references surely before each relevant one, and those not surely after.

  Compares each row with TILE relevant references at a time.
  """

  def tile(i: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
    # Otherwise XLA computes both bounds before the loop: two more row blocks to write
    # and read.
    product, i = jax.lax.optimization_barrier((rows.product, i))
    least, most = rows.proposal.low[None] - product, rows.proposal.high[None] - product
    slack = rows.slack[:, None]
    part = [
      jax.lax.dynamic_slice_in_dim(bound, i * TILE, TILE, axis=1)
      for bound in (low - slack, high + slack)
    ]
    counts = _sum_all(
      (
        *(most < bound for bound in _columns(part[0])),
        *(least <= bound for bound in _columns(part[1])),
      )
    )
    place = jnp.int32(0), i * TILE
    return (
      jax.lax.dynamic_update_slice(sums[0], counts[:, :TILE], place),
      jax.lax.dynamic_update_slice(sums[1], counts[:, TILE:], place),
    )

  steps = (longest + TILE - 1) // TILE
  zeros = _numerics.varying(jnp.zeros(low.shape, jnp.int32), rows, low, high)
  return jax.lax.fori_loop(0, steps, tile, (zeros, zeros))


def _count_exactly(rows: Rows, key: Array, index: Array, longest: Array) -> Array:
  """Counts references before each relevant one by exact keys; ties go by index."""
  columns = jnp.arange(rows.product.shape[1], dtype=jnp.int32)[None]

  def tile(i: Array, sums: Array) -> Array:
    product, i = jax.lax.optimization_barrier((rows.product, i))
    keys = rows.proposal.low[None] - product
    bounds = jax.lax.dynamic_slice_in_dim(key, i * TILE, TILE, axis=1)
    places = jax.lax.dynamic_slice_in_dim(index, i * TILE, TILE, axis=1)
    counts = _sum_all(
      tuple(
        (keys < bound) | ((keys == bound) & (columns < place))
        for bound, place in zip(_columns(bounds), _columns(places), strict=True)
      )
    )
    return jax.lax.dynamic_update_slice(sums, counts, (jnp.int32(0), i * TILE))

  steps = (longest + TILE - 1) // TILE
  zeros = _numerics.varying(jnp.zeros(key.shape, jnp.int32), rows, key, index)
  return jax.lax.fori_loop(0, steps, tile, zeros)


def _decide(
  rows: Rows,
  index: Array,
  low: Array,
  high: Array,
  results: Array,
  doubt: Array,
  distance: Distance,
) -> Array:
  """Decides the ranks where `doubt` [block, most] counts references in doubt."""
  many = jnp.max(doubt, axis=1) > _FEW
  few = (doubt > 0) & ~many[:, None]
  size, most = doubt.shape
  columns = jnp.arange(rows.product.shape[1], dtype=jnp.int32)[None]

  def pairs(i: Array, results: Array) -> Array:
    flat = jax.lax.dynamic_slice_in_dim(places, i * _PAIRS, _PAIRS)
    row, place = flat // most, flat % most
    chosen, slack = index[row, place], rows.slack[row][:, None]
    product = rows.product[row]
    # Counted anew, so that rounding cannot mix references surely before with near ones.
    before = rows.proposal.high[None] - product + slack < low[row, place][:, None]
    near = rows.proposal.low[None] - product - slack <= high[row, place][:, None]
    near &= ~before & (columns != chosen[:, None])
    left = jnp.sum(near, axis=1, dtype=jnp.int32)
    left = jnp.where(flat < size * most, left, 0)
    surely = jnp.sum(before, axis=1, dtype=jnp.int32)
    query, reference = rows.query[row], rows.references[chosen]

    def count_pair(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
      number, last, more = state
      following = jnp.where(near & (columns > last[:, None]), columns, columns.shape[1])
      last = jnp.min(following, axis=1)
      other = rows.references[last]
      closer = _order.is_before(query, other, reference, last < chosen, distance)
      return number + 1, last, more + (closer & (number < left))

    start = jnp.int32(0), jnp.full(_PAIRS, -1, jnp.int32), jnp.zeros(_PAIRS, jnp.int32)
    start = _numerics.varying(start, query, reference, near)
    more = jax.lax.while_loop(
      lambda state: state[0] < jnp.max(left), count_pair, start
    )[2]
    return results.at[row, place].set(1 + surely + more, mode="drop")

  places = _places(few.reshape(-1), _PAIRS)
  groups = (jnp.sum(few) + _PAIRS - 1) // _PAIRS
  results = jax.lax.fori_loop(0, groups, pairs, results)

  def whole(i: Array, results: Array) -> Array:
    row = jax.lax.dynamic_slice_in_dim(lines, i * _ROWS, _ROWS)
    inside = jnp.minimum(row, size - 1)
    ordered = _in_order(rows, inside, index[inside], distance)
    return results.at[row].set(ordered, mode="drop")

  lines = _places(many, _ROWS)
  groups = (jnp.sum(many) + _ROWS - 1) // _ROWS
  return jax.lax.fori_loop(0, groups, whole, results)


def _places(where: Array, group: int) -> Array:
  """Indices of the True entries, ascending; then `size`, up to whole groups."""
  size = len(where)
  return jnp.nonzero(where, size=-(-size // group) * group, fill_value=size)[0]


def _in_order(rows: Rows, row: Array, index: Array, distance: Distance) -> Array:
  """[rows, most], ranks of chosen references from rows put in exact order."""
  count = rows.product.shape[1]
  columns = jnp.arange(count, dtype=jnp.int32)

  def rank_query(line: tuple[Array, Array, Array]) -> Array:
    query, left_out, chosen = line
    out = rows.excluded | (columns == left_out)
    if index.shape[1] <= _limit(rows):
      return _order.ranks(query, rows.references, out, chosen, distance)
    order = _order.order(query, rows.references, out, distance)
    rank = jnp.zeros(count, jnp.int32).at[order].set(columns + 1)
    return rank[chosen]

  lines = rows.query[row], rows.left_out[row], index
  return jax.lax.map(rank_query, lines, batch_size=_ROWS)
