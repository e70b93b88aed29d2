"""Multi-similarity loss: pairs weighted by their similarity relative to other pairs."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _numerics
from spherejax.losses import _batch, _selection
from spherejax.losses._batch import Normalization


def multi_similarity(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  *,
  positive_scale: Real[ArrayLike, ""] = 2.0,
  negative_scale: Real[ArrayLike, ""] = 50.0,
  threshold: Real[ArrayLike, ""] = 0.5,
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  references: _batch.References | None = None,
  miner: _batch.Miner | None = None,
  block_size: int | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Multi-similarity loss: weights each pair by its similarity relative to the others.

      loss_i = log(1 + sum_{j: y_j = y_i, j != i} exp(-a (S_ij - t))) / a
             + log(1 + sum_{j: y_j != y_i} exp(b (S_ij - t))) / b

  with a = positive_scale, b = negative_scale, t = threshold. As b grows the second
  term tends to the hinge of the hardest negative, [max_j S_ij - t]+.

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer. Only their equality matters.
    positive_scale: positive, may be traced.
    negative_scale: positive, may be traced.
    threshold: similarity around which pairs begin to count, may be traced.
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
    [batch], dtype of `embeddings`; 0 for masked rows. A row without positives keeps
    its negative part, and conversely. `loss.mean()` is the paper's scalar.

  Raises:
    TypeError: embeddings are not floating, labels not integers.
    ValueError: shapes do not match, an unknown `normalize`, or a static scale that
      is not positive.

  Differentiable in: embeddings, scales, threshold.
  Cost: O(batch^2 dim) time.

  Source: DML 2.1.1 and 3.3.2.1; Wang et al. 2019, "Multi-similarity loss with general
  pair weighting for deep metric learning", eq. 15. All pairs count, as in DML.

  Example:
    >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> loss = spherejax.losses.multi_similarity(x, jnp.array([0, 0, 1]))
    >>> [f"{value:.4f}" for value in loss]
    ['0.7568', '0.9566', '0.3000']
  """
  batch = _batch.batch_of(embeddings, labels, where, normalize, references, axis_name)
  terms = _multi_similarity(
    positive_scale, negative_scale, threshold, batch.anchors.dtype
  )
  loss = _batch.over_pairs(terms, batch, _batch.dot, miner, block_size)
  return loss.astype(batch.dtype)


def _multi_similarity(
  positive_scale: ArrayLike,
  negative_scale: ArrayLike,
  threshold: ArrayLike,
  dtype: jnp.dtype,
) -> Callable[[_batch.Block], Array]:
  _checks.positive("positive_scale", positive_scale)
  _checks.positive("negative_scale", negative_scale)
  a = _checks.scalar("positive_scale", positive_scale, dtype)
  b = _checks.scalar("negative_scale", negative_scale, dtype)
  t = _checks.scalar("threshold", threshold, dtype)

  def terms(block: _batch.Block) -> Array:
    above = block.values - t
    pull = (
      _numerics.softplus(_selection.logsumexp_over(-a * above, block.positives)) / a
    )
    push = _numerics.softplus(_selection.logsumexp_over(b * above, block.negatives)) / b
    return pull + push

  return terms


def multi_similarity_from_similarity(
  similarities: Float[ArrayLike, "queries references"],
  positives: _selection.Selection,
  negatives: _selection.Selection,
  *,
  positive_scale: Real[ArrayLike, ""] = 2.0,
  negative_scale: Real[ArrayLike, ""] = 50.0,
  threshold: Real[ArrayLike, ""] = 0.5,
  where: Bool[ArrayLike, " queries"] | None = None,
) -> Float[Array, " queries"]:
  """Multi-similarity loss from a matrix of similarities.

  The matrix form of `multi_similarity`; a pair in neither mask is ignored.

      loss_i = log(1 + sum_{j positive} exp(-a (S_ij - t))) / a
             + log(1 + sum_{j negative} exp(b (S_ij - t))) / b

  Args:
    similarities: [queries, references], floating.
    positives: [queries, references], boolean, or weights of the terms, not
      differentiated.
    negatives: [queries, references], boolean or weights.
    positive_scale: positive, may be traced (a).
    negative_scale: positive, may be traced (b).
    threshold: in units of a similarity, may be traced (t).
    where: [queries], boolean, True keeps. None keeps all.

  Returns:
    [queries], dtype of `similarities`; 0 for masked rows.

  Raises:
    TypeError: similarities are not floating, masks neither boolean nor floating.
    ValueError: shapes do not match, or a static scale that is not positive.

  Differentiable in: similarities, scales, threshold. Cost: O(queries references).

  Source: Wang et al. 2019, "Multi-similarity loss", eq. 15.

  Example:
    >>> same = jnp.array([[True, False]])
    >>> s = jnp.array([[0.5, 0.5]])
    >>> spherejax.losses.multi_similarity_from_similarity(s, same, ~same)
    Array([0.36043653], dtype=float32)
  """
  block, dtype = _batch.matrix(
    similarities, positives, negatives, where, "similarities"
  )
  terms = _multi_similarity(
    positive_scale, negative_scale, threshold, block.values.dtype
  )
  return terms(block).astype(dtype)
