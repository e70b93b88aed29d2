"""Rows in blocks: exact values and gradients without the whole matrix in memory."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from spherejax import _checks, _numerics


def map_rows(
  function: Callable[[Any], Any], rows: Any, block_size: int | None = None
) -> Any:
  """`function` of the rows, `block_size` of them at a time.

  The backward pass computes every block again instead of keeping what it went
  through, so that only one block is in memory at any time. What is kept are the
  maxima and sums of each row that `_numerics.logsumexp` needs.

  Args:
    function: of a pytree of [rows, ...] arrays to one of [rows, ...] arrays, each
      row of which depends on the same row of the input only, and on what it closes
      over. The last block is filled up with zeros (False).
    rows: pytree of [batch, ...] arrays.
    block_size: static. None calls the function once, with everything.

  Returns:
    What `function` returns for all rows.

  Raises:
    TypeError: block_size is not a static integer.
    ValueError: block_size is below 1.
  """
  if block_size is None:
    return function(rows)
  _checks.count("block_size", block_size)
  batch = jax.tree.leaves(rows)[0].shape[0]
  if block_size >= batch:
    return function(rows)
  blocks = -(-batch // block_size)

  def split(array: jax.Array) -> jax.Array:
    missing = [(0, blocks * block_size - batch)] + [(0, 0)] * (array.ndim - 1)
    return jnp.pad(array, missing).reshape(blocks, block_size, *array.shape[1:])

  # Inside a loop the recomputation cannot be merged with the first computation.
  once = jax.checkpoint(
    function,
    prevent_cse=False,
    policy=jax.checkpoint_policies.save_only_these_names(_numerics.ROW_STATISTIC),
  )
  values = jax.lax.map(once, jax.tree.map(split, rows))
  return jax.tree.map(
    lambda x: x.reshape(blocks * block_size, *x.shape[2:])[:batch], values
  )
