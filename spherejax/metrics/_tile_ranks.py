"""Ranks of relevant references, among references that are read in tiles.

The exact keys of the relevant references are computed beforehand from a few rows. So
each tile is counted by itself, and the counts add up. Where the products leave a rank
in doubt, a second pass over the tiles finds the near references and compares exact
keys.
"""

import functools
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from spherejax import _numerics, _versions
from spherejax.distances import _order, _tiles
from spherejax.distances._order import Distance
from spherejax.metrics import _host_ranks, _plan, _ranks

_DOUBTS = 16  # rows in doubt that are looked at together
_QUERIES = 4096  # queries per pass over the references
_PAIRS = 2**16  # relevant rows in memory at once
_ERROR = 2.0**-20  # more than the rounding of an exact key in float32


class _Wanted(NamedTuple):
  """Relevant references of blocks of queries.

  Attributes:
    keys: [blocks, block, most], exact, in float64; NaN for none.
    columns: [blocks, block, most], among the references.
  """

  keys: np.ndarray
  columns: np.ndarray


def ranks(
  queries: Array, references: _tiles.Stored, plan: _plan.Plan, distance: Distance
) -> Iterator[np.ndarray]:
  """Yields ranks from 1, [some blocks, block, most], in one or two passes.

  Ranks are exact up to R and for the nearest relevant reference; others are `NEVER`.
  """
  width = plan.blocks.query.shape[1]
  step = max(1, _QUERIES // width)
  for first in range(0, len(plan.blocks.query), step):
    blocks = _plan.Block(*(np.asarray(v[first : first + step]) for v in plan.blocks))
    yield _pass(queries, references, plan, blocks, distance)


def _pass(
  queries: Array,
  references: _tiles.Stored,
  plan: _plan.Plan,
  blocks: _plan.Block,
  distance: Distance,
) -> np.ndarray:
  wanted = _relevant(queries, references, plan, blocks, distance)
  valid = np.isfinite(wanted.keys)
  if not valid.any():
    return np.full(valid.shape, _ranks.NEVER)
  before, near = np.zeros((2, *valid.shape), np.int32)
  for first, tile in _tiles.read(references, "retrieval"):
    with _versions.enable_x64(True):
      counts = _count(
        queries,
        tile,
        _excluded(plan, first, len(tile)),
        blocks._replace(left_out=_tiles.local(blocks.left_out, first, len(tile))),
        wanted.keys,
        distance=distance,
      )
    before += np.asarray(counts[0])
    near += np.asarray(counts[1])
  nearest = np.min(wanted.keys, axis=-1, keepdims=True, where=valid, initial=np.inf)
  asked = (before < blocks.relevant[..., None]) | (wanted.keys == nearest)
  # The reference itself is among those near it.
  doubt = valid & asked & (near - before > 1)
  exact = np.add(1, before)
  if doubt.any():
    _settle(queries, references, plan, blocks, wanted, doubt, exact, distance)
  # Other ranks may exceed their counts.
  return np.where(valid & asked, exact, _ranks.NEVER)


def _relevant(
  queries: Array,
  references: _tiles.Stored,
  plan: _plan.Plan,
  blocks: _plan.Block,
  distance: Distance,
) -> _Wanted:
  most = _plan.bound(np.asarray(blocks.relevant), _ranks.TILE)
  place = np.arange(most)
  member = blocks.start[..., None] + place + (place >= blocks.skip[..., None])
  index = plan.by_class[np.minimum(member, len(plan.by_class) - 1)]
  keys = np.full(index.shape, np.nan)
  some = np.nonzero(place < blocks.relevant[..., None])
  rows = np.asarray(queries, np.float32)
  for start in range(0, len(some[0]), _PAIRS):
    part = tuple(axis[start : start + _PAIRS] for axis in some)
    other, back = np.unique(index[part], return_inverse=True)
    pair = rows[blocks.query[part[:2]]], _tiles.look_up(references, other)[back]
    keys[part] = _host_ranks.exact_keys(*pair, distance)
  return _Wanted(keys, index)


def _excluded(plan: _plan.Plan, first: int, count: int) -> np.ndarray:
  part = plan.excluded[first : first + count]
  return np.pad(part, (0, count - len(part)), constant_values=True)


def _thresholds(
  proposal: _order.Proposal,
  queries: Array,
  tile: Array,
  excluded: Array,
  query: Array,
  keys: Array,
  distance: Distance,
) -> tuple[Array, Array]:
  """Bounds of exact keys [block, most], on the scale of the proposal's keys."""
  queries = jnp.where(jnp.isfinite(queries).all(1, keepdims=True), queries, 0)
  usable = jnp.isfinite(tile).all(1, keepdims=True) & ~excluded[:, None]
  tile = jnp.where(usable, tile, 0)
  x, y = proposal.queries[query].astype(jnp.float64), proposal.references
  if distance == "squared_euclidean":
    largest = jnp.maximum(_order.largest(queries), _order.largest(tile))
    square = jnp.sum(x**2, axis=1, keepdims=True)
    scaled = jnp.ldexp(keys, -2 * jnp.frexp(largest)[1])
    key, size = (scaled - square) / 2, (scaled + square) / 2
  else:
    # Factors are powers of two; for a zero row any will do, as its keys are all 0.
    grown = [(x, queries[query]), (y, tile)][: 1 if distance == "cosine" else 2]
    key = keys
    for axis, (now, before) in enumerate(grown):
      along = 1 if axis == 0 else None
      most = [
        jnp.max(jnp.abs(v), axis=along, keepdims=True, initial=0).astype(jnp.float64)
        for v in (now, before)
      ]
      key = key * jnp.where(most[0] > 0, _numerics.divide(*most), 1)
    size = jnp.abs(key)
  least = queries.shape[1] * float(jnp.finfo(jnp.float32).smallest_normal) * 64
  error = _ERROR * size + least
  return (key - error).astype(jnp.float32), (key + error).astype(jnp.float32)


@functools.partial(jax.jit, static_argnames="distance")
def _count(
  queries: Array,
  tile: Array,
  excluded: Array,
  blocks: _plan.Block,
  keys: Array,
  *,
  distance: Distance,
) -> tuple[Array, Array]:
  """Counts a tile's references surely before, and not surely after, each key."""
  queries = _numerics.upcast(queries)
  proposal = _order.propose(queries, tile, distance, excluded)

  def count(operands: tuple[_plan.Block, Array]) -> tuple[Array, Array]:
    block, keys = operands
    rows, low, high = _row_block(
      proposal, queries, tile, excluded, block, keys, distance
    )
    return _ranks.count(rows, low, high, jnp.max(jnp.asarray(block.relevant)))

  return jax.lax.map(count, (blocks, keys))


@functools.partial(jax.jit, static_argnames="distance")
def _near(
  queries: Array,
  tile: Array,
  excluded: Array,
  block: _plan.Block,
  keys: Array,
  most: Array,
  *,
  distance: Distance,
) -> tuple[Array, Array]:
  """Near references [block, tile], and counts [block, most] of others before each key.

  Takes the first `most` keys of each row; the others are NaN.
  """
  queries = _numerics.upcast(queries)
  proposal = _order.propose(queries, tile, distance, excluded)
  rows, low, high = _row_block(proposal, queries, tile, excluded, block, keys, distance)
  slack = rows.slack[:, None]

  def add(i: Array, near: Array) -> Array:
    product, i = jax.lax.optimization_barrier((rows.product, i))
    # Not the opposite of "surely after": no reference is near NaN.
    least = proposal.low[None] - product - slack
    most = proposal.high[None] - product + slack
    return near | ((least <= high[:, i, None]) & ~(most < low[:, i, None]))

  near = jax.lax.fori_loop(0, most, add, jnp.zeros(rows.product.shape, bool))
  # A reference that is not near is on one side of the key, however products round.
  middle = (proposal.low + proposal.high) / 2
  rest = rows._replace(
    product=jnp.where(near, jnp.nan, rows.product),
    slack=jnp.zeros_like(rows.slack),
    proposal=proposal._replace(low=middle, high=middle),
  )
  key = (low + high) / 2
  return near, _ranks.count(rest, key, key, most)[0]


def _row_block(
  proposal: _order.Proposal,
  queries: Array,
  tile: Array,
  excluded: Array,
  block: _plan.Block,
  keys: Array,
  distance: Distance,
) -> tuple[_ranks.Rows, Array, Array]:
  rows = _ranks.row_block(proposal, queries, tile, excluded, block)
  query = jnp.asarray(block.query)
  bounds = _thresholds(proposal, queries, tile, excluded, query, keys, distance)
  return rows, *bounds


def _settle(
  queries: Array,
  references: _tiles.Stored,
  plan: _plan.Plan,
  blocks: _plan.Block,
  wanted: _Wanted,
  doubt: np.ndarray,
  counts: np.ndarray,
  distance: Distance,
) -> None:
  """Replaces ranks in doubt by exact ranks, in one more pass."""
  flat = _plan.Block(*(v.reshape(-1) for v in blocks))
  ranks = counts.reshape(-1, counts.shape[-1])
  exact, doubt = wanted.keys.reshape(ranks.shape), doubt.reshape(ranks.shape)
  ranks[doubt] = 1
  lines = np.flatnonzero(doubt.any(axis=1))
  most = int(doubt.sum(axis=1).max())
  # The places in doubt come first; no reference is near NaN.
  places = np.argsort(~doubt[lines], axis=1, kind="stable")
  keys = np.take_along_axis(np.where(doubt, exact, np.nan)[lines], places, axis=1)
  columns = wanted.columns.reshape(ranks.shape)[lines[:, None], places[:, :most]]
  rows_of_queries = np.asarray(queries, np.float32)
  for first, tile in _tiles.read(references, "retrieval, second pass"):
    excluded = _excluded(plan, first, len(tile))
    for start in range(0, len(lines), _DOUBTS):
      part = np.arange(start, min(start + _DOUBTS, len(lines)))
      filled = np.resize(part, _DOUBTS)  # one program for all
      block = _plan.Block(*(v[lines[filled]] for v in flat))
      block = block._replace(left_out=_tiles.local(block.left_out, first, len(tile)))
      with _versions.enable_x64(True):
        near, before = _near(
          queries,
          tile,
          excluded,
          block,
          keys[filled],
          np.int32(most),
          distance=distance,
        )
      more = _compare(
        np.asarray(near)[: len(part)],
        rows_of_queries[block.query],
        tile,
        keys[part, :most],
        columns[part] - first,
        distance,
      )
      line, place = lines[part, None], places[part, :most]
      ranks[line, place] += np.asarray(before)[: len(part), :most] + more


def _compare(
  near: np.ndarray,
  queries: np.ndarray,
  tile: np.ndarray,
  keys: np.ndarray,
  columns: np.ndarray,
  distance: Distance,
) -> np.ndarray:
  """Counts [rows, keys] of near references: closer, or tied with a lower index."""
  row, column = np.nonzero(near)
  parts = max(1, -(-len(row) // _PAIRS))
  pairs = (np.array_split(v, parts) for v in (row, column))
  exact = np.concatenate(
    [
      _host_ranks.exact_keys(queries[r], tile[c], distance)
      for r, c in zip(*pairs, strict=True)
    ]
  )
  counts = np.zeros(keys.shape, np.int32)
  for place, (key, other) in enumerate(zip(keys.T, columns.T, strict=True)):
    tied = (exact == key[row]) & (column < other[row])
    closer = (exact < key[row]) | tied
    counts[:, place] = np.bincount(row[closer], minlength=len(keys))
  return counts
