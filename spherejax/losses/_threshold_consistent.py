"""Threshold-consistent margin loss: a single threshold for all classes."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks
from spherejax.losses import _batch, _selection
from spherejax.losses._batch import Normalization

_Parts = tuple[Array, Array, Array, Array]


def threshold_consistent_margin(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  *,
  positive_margin: Real[ArrayLike, ""] = 0.9,
  negative_margin: Real[ArrayLike, ""] = 0.5,
  positive_weight: Real[ArrayLike, ""] = 1.0,
  negative_weight: Real[ArrayLike, ""] = 1.0,
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  references: _batch.References | None = None,
  miner: _batch.Miner | None = None,
  block_size: int | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Threshold-consistent margin loss, a regulariser to add to another loss.

  Pulls the hard positives above one cosine and pushes the hard negatives below
  another, the same for all classes, so that one threshold serves all of them.

      l+_ij = [positive_margin - S_ij]+   for y_i = y_j, i != j
      l-_ij = [S_ij - negative_margin]+   for y_i != y_j
      loss_i = n (positive_weight sum_j l+_ij / #{l+ > 0}
                  + negative_weight sum_j l-_ij / #{l- > 0})

  with n the number of kept examples and the counts over the whole batch.

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer. Only their equality matters.
    positive_margin: in units of a cosine, may be traced.
    negative_margin: in units of a cosine, may be traced.
    positive_weight: at least 0, may be traced.
    negative_weight: at least 0, may be traced.
    normalize: "l2", "unit_ball" (S is then the dot product of the projected rows)
      or "none". Static.
    where: [batch], boolean, True keeps. None keeps all.
    references: rows to compare the batch with; None takes the batch itself.
    miner: chooses the pairs that count, given the similarities. None keeps all.
    block_size: static. Rows per block, recomputed for the gradient; memory is
      block_size x batch. None takes all at once.
    axis_name: mapped axis over which the batch is spread. Each device returns the
      values of its rows, computed in the batch of all devices.

  Returns:
    [batch], dtype of `embeddings`; 0 for masked rows. `loss.mean()` is the paper's
    scalar (over the kept rows).

  Raises:
    TypeError: embeddings are not floating, labels not integers.
    ValueError: shapes do not match, an unknown `normalize`, or a static weight below 0.

  Differentiable in: embeddings, margins, weights (counts are constants).
  Cost: O(batch^2 dim) time.

  Source: Zhang et al. 2024, "Threshold-consistent margin loss for open-world deep
  metric learning", eq. 4. A pair exactly at its margin does not count.

  Example:
    >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> spherejax.losses.threshold_consistent_margin(x, jnp.array([0, 0, 1]))
    Array([1.425    , 1.5749999, 0.3      ], dtype=float32)
  """
  batch = _batch.batch_of(embeddings, labels, where, normalize, references, axis_name)
  dtype = batch.anchors.dtype
  terms = _hinge_sums(positive_margin, negative_margin, dtype)
  parts = _batch.over_pairs(terms, batch, _batch.dot, miner, block_size, additive=True)
  loss = _weighted(parts, positive_weight, negative_weight, batch.where, axis_name)
  return loss.astype(batch.dtype)


def _hinge_sums(
  positive_margin: ArrayLike, negative_margin: ArrayLike, dtype: jnp.dtype
) -> Callable[[_batch.Block], _Parts]:
  high = _checks.scalar("positive_margin", positive_margin, dtype)
  low = _checks.scalar("negative_margin", negative_margin, dtype)

  def terms(block: _batch.Block) -> _Parts:
    pull, pulled = _selection.hinges(high - block.values, block.positives)
    push, pushed = _selection.hinges(block.values - low, block.negatives)
    return pull, pulled, push, pushed

  return terms


def _weighted(
  parts: _Parts,
  positive_weight: ArrayLike,
  negative_weight: ArrayLike,
  where: Array,
  axis_name: str | None,
) -> Array:
  pull, pulled, push, pushed = parts
  _checks.between("positive_weight", positive_weight, 0)
  a = _checks.scalar("positive_weight", positive_weight, pull.dtype)
  _checks.between("negative_weight", negative_weight, 0)
  b = _checks.scalar("negative_weight", negative_weight, pull.dtype)
  return a * _batch.average_of_active(
    pull, pulled, where, axis_name
  ) + b * _batch.average_of_active(push, pushed, where, axis_name)


def threshold_consistent_margin_from_similarity(
  similarities: Float[ArrayLike, "queries references"],
  positives: _selection.Selection,
  negatives: _selection.Selection,
  *,
  positive_margin: Real[ArrayLike, ""] = 0.9,
  negative_margin: Real[ArrayLike, ""] = 0.5,
  positive_weight: Real[ArrayLike, ""] = 1.0,
  negative_weight: Real[ArrayLike, ""] = 1.0,
  where: Bool[ArrayLike, " queries"] | None = None,
  axis_name: str | None = None,
) -> Float[Array, " queries"]:
  """Threshold-consistent margin loss from a matrix of similarities.

  The matrix form of `threshold_consistent_margin`; a pair in neither mask is ignored.

      loss_i = n (positive_weight sum_{j positive} [positive_margin - S_ij]+ / #{> 0}
                  + negative_weight sum_{j negative} [S_ij - negative_margin]+ / #{> 0})

  with n the number of kept queries and the counts over all of them.

  Args:
    similarities: [queries, references], floating.
    positives: [queries, references], boolean, or weights of the terms, not
      differentiated.
    negatives: [queries, references], boolean or weights.
    positive_margin: in units of a similarity, may be traced.
    negative_margin: in units of a similarity, may be traced.
    positive_weight: at least 0, may be traced.
    negative_weight: at least 0, may be traced.
    where: [queries], boolean, True keeps. None keeps all.
    axis_name: mapped axis over which the queries are spread.

  Returns:
    [queries], dtype of `similarities`; 0 for masked rows.

  Raises:
    TypeError: similarities are not floating, masks neither boolean nor floating.
    ValueError: shapes do not match, or a static weight below 0.

  Differentiable in: similarities, margins, weights. Cost: O(queries references).

  Source: Zhang et al. 2024, "Threshold-consistent margin loss", eq. 4.

  Example:
    >>> same = jnp.array([[True, False]])
    >>> s = jnp.array([[0.5, 0.75]])
    >>> spherejax.losses.threshold_consistent_margin_from_similarity(s, same, ~same)
    Array([0.65], dtype=float32)
  """
  block, dtype = _batch.matrix(
    similarities, positives, negatives, where, "similarities"
  )
  terms = _hinge_sums(positive_margin, negative_margin, block.values.dtype)
  loss = _weighted(
    terms(block), positive_weight, negative_weight, block.where, axis_name
  )
  return loss.astype(dtype)
