"""Farthest and closest entries of every row; ties go to the lowest index."""

import jax.numpy as jnp
from jax import Array
from jax.ad_checkpoint import checkpoint_name

from spherejax import _numerics


def smallest(values: Array, among: Array) -> Array:
  """[rows, 1]: the smallest selected entry; inf for none."""
  chosen = _numerics.keep(values, among, jnp.inf)
  least = jnp.min(chosen, 1, keepdims=True, initial=jnp.inf)
  return checkpoint_name(least, _numerics.ROW_STATISTIC)


def largest(values: Array, among: Array) -> Array:
  """[rows, 1]: the largest selected entry; -inf for none."""
  chosen = _numerics.keep(values, among, -jnp.inf)
  most = jnp.max(chosen, 1, keepdims=True, initial=-jnp.inf)
  return checkpoint_name(most, _numerics.ROW_STATISTIC)


def where_smallest(values: Array, among: Array) -> Array:
  """[rows]: column of the smallest selected entry; the number of columns for none.

  NaN counts as the smallest here, and as the largest in `where_largest`.
  """
  return _where(values, among, smallest(values, among))


def where_largest(values: Array, among: Array) -> Array:
  """[rows]: column of the largest selected entry; the number of columns for none."""
  return _where(values, among, largest(values, among))


def _where(values: Array, among: Array, extreme: Array) -> Array:
  columns = jnp.arange(values.shape[1], dtype=jnp.int32)[None]
  candidates = among & ((values == extreme) | jnp.isnan(values))
  end = values.shape[1]
  return jnp.min(jnp.where(candidates, columns, end), axis=1, initial=end)


def one_hot(index: Array, size: int) -> Array:
  """[rows, size], boolean: True at the column of each row, if it exists."""
  return index[:, None] == jnp.arange(size, dtype=index.dtype)[None]
