"""Intra-pair variance loss: makes positive cosines alike and negative ones alike."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _numerics
from spherejax.losses import _batch, _selection
from spherejax.losses._batch import Normalization


def intra_pair_variance(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  *,
  positive_tolerance: Real[ArrayLike, ""] = 0.01,
  negative_tolerance: Real[ArrayLike, ""] = 0.01,
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  references: _batch.References | None = None,
  miner: _batch.Miner | None = None,
  block_size: int | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Intra-pair variance loss, a regulariser for the tuplet margin loss.

      l+_ij = [(1 - positive_tolerance) m+ - S_ij]+^2   for y_i = y_j, i != j
      l-_ij = [S_ij - (1 + negative_tolerance) m-]+^2   for y_i != y_j
      loss_i = n (sum_j l+_ij / #{positive pairs} + sum_j l-_ij / #{negative pairs})

  with m+ and m- the mean similarities of all positive and of all negative pairs,
  which are differentiated, and n the number of kept examples.

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer. Only their equality matters.
    positive_tolerance: at least 0, share of the mean by which a positive may fall
      short of it, may be traced.
    negative_tolerance: at least 0, share of the mean by which a negative may exceed
      it, may be traced.
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
    ValueError: shapes do not match, an unknown `normalize`, or a static tolerance
      below 0.

  Differentiable in: embeddings, tolerances.
  Cost: O(batch^2 dim) time; in blocks every similarity is computed twice.

  Source: Yu and Tao 2019, "Deep metric learning with tuplet margin loss", section 3.3.

  Example:
    >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> spherejax.losses.intra_pair_variance(x, jnp.array([0, 0, 1]))
    Array([0.        , 0.00649, 0.00649], dtype=float32)
  """
  batch = _batch.batch_of(embeddings, labels, where, normalize, references, axis_name)
  tolerances = positive_tolerance, negative_tolerance, batch.anchors.dtype

  def of_all(block: _batch.Block) -> Array:
    means = _means(_sums(block), axis_name)
    parts = _deviations(means, *tolerances)(block)
    return _shares(parts, means, batch.where, axis_name)

  if block_size is None:
    # All rows at once: the similarities and their gradient are computed only once.
    loss = _batch.over_pairs(of_all, batch, _batch.dot, miner)
    return loss.astype(batch.dtype)
  sums = _batch.over_pairs(_sums, batch, _batch.dot, miner, block_size, additive=True)
  means = _means(sums, axis_name)
  terms = _deviations(means, *tolerances)
  parts = _batch.over_pairs(terms, batch, _batch.dot, miner, block_size, additive=True)
  return _shares(parts, means, batch.where, axis_name).astype(batch.dtype)


class _Means(NamedTuple):
  """Mean similarity and number of the pairs of all devices."""

  positive: Array
  positives: Array
  negative: Array
  negatives: Array


def _sums(block: _batch.Block) -> tuple[Array, Array, Array, Array]:
  dtype = block.values.dtype
  return (
    _selection.sum_over(block.values, block.positives),
    _selection.count_over(block.positives, dtype),
    _selection.sum_over(block.values, block.negatives),
    _selection.count_over(block.negatives, dtype),
  )


def _means(sums: tuple[Array, Array, Array, Array], axis_name: str | None) -> _Means:
  totals = [jnp.sum(part) for part in sums]
  if axis_name is not None:
    totals = jax.lax.psum(totals, axis_name)  # differentiated, unlike a count
  near, positives, far, negatives = totals
  return _Means(
    _numerics.divide(near, positives),
    positives,
    _numerics.divide(far, negatives),
    negatives,
  )


def _deviations(
  means: _Means,
  positive_tolerance: ArrayLike,
  negative_tolerance: ArrayLike,
  dtype: jnp.dtype,
) -> Callable[[_batch.Block], tuple[Array, Array]]:
  _checks.between("positive_tolerance", positive_tolerance, 0)
  low = _checks.scalar("positive_tolerance", positive_tolerance, dtype)
  _checks.between("negative_tolerance", negative_tolerance, 0)
  high = _checks.scalar("negative_tolerance", negative_tolerance, dtype)

  def terms(block: _batch.Block) -> tuple[Array, Array]:
    short = jax.nn.relu((1 - low) * means.positive - block.values)
    over = jax.nn.relu(block.values - (1 + high) * means.negative)
    return (
      _selection.sum_over(short**2, block.positives),
      _selection.sum_over(over**2, block.negatives),
    )

  return terms


def _shares(
  parts: tuple[Array, Array], means: _Means, where: Array, axis_name: str | None
) -> Array:
  rows = _batch.number(where[:, None], axis_name, parts[0].dtype)
  return _numerics.divide(rows * parts[0], means.positives) + _numerics.divide(
    rows * parts[1], means.negatives
  )


def intra_pair_variance_from_similarity(
  similarities: Float[ArrayLike, "queries references"],
  positives: _selection.Selection,
  negatives: _selection.Selection,
  *,
  positive_tolerance: Real[ArrayLike, ""] = 0.01,
  negative_tolerance: Real[ArrayLike, ""] = 0.01,
  where: Bool[ArrayLike, " queries"] | None = None,
  axis_name: str | None = None,
) -> Float[Array, " queries"]:
  """Intra-pair variance loss from a matrix of similarities.

  The matrix form of `intra_pair_variance`; a pair in neither mask is ignored.

      loss_i = n sum_{j positive} [(1 - positive_tolerance) m+ - S_ij]+^2 / #positive
               + n sum_{j negative} [S_ij - (1 + negative_tolerance) m-]+^2 / #negative

  with m+ and m- the mean similarities of the positive and of the negative pairs.

  Args:
    similarities: [queries, references], floating.
    positives: [queries, references], boolean, or weights of the terms (in the means
      too), not differentiated.
    negatives: [queries, references], boolean or weights.
    positive_tolerance: at least 0, share of the mean, may be traced.
    negative_tolerance: at least 0, share of the mean, may be traced.
    where: [queries], boolean, True keeps. None keeps all.
    axis_name: mapped axis over which the queries are spread.

  Returns:
    [queries], dtype of `similarities`; 0 for masked rows.

  Raises:
    TypeError: similarities are not floating, masks neither boolean nor floating.
    ValueError: shapes do not match, or a static tolerance below 0.

  Differentiable in: similarities, tolerances. Cost: O(queries references).

  Source: Yu and Tao 2019, "Deep metric learning with tuplet margin loss", section 3.3.

  Example:
    >>> same = jnp.array([[True, True, False]])
    >>> s = jnp.array([[0.5, 1.0, 0.25]])
    >>> spherejax.losses.intra_pair_variance_from_similarity(s, same, ~same)
    Array([0.02940313], dtype=float32)
  """
  block, dtype = _batch.matrix(
    similarities, positives, negatives, where, "similarities"
  )
  means = _means(_sums(block), axis_name)
  terms = _deviations(means, positive_tolerance, negative_tolerance, block.values.dtype)
  return _shares(terms(block), means, block.where, axis_name).astype(dtype)
