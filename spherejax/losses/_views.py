"""Rows of two views per example, and each row's similarities to all other examples."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from spherejax import _checks, _numerics
from spherejax.losses import _batch, _blocks
from spherejax.losses._batch import Normalization


class Views(NamedTuple):
  """Matching rows of two views."""

  first: Array
  """[batch, dim], normalised; masked rows are zero."""
  second: Array
  """[batch, dim]."""
  where: Array
  """[batch], boolean."""
  dtype: jnp.dtype
  """The type of the first view before it is converted."""


def views(
  first: ArrayLike, second: ArrayLike, where: ArrayLike | None, normalize: Normalization
) -> Views:
  """Checked and normalised rows of both views."""
  first, second = _checks.array("first", first), _checks.array("second", second)
  for name, array in (("first", first), ("second", second)):
    _checks.expect(name, array, "floating", rank=2, empty=False)
  _checks.shape("second", second, first.shape, "the first view")
  mask = _batch.keep_all(where, first)

  def rows(array: Array, dtype: jnp.dtype) -> Array:
    wide = jnp.where(mask[:, None], array, 0).astype(dtype)
    return _batch.normalize_rows(wide, normalize)

  wide = _numerics.compute_dtype(jnp.result_type(first, second))
  return Views(rows(first, wide), rows(second, wide), mask, first.dtype)


def over_negatives(
  terms: Callable[[Array, Array, Array], Any],
  batch: Views,
  axis_name: str | None,
  block_size: int | None,
  *,
  both: bool = False,
) -> tuple[Any, ...]:
  """Applies `terms` to every first view (and second view) against all other examples.

  Args:
    terms: maps three arrays to a pytree of [rows, ...] arrays. They are the
      similarities [rows, 2 references] to all first views, then all second views; a
      mask of the same shape of the other examples; the similarities [rows, 1] to the
      row's other view.
    batch: both views of the examples of this device.
    axis_name: mapped axis over which the batch is spread.
    block_size: static. Rows at a time; None takes all.
    both: also takes the second views as anchors.
  """
  rows = len(batch.where)
  first, second, reference_where = (
    _batch.gather(array, axis_name)
    for array in (batch.first, batch.second, batch.where)
  )
  references = jnp.concatenate([first, second])
  itself = _batch.first_row(rows, axis_name) + jnp.arange(rows, dtype=jnp.int32)
  columns = jnp.tile(jnp.arange(len(first), dtype=jnp.int32), 2)
  reference_where = jnp.tile(reference_where, 2)

  anchors = (batch.first, batch.second) if both else (batch.first,)
  positive = jnp.sum(batch.first * batch.second, axis=1, keepdims=True)

  def of_rows(block: tuple[Array, ...]) -> Any:
    x, positive, example, mask = block
    others = (example[:, None] != columns[None]) & reference_where[None]
    negatives = others & mask[:, None]
    return terms(_batch.dot(x, references), negatives, positive)

  # One view's rows after the other's, so that a block has `block_size` rows.
  positive, itself, mask = (
    jnp.concatenate([array] * len(anchors)) for array in (positive, itself, batch.where)
  )
  blocks = jnp.concatenate(anchors), positive, itself, mask
  results = _blocks.map_rows(of_rows, blocks, block_size)
  return tuple(
    jax.tree.map(lambda array, k=k: array[k * rows : (k + 1) * rows], results)
    for k in range(len(anchors))
  )
