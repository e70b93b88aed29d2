"""PNP loss: penalises only the negatives that rank before a positive."""

from collections.abc import Callable
from typing import Literal

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _numerics
from spherejax.losses import _batch, _positives, _selection, _smooth_ap
from spherejax.losses._batch import Normalization

Penalty = Literal["O", "Iu", "Ib", "Ds", "Dq"]


def pnp(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  *,
  penalty: Penalty = "O",
  temperature: Real[ArrayLike, ""] = 0.01,
  steepness: Real[ArrayLike, ""] = 2.0,
  exponent: Real[ArrayLike, ""] = 1.0,
  include_self: bool = False,
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  references: _batch.References | None = None,
  miner: _batch.Miner | None = None,
  block_size: int | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """PNP loss: penalty on the number of negatives that rank before each positive.

      r_ij = sum_{k negative} 1 / (1 + exp((S_ij - S_ik) / temperature))
      loss_i = mean_{j positive} f(r_ij)

      "O"   f(r) = r
      "Iu"  f(r) = (1 + r) log(1 + r)
      "Ib"  f(r) = (b r - log(1 + b r)) / b^2,   b = steepness
      "Ds"  f(r) = log(1 + r)
      "Dq"  f(r) = 1 - (1 + r)^-exponent

  The slope of the "I" penalties grows with the number of wrong negatives; the slope of
  the "D" penalties falls. "Dq" gives up on outliers; with exponent 1 it is close to
  Smooth-AP.

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer. Only their equality matters.
    penalty: "O", "Iu", "Ib", "Ds" or "Dq". Static.
    temperature: positive, in units of a similarity, may be traced.
    steepness: positive, for "Ib"; may be traced.
    exponent: positive, for "Dq"; may be traced.
    include_self: True counts the example itself, at similarity 1, among its positives,
      as the released code does. Static.
    normalize: "l2", "unit_ball" or "none". Static.
    where: [batch], boolean, True keeps. None keeps all.
    references: rows to compare the batch with; None takes the batch itself.
    miner: chooses the pairs that count, given the similarities; weights count as True.
      None keeps all.
    block_size: static. Rows per block, recomputed for the gradient; memory is
      block_size x batch. None takes all at once.
    axis_name: mapped axis over which the batch is spread. Each device returns the
      values of its rows, computed in the batch of all devices.

  Returns:
    [batch], dtype of `embeddings`; 0 for masked rows and rows without a positive.
    `loss.sum()` divided by the number of rows with a positive is the paper's scalar.
    With `include_self` every kept row of a batch that is compared with itself has a
    positive, and the divisor is the number of kept rows.

  Raises:
    TypeError: embeddings are not floating, labels not integers, include_self not
      boolean.
    ValueError: shapes do not match, an unknown `penalty` or `normalize`, or a static
      number that is not positive.

  Differentiable in: embeddings, temperature, steepness, exponent; in reverse mode,
  once.
  Cost: O(batch^2 (dim + largest class)) time and O(batch^2) memory.

  Source: Li et al. 2021, "Rethinking the optimization of average precision: only
  penalizing negative instances before positive ones is enough", section 3.

  Example:
    >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> spherejax.losses.pnp(x, jnp.array([0, 0, 1]))
    Array([1., 1., 0.], dtype=float32)
  """
  _checks.flag("include_self", include_self)
  batch = _batch.batch_of(embeddings, labels, where, normalize, references, axis_name)
  terms = _terms(
    penalty, temperature, steepness, exponent, include_self, batch.anchors.dtype
  )
  loss = _batch.over_pairs(terms, batch, _batch.dot, miner, block_size)
  return loss.astype(batch.dtype)


def _terms(
  penalty: Penalty,
  temperature: ArrayLike,
  steepness: ArrayLike,
  exponent: ArrayLike,
  include_self: bool,
  dtype: jnp.dtype,
) -> Callable[[_batch.Block], Array]:
  _checks.one_of("penalty", penalty, Penalty)
  names = ("temperature", "steepness", "exponent")
  numbers = []
  for name, value in zip(names, (temperature, steepness, exponent), strict=True):
    _checks.positive(name, value)
    numbers.append(_checks.scalar(name, value, dtype))

  def terms(block: _batch.Block) -> Array:
    near, far = _smooth_ap.with_itself(block, include_self)
    operands = block.values, *numbers
    penalties = _positives.sum_over(_STEPS[penalty], near, far, operands)
    return _numerics.divide(penalties, _selection.count_over(near, dtype))

  return terms


def _step(
  function: Callable[[Array, Array, Array], Array],
) -> Callable[[Array, Array, tuple[Array, ...]], Array]:
  def step(index: Array, negatives: Array, operands: tuple[Array, ...]) -> Array:
    values, temperature, steepness, exponent = operands
    above = _smooth_ap.ranks_above(index, (values, temperature))
    number = _numerics.masked_sum(above, negatives)
    present = _positives.exists(index, values)
    return jnp.where(present, function(number, steepness, exponent), 0)

  return step


_STEPS = {
  "O": _step(lambda r, b, a: r),
  "Iu": _step(lambda r, b, a: (1 + r) * jnp.log1p(r)),
  "Ib": _step(lambda r, b, a: (b * r - jnp.log1p(b * r)) / b**2),
  "Ds": _step(lambda r, b, a: jnp.log1p(r)),
  "Dq": _step(lambda r, b, a: -jnp.expm1(-a * jnp.log1p(r))),
}


def pnp_from_similarity(
  similarities: Float[ArrayLike, "queries references"],
  positives: Bool[ArrayLike, "queries references"],
  negatives: Bool[ArrayLike, "queries references"],
  *,
  penalty: Penalty = "O",
  temperature: Real[ArrayLike, ""] = 0.01,
  steepness: Real[ArrayLike, ""] = 2.0,
  exponent: Real[ArrayLike, ""] = 1.0,
  where: Bool[ArrayLike, " queries"] | None = None,
) -> Float[Array, " queries"]:
  """PNP loss from a matrix of similarities.

  The matrix form of `pnp`; a pair in neither mask is ignored. To count a query among
  its own positives, mark it as one.

      r_ij = sum_{k negative} 1 / (1 + exp((S_ij - S_ik) / temperature))
      loss_i = mean_{j positive} f(r_ij)

  Args:
    similarities: [queries, references], floating.
    positives: [queries, references], boolean.
    negatives: [queries, references], boolean.
    penalty: "O", "Iu", "Ib", "Ds" or "Dq". Static.
    temperature: positive, in units of a similarity, may be traced.
    steepness: positive, for "Ib"; may be traced.
    exponent: positive, for "Dq"; may be traced.
    where: [queries], boolean, True keeps. None keeps all.

  Returns:
    [queries], dtype of `similarities`; 0 for masked rows.

  Raises:
    TypeError: similarities are not floating, a mask is not boolean.
    ValueError: shapes do not match, an unknown `penalty`, or a static number that is
      not positive.

  Differentiable in: similarities, temperature, steepness, exponent; in reverse mode,
  once.
  Cost: O(queries references) for each positive of a query.

  Source: Li et al. 2021, "Rethinking the optimization of average precision".

  Example:
    >>> same = jnp.array([[True, False]])
    >>> s = jnp.array([[0.5, 0.5]])
    >>> spherejax.losses.pnp_from_similarity(s, same, ~same)
    Array([0.5], dtype=float32)
  """
  block, dtype = _batch.matrix(
    similarities, positives, negatives, where, "similarities", weights=False
  )
  terms = _terms(penalty, temperature, steepness, exponent, False, block.values.dtype)
  return terms(block).astype(dtype)
