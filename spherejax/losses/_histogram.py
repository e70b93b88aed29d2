"""Histogram loss, from histograms of positive and of negative similarities."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer

from spherejax import _checks, _numerics
from spherejax.losses import _batch, _histograms, _selection
from spherejax.losses._batch import Normalization


def histogram(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  *,
  bins: int = 100,
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  references: _batch.References | None = None,
  miner: _batch.Miner | None = None,
  block_size: int | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Histogram loss: probability that a negative pair is more similar than a positive.

  With h+ and h- the histograms of the similarities of all positive and all negative
  pairs of the batch, each of sum 1, on bins + 1 nodes from -1 to 1,

      L = sum_r h-_r sum_{q <= r} h+_q

  The value of row i is half the contribution of its negatives to L plus half that of
  its positives, times the number of kept rows.

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer. Only their equality matters.
    bins: number of intervals of [-1, 1], at least 1. Static.
    normalize: "l2", "unit_ball" or "none". Static.
    where: [batch], boolean, True keeps. None keeps all.
    references: rows to compare the batch with; None takes the batch itself.
    miner: chooses the pairs that count, given the similarities. None keeps all.
    block_size: static. Rows per block, recomputed for the gradient; memory is
      block_size x batch. None takes all at once.
    axis_name: mapped axis over which the batch is spread. Each device returns the
      values of its rows, computed in the batch of all devices.

  Returns:
    [batch], dtype of `embeddings`; 0 for masked rows, and for all rows if the batch has
    no positive or no negative pair. `loss.mean()` is the paper's scalar.

  Raises:
    TypeError: embeddings are not floating, labels not integers, bins not a static
      integer.
    ValueError: shapes do not match, bins is below 1, or an unknown `normalize`.

  Differentiable in: embeddings; derivative 0 at a node; in reverse mode.
  Cost: O(batch^2 (dim + bins)) time.

  Source: Ustinova & Lempitsky 2016, "Learning deep embeddings with histogram loss",
  eqs. 1 to 4.

  Example:
    >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> spherejax.losses.histogram(x, jnp.array([0, 0, 1]), bins=10).round(2)
    Array([1.12, 1.12, 0.75], dtype=float32)
  """
  batch = _batch.batch_of(embeddings, labels, where, normalize, references, axis_name)
  parts = _batch.over_pairs(_terms(bins), batch, _batch.dot, miner, block_size)
  loss = _overlap(parts, batch.where, axis_name)
  return loss.astype(batch.dtype)


def _terms(bins: int) -> Callable[[_batch.Block], tuple[Array, ...]]:
  """Histograms of each row's positives and negatives, and the numbers of both."""
  _checks.count("bins", bins)

  def terms(block: _batch.Block) -> tuple[Array, ...]:
    selections = block.positives, block.negatives
    return (
      *_histograms.histograms(block.values, selections, -1.0, 1.0, bins),
      *(
        _selection.count_over(selection, block.values.dtype) for selection in selections
      ),
    )

  return terms


def _overlap(parts: tuple[Array, ...], where: Array, axis_name: str | None) -> Array:
  near, far, positives, negatives = parts
  near, far = (
    _numerics.divide(rows, _batch.total(jnp.sum(counts), axis_name))
    for rows, counts in ((near, positives), (far, negatives))
  )
  rows = _batch.number(where[:, None], axis_name, near.dtype)
  below = jnp.cumsum(near, axis=1)
  # Gathered, not summed over devices: the sums are differentiated.
  all_below, all_far = (
    jnp.sum(_batch.gather(jnp.sum(x, axis=0, keepdims=True), axis_name), axis=0)
    for x in (below, far)
  )
  shares = far * all_below[None] + below * all_far[None]
  return rows / 2 * jnp.sum(shares, axis=1)


def histogram_from_similarity(
  similarities: Float[ArrayLike, "queries references"],
  positives: _selection.Selection,
  negatives: _selection.Selection,
  *,
  bins: int = 100,
  where: Bool[ArrayLike, " queries"] | None = None,
  axis_name: str | None = None,
) -> Float[Array, " queries"]:
  """Histogram loss from a matrix of similarities.

  The matrix form of `histogram`; a pair in neither mask is ignored.

      L = sum_r h-_r sum_{q <= r} h+_q

  Args:
    similarities: [queries, references], floating; a value outside [-1, 1] counts as the
      nearer end.
    positives: [queries, references], boolean, or weights, not differentiated.
    negatives: [queries, references], boolean or weights.
    bins: number of intervals of [-1, 1], at least 1. Static.
    where: [queries], boolean, True keeps. None keeps all.
    axis_name: mapped axis over which the queries are spread.

  Returns:
    [queries], dtype of `similarities`; 0 for masked rows.

  Raises:
    TypeError: similarities are not floating, masks neither boolean nor floating, bins
      not a static integer.
    ValueError: shapes do not match, or bins is below 1.

  Differentiable in: similarities; derivative 0 at a node; in reverse mode.
  Cost: O(queries references bins).

  Source: Ustinova & Lempitsky 2016, "Learning deep embeddings with histogram loss".

  Example:
    >>> same = jnp.array([[True, False]])
    >>> s = jnp.array([[0.0, 0.5]])
    >>> spherejax.losses.histogram_from_similarity(s, same, ~same)
    Array([1.], dtype=float32)
  """
  block, dtype = _batch.matrix(
    similarities, positives, negatives, where, "similarities"
  )
  loss = _overlap(_terms(bins)(block), block.where, axis_name)
  return loss.astype(dtype)
