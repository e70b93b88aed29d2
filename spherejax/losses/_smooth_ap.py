"""Smooth-AP loss: average precision with sigmoids in place of comparisons."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _numerics
from spherejax.losses import _batch, _extremes, _positives, _selection
from spherejax.losses._batch import Normalization


def smooth_ap(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  *,
  temperature: Real[ArrayLike, ""] = 0.01,
  include_self: bool = False,
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  references: _batch.References | None = None,
  miner: _batch.Miner | None = None,
  block_size: int | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Smooth-AP loss: 1 minus average precision, with ranks counted by sigmoids.

      g(u) = 1 / (1 + exp(-u / temperature))
      r+_ij = 1 + sum_{k positive, k != j} g(S_ik - S_ij)
      r-_ij = sum_{k negative} g(S_ik - S_ij)
      loss_i = 1 - mean_{j positive} r+_ij / (r+_ij + r-_ij)

  As the temperature goes to 0, the loss tends to 1 minus the average precision.

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer. Only their equality matters.
    temperature: positive, in units of a similarity, may be traced.
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
    [batch], dtype of `embeddings`, in [0, 1); 0 for masked rows and rows without a
    positive. `loss.sum()` divided by the number of rows with a positive is the paper's
    scalar. With `include_self` every kept row of a batch that is compared with itself
    has a positive, and the divisor is the number of kept rows.

  Raises:
    TypeError: embeddings are not floating, labels not integers, include_self not
      boolean.
    ValueError: shapes do not match, an unknown `normalize`, or a static temperature
      that is not positive.

  Differentiable in: embeddings, temperature; in reverse mode, once.
  Cost: O(batch^2 (dim + largest class)) time and O(batch^2) memory: one pass over the
  matrix for each positive of a row. Classes may have any size and rows any order.

  Source: Brown et al. 2020, "Smooth-AP: smoothing the path towards large-scale image
  retrieval", eq. 7.

  Example:
    >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> spherejax.losses.smooth_ap(x, jnp.array([0, 0, 1]))
    Array([0.5, 0.5, 0. ], dtype=float32)
  """
  _checks.flag("include_self", include_self)
  batch = _batch.batch_of(embeddings, labels, where, normalize, references, axis_name)
  terms = _terms(temperature, include_self, batch.anchors.dtype)
  loss = _batch.over_pairs(terms, batch, _batch.dot, miner, block_size)
  return loss.astype(batch.dtype)


def _terms(
  temperature: ArrayLike, include_self: bool, dtype: jnp.dtype
) -> Callable[[_batch.Block], Array]:
  _checks.positive("temperature", temperature)
  width = _checks.scalar("temperature", temperature, dtype)

  def terms(block: _batch.Block) -> Array:
    near, far = with_itself(block, include_self)
    operands = block.values, width
    missed = _positives.sum_over(_missed, near, (near, far), operands)
    return _numerics.divide(missed, _selection.count_over(near, dtype))

  return terms


def _missed(
  index: Array, masks: tuple[Array, Array], operands: tuple[Array, Array]
) -> Array:
  """[rows]: one minus the precision at one positive of each row; 0 without one."""
  positives, negatives = masks
  above = ranks_above(index, operands)
  hit = _extremes.one_hot(index, above.shape[1])
  positive_rank = 1 + _numerics.masked_sum(above, positives & ~hit)
  others = _numerics.masked_sum(above, negatives)
  return jnp.where(
    _positives.exists(index, above), others / (positive_rank + others), 0
  )


def ranks_above(index: Array, operands: tuple[Array, Array]) -> Array:
  """Soft comparisons [rows, references] of each entry with the entry at `index`."""
  values, temperature = operands
  return jax.nn.sigmoid((values - _positives.pick(values, index)) / temperature)


def with_itself(block: _batch.Block, include_self: bool) -> tuple[Array, Array]:
  """Masks of positives, with the example itself if requested, and of negatives."""
  positives, negatives = map(_selection.chosen, (block.positives, block.negatives))
  if include_self and block.itself is not None:
    positives |= block.itself
  return positives, negatives


def smooth_ap_from_similarity(
  similarities: Float[ArrayLike, "queries references"],
  positives: Bool[ArrayLike, "queries references"],
  negatives: Bool[ArrayLike, "queries references"],
  *,
  temperature: Real[ArrayLike, ""] = 0.01,
  where: Bool[ArrayLike, " queries"] | None = None,
) -> Float[Array, " queries"]:
  """Smooth-AP loss from a matrix of similarities.

  The matrix form of `smooth_ap`; a pair in neither mask is ignored. To count a query
  among its own positives, mark it as one.

      loss_i = 1 - mean_{j positive} r+_ij / (r+_ij + r-_ij)

  Args:
    similarities: [queries, references], floating.
    positives: [queries, references], boolean.
    negatives: [queries, references], boolean.
    temperature: positive, in units of a similarity, may be traced.
    where: [queries], boolean, True keeps. None keeps all.

  Returns:
    [queries], dtype of `similarities`; 0 for masked rows.

  Raises:
    TypeError: similarities are not floating, a mask is not boolean.
    ValueError: shapes do not match, or a static temperature that is not positive.

  Differentiable in: similarities, temperature; in reverse mode, once.
  Cost: O(queries references) for each positive of a query.

  Source: Brown et al. 2020, "Smooth-AP", eq. 7.

  Example:
    >>> same = jnp.array([[True, False]])
    >>> s = jnp.array([[0.5, 0.5]])
    >>> spherejax.losses.smooth_ap_from_similarity(s, same, ~same)
    Array([0.3333333], dtype=float32)
  """
  block, dtype = _batch.matrix(
    similarities, positives, negatives, where, "similarities", weights=False
  )
  return _terms(temperature, False, block.values.dtype)(block).astype(dtype)
