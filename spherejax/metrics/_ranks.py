"""Ranks of the relevant references inside a row block, by counting."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from spherejax.metrics import _order, _plan

TILE = 8  # relevant references counted in one pass over the row block
# Sorting a row costs as much as this many passes of one relevant reference, times
# log2 of the row's length (measured on a CPU for rows of 15,000).
_SORT_COST = 64


class Rows(NamedTuple):
  """A row block before its entries become keys.

  Attributes:
    product: [block, references].
    query_square: [block].
    reference_square: [references].
    excluded: [references], boolean.
    own: [block], index of the reference that is the query itself, or -1.
  """

  product: Array
  query_square: Array
  reference_square: Array
  excluded: Array
  own: Array


def row_keys(rows: Rows, distance: str) -> Array:
  """[block, references]; excluded references are behind all others."""
  square = rows.query_square[:, None] + rows.reference_square[None]
  columns = jnp.arange(rows.product.shape[1], dtype=jnp.int32)[None]
  excluded = rows.excluded[None] | (columns == rows.own[:, None])
  last = _order.last_key(rows.product.dtype)
  return jnp.where(excluded, last, _order.keys(rows.product, square, distance))


def _keys_at(rows: Rows, index: Array, distance: str) -> Array:
  """[block, k], keys of chosen references, none of them excluded."""
  product = jnp.take_along_axis(rows.product, index, axis=1)
  square = rows.query_square[:, None] + rows.reference_square[index]
  return _order.keys(product, square, distance)


def ranks(
  rows: Rows, block: _plan.Block, by_class: Array, most: int, distance: str
) -> Array:
  """[block, most], rank from 1 of each relevant reference, the rest a large number."""
  relevant = jnp.asarray(block.relevant)
  start, skip = jnp.asarray(block.start)[:, None], jnp.asarray(block.skip)[:, None]
  place = jnp.arange(most, dtype=jnp.int32)[None]
  member = start + place + (place >= skip)
  index = by_class[jnp.minimum(member, by_class.shape[0] - 1)]
  chosen = _keys_at(rows, index, distance)
  limit = _SORT_COST * math.ceil(math.log2(rows.product.shape[1] + 1))
  longest = jnp.max(relevant)
  valid = place < relevant[:, None]

  def count() -> Array:
    return _count_all(rows, chosen, index, longest, distance)

  def sort() -> Array:
    return _sort(row_keys(rows, distance), chosen, index, valid)

  found = count() if most <= limit else jax.lax.cond(longest <= limit, count, sort)
  return jnp.where(valid, found, jnp.iinfo(jnp.int32).max)


def _columns(x: Array) -> tuple[Array, ...]:
  return tuple(x[:, i, None] for i in range(x.shape[1]))


def _sum_all(conditions: tuple[Array, ...]) -> Array:
  """Row counts [block, conditions], all in ONE pass over the row block.

  The reduction over several operands is what makes the pass one: separate sums, or
  a sum over a third axis, ran 20 times slower on a CPU.
  """
  zeros = (jnp.int32(0),) * len(conditions)
  counts = jax.lax.reduce(
    tuple(condition.astype(jnp.int32) for condition in conditions),
    zeros,
    lambda x, y: tuple(a + b for a, b in zip(x, y, strict=True)),
    (1,),
  )
  return jnp.stack(counts, axis=1)


def _count_all(
  rows: Rows, chosen: Array, index: Array, longest: Array, distance: str
) -> Array:
  """Ranks by comparing each row with TILE relevant references at a time."""
  columns = jnp.arange(rows.product.shape[1], dtype=jnp.int32)[None]

  def tile(i: Array, found: Array) -> Array:
    keys = row_keys(rows, distance)
    key = jax.lax.dynamic_slice_in_dim(chosen, i * TILE, TILE, axis=1)
    place = jax.lax.dynamic_slice_in_dim(index, i * TILE, TILE, axis=1)
    # Before (key, index): a smaller key, or an equal one at a lower index.
    before = tuple(
      keys < k + (columns < p).astype(keys.dtype)
      for k, p in zip(_columns(key), _columns(place), strict=True)
    )
    return jax.lax.dynamic_update_slice_in_dim(
      found, 1 + _sum_all(before), i * TILE, axis=1
    )

  steps = (longest + TILE - 1) // TILE
  return jax.lax.fori_loop(0, steps, tile, jnp.zeros(chosen.shape, jnp.int32))


def _sort(keys: Array, chosen: Array, index: Array, valid: Array) -> Array:
  """The same ranks from the sorted row; only what ties is compared.

  Sorting the keys alone is several times faster than a stable sort that carries the
  indices, and few distances tie.
  """
  ordered = jax.lax.sort(keys, dimension=1)
  before = jax.vmap(jnp.searchsorted)(ordered, chosen).astype(jnp.int32)
  following = jnp.minimum(before + 1, keys.shape[1] - 1)
  tied = valid & (jnp.take_along_axis(ordered, following, axis=1) == chosen)
  tied &= following > before
  order = jnp.cumsum(tied, axis=1, dtype=jnp.int32)
  columns = jnp.arange(keys.shape[1], dtype=jnp.int32)[None]
  rows = jnp.arange(keys.shape[0], dtype=jnp.int32)[:, None]

  def tile(i: Array, found: Array) -> Array:
    # Places of the next TILE tied references of each row; beyond them, none.
    wanted = i * TILE + 1 + jnp.arange(TILE, dtype=jnp.int32)
    place = jax.vmap(jnp.searchsorted, (0, None))(order, wanted)
    key = jnp.take_along_axis(chosen, place, axis=1, mode="clip")
    column = jnp.take_along_axis(index, place, axis=1, mode="clip")
    lower = tuple(
      (keys == k) & (columns < p)
      for k, p in zip(_columns(key), _columns(column), strict=True)
    )
    return found.at[rows, place].add(_sum_all(lower), mode="drop")

  steps = (jnp.max(order[:, -1]) + TILE - 1) // TILE
  return 1 + jax.lax.fori_loop(0, steps, tile, before)
