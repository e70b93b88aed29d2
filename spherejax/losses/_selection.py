"""Selections of pairs, as masks or weights, and sums over them."""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float

from spherejax import _checks, _numerics

Selection = (
  Bool[ArrayLike, "queries references"] | Float[ArrayLike, "queries references"]
)
"""Mask of the pairs that count, or their weights."""

Selected = Bool[Array, "queries references"] | Float[Array, "queries references"]
"""Mask or weights of pairs, as a miner returns them."""


def check(name: str, chosen: Array, shape: tuple[int, ...]) -> None:
  """Raises unless a selection is boolean or weights, and of the matrix's shape."""
  if chosen.dtype != jnp.bool_ and not jnp.issubdtype(chosen.dtype, jnp.floating):
    raise TypeError(f"{name} must be boolean or weights, got dtype {chosen.dtype}")
  _checks.shape(name, chosen, shape)


def chosen(selection: Array) -> Array:
  """Boolean mask of the pairs that a mask or a matrix of weights selects."""
  return selection if selection.dtype == jnp.bool_ else selection > 0


def part(selection: Array, among: Array) -> Array:
  """Restricts a mask, or weights, to the pairs in `among`."""
  if selection.dtype == jnp.bool_:
    return selection & among
  return _numerics.keep(selection, among & chosen(selection))


def sum_over(values: Array, selection: Array) -> Array:
  """[rows]: sum of the selected values, times their weights."""
  if selection.dtype == jnp.bool_:
    return _numerics.masked_sum(values, selection)
  weighted = values * selection.astype(values.dtype)
  return _numerics.masked_sum(weighted, chosen(selection))


def count_over(selection: Array, dtype: jnp.dtype) -> Array:
  """[rows]: number of selected pairs, or the sum of their weights.

  Counted in floats, which vectorizes: exact in float32 up to 2^24 pairs of a row.
  """
  return jnp.sum(part(selection, chosen(selection)).astype(dtype), axis=-1)


def hinges(values: Array, selection: Array) -> tuple[Array, Array]:
  """Sum [rows] of the positive parts of each row, and their number [rows]."""
  # NaN counts as active, so that it reaches the value.
  active = part(selection, ~(values <= 0))
  return sum_over(values, active), count_over(active, values.dtype)


def logsumexp_over(values: Array, selection: Array) -> Array:
  """[rows]: log of the sum of the selected exponentials, times their weights."""
  if selection.dtype != jnp.bool_:
    used = chosen(selection)
    values += jnp.log(_numerics.keep(selection, used, 1)).astype(values.dtype)
    selection = used
  return _numerics.logsumexp(values, selection)
