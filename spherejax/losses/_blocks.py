"""Evaluates rows in blocks: exact values and gradients without the whole matrix."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from spherejax import _checks, _numerics

_COLUMNS = 4096  # a few MiB for a few hundred rows


def map_rows(function: Callable[[Any], Any], rows: Any, block_size: int | None) -> Any:
  """Applies `function` to the rows, `block_size` of them at a time.

  The backward pass computes every block again instead of keeping its intermediate
  values, so that only one block is in memory at any time. Only the maxima and sums that
  `_numerics.logsumexp` needs are kept for each row.

  Args:
    function: maps a pytree of [rows, ...] arrays to another. Each row of the result
      depends only on the same row of the input, and on arrays that it closes over. The
      last block is filled up with zeros (False).
    rows: pytree of [batch, ...] arrays.
    block_size: static. None calls the function once, with all rows.

  Returns:
    What `function` returns for all rows.

  Raises:
    TypeError: block_size is not a static integer.
    ValueError: block_size is below 1.
  """
  batch = jax.tree.leaves(rows)[0].shape[0]
  size = _size(batch, block_size)
  if size is None:
    return function(rows)
  return _joined(_map(function, rows, size), batch)


def map_blocks(
  function: Callable[[Any], Any], rows: Any, block_size: int | None
) -> Any:
  """Applies `function` to blocks of `block_size` rows; stacks the results.

  Differs from `map_rows` in that the function's result has no axis of rows. The last
  block is filled up with zeros (False) here too.
  """
  size = _size(jax.tree.leaves(rows)[0].shape[0], block_size)
  if size is None:
    return jax.tree.map(lambda x: x[None], function(rows))
  return _map(function, rows, size)


def sum_rows(
  function: Callable[[Any, Any], Any], rows: Any, columns: Any, block_size: int | None
) -> Any:
  """Sums `function` over the columns for every row, in blocks of rows and of columns.

  The intermediate values of a block then stay in the cache of a processor.

  Args:
    function: maps pytrees of [rows, ...] and [columns, ...] arrays to a pytree of
      [rows, ...] arrays. Each entry is a sum over the columns, to which a column of
      zeros (False) adds nothing.
    rows: pytree of [batch, ...] arrays.
    columns: pytree of [columns, ...] arrays.
    block_size: static. None calls the function once, with all rows.
  """
  batch, width = (jax.tree.leaves(x)[0].shape[0] for x in (rows, columns))
  size = _size(batch, block_size)
  if size is None or width <= _COLUMNS:
    return map_rows(lambda block: function(block, columns), rows, block_size)
  once, tiles = _recomputed(function), _split(columns, _COLUMNS)

  def of_rows(block: Any) -> Any:
    parts = jax.lax.map(lambda tile: once(block, tile), tiles)
    return jax.tree.map(lambda x: jnp.sum(x, axis=0), parts)

  return _joined(jax.lax.map(of_rows, _split(rows, size)), batch)


def _size(batch: int, block_size: int | None) -> int | None:
  """Number of rows in a block; None if there is only one block."""
  if block_size is None:
    return None
  _checks.count("block_size", block_size)
  return block_size if block_size < batch else None


def _map(function: Callable[[Any], Any], rows: Any, size: int) -> Any:
  return jax.lax.map(_recomputed(function), _split(rows, size))


def _split(rows: Any, size: int) -> Any:
  """[blocks, size, ...] arrays, the last block filled up with zeros."""

  def split(array: jax.Array) -> jax.Array:
    blocks = -(-len(array) // size)
    missing = [(0, blocks * size - len(array))] + [(0, 0)] * (array.ndim - 1)
    return jnp.pad(array, missing).reshape(blocks, size, *array.shape[1:])

  return jax.tree.map(split, rows)


def _joined(blocks: Any, batch: int) -> Any:
  """Joins blocks into [batch, ...] arrays again."""
  return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:batch], blocks)


def _recomputed(function: Callable[..., Any]) -> Callable[..., Any]:
  """Wraps the function so that a backward pass calls it again."""
  # Inside a loop the recomputation cannot be merged with the first computation.
  return jax.checkpoint(
    function,
    prevent_cse=False,
    policy=jax.checkpoint_policies.save_only_these_names(_numerics.ROW_STATISTIC),
  )
