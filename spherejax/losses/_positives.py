"""Loops over the positives of every row, for losses that compare each with all entries.

A loop takes as many steps as the row with the most positives has positives; a step sees
one positive of every row. So it needs the memory of the matrix, and for each positive
the time of a pass over the matrix.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from spherejax import _numerics
from spherejax.losses import _extremes

_CHUNK = 128  # columns that are searched at once for the next positive


def fold(step: Callable[[Any, Array], Any], state: Any, positives: Array) -> Any:
  """Folds a state over the positives, in the order of the columns.

  Args:
    step: maps the state and the column [rows] of one positive of each row to the next
      state. The column is beyond the last one for rows without a further positive. Not
      differentiated.
    state: pytree of arrays.
    positives: [rows, references], boolean.
  """
  rows, end = positives.shape
  columns = jnp.arange(end, dtype=jnp.int32)[None]
  rest = -end % _CHUNK

  def after(last: Array) -> Array:
    left = positives & (columns > last[:, None])
    chunks = jnp.pad(left, ((0, 0), (0, rest))).reshape(rows, -1, _CHUNK)
    some = jnp.max(chunks.astype(jnp.int8), axis=2)  # a byte an entry is fastest
    chunk = jnp.argmax(some, axis=1).astype(jnp.int32)
    within = jnp.take_along_axis(chunks, chunk[:, None, None], axis=1)[:, 0]
    column = chunk * _CHUNK + jnp.argmax(within, axis=1).astype(jnp.int32)
    return jnp.where(jnp.any(within, axis=1), column, end)

  # The steps are counted, so that the program holds the search only once.
  most = jnp.max(jnp.sum(positives, axis=1, dtype=jnp.int32), initial=0)

  def turn(carried: tuple[Array, Array, Any]) -> tuple[Array, Array, Any]:
    number, last, state = carried
    column = after(last)
    return number + 1, column, step(state, column)

  none = jnp.full_like(most, -1, shape=positives.shape[:1])
  start = _numerics.varying((jnp.zeros_like(most), none, state), positives)
  _, _, state = jax.lax.while_loop(lambda carried: carried[0] < most, turn, start)
  return state


def sum_over(
  step: Callable[[Array, Any, Any], Any],
  positives: Array,
  constants: Any,
  operands: Any,
) -> Any:
  """Sum of `step` over the positives of every row.

  The gradient is the sum of the gradients of the steps, each computed again: no step
  leaves anything in memory, and their number may depend on the data.

  Args:
    step: maps the column [rows] of one positive of each row (beyond the last column for
      none), `constants` and `operands` to a pytree of floating arrays. It closes over
      no traced array.
    positives: [rows, references], boolean.
    constants: pytree of arrays that are not differentiated.
    operands: pytree of floating arrays.
  """
  operands = _numerics.varying(operands, positives, constants)
  return _sum_over(step, positives, constants, operands)


def exists(index: Array, like: Array) -> Array:
  """[rows]: whether the column is one of the matrix."""
  return index < like.shape[1]


@jax.custom_vjp
def pick(values: Array, index: Array) -> Array:
  """[rows, 1]: the entry of each row in a column; a finite number for none."""
  inside = jnp.minimum(index, values.shape[1] - 1)
  return jnp.take_along_axis(values, inside[:, None], axis=1)


def _pick_forward(values: Array, index: Array) -> tuple[Array, tuple[Array, Array]]:
  return pick(values, index), (values, index)


def _pick_backward(
  residuals: tuple[Array, Array], cotangent: Array
) -> tuple[Array, None]:
  # XLA fuses a comparison with the column into its use, but not a scatter.
  values, index = residuals
  hit = _extremes.one_hot(index, values.shape[1])
  return jnp.where(hit, cotangent, 0), None


pick.defvjp(_pick_forward, _pick_backward)


def _added(first: Any, second: Any) -> Any:
  return jax.tree.map(jnp.add, first, second)


def _zeros(like: Any, *sources: Any) -> Any:
  zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)
  return _numerics.varying(zeros, sources)


def _total(step: Callable, positives: Array, constants: Any, operands: Any) -> Any:
  index = jnp.zeros(positives.shape[0], jnp.int32)
  result = jax.eval_shape(step, index, constants, operands)
  return fold(
    lambda sums, index: _added(sums, step(index, constants, operands)),
    _zeros(result, constants, operands),
    positives,
  )


_sum_over = jax.custom_vjp(_total, nondiff_argnums=(0,))


def _forward(
  step: Callable, positives: Array, constants: Any, operands: Any
) -> tuple[Any, Any]:
  return _total(step, positives, constants, operands), (positives, constants, operands)


def _backward(step: Callable, residuals: Any, cotangent: Any) -> tuple[None, None, Any]:
  positives, constants, operands = residuals

  def add(sums: Any, index: Array) -> Any:
    _, pull = jax.vjp(lambda x: step(index, constants, x), operands)
    return _added(sums, pull(cotangent)[0])

  return None, None, fold(add, _zeros(operands, operands), positives)


_sum_over.defvjp(_forward, _backward)
