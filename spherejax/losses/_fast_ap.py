"""FastAP: average precision from histograms of distances."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer

from spherejax import _checks, _numerics
from spherejax.losses import _batch, _histograms, _selection
from spherejax.losses._batch import Normalization

_HIGHEST = 4.0
"""The largest squared distance on the unit sphere."""


def fast_ap(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  *,
  bins: int = 10,
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  references: _batch.References | None = None,
  miner: _batch.Miner | None = None,
  block_size: int | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """FastAP loss: one minus the average precision of histograms of squared distances.

  With h+_l the number of positives of anchor i at node l of the histogram, h_l that of
  positives and negatives together, and H+_l, H_l their cumulative sums,

      loss_i = 1 - sum_l h+_l H+_l / H_l / |P_i|

  An example between two nodes counts for both, in proportion to its nearness. The
  average precision is exact if every distance lies on a different node; more bins alone
  do not make it exact.

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer. Only their equality matters.
    bins: number of intervals of [0, 4], at least 1. Static.
    normalize: "l2" (the histogram covers the sphere), "unit_ball" or "none". Static.
    where: [batch], boolean, True keeps. None keeps all.
    references: rows to compare the batch with; None takes the batch itself.
    miner: chooses the pairs that count, given the squared distances. None keeps all.
    block_size: static. Rows per block, recomputed for the gradient; memory is
      block_size x batch. None takes all at once.
    axis_name: mapped axis over which the batch is spread. Each device returns the
      values of its rows, computed in the batch of all devices.

  Returns:
    [batch], dtype of `embeddings`, in [0, 1); 0 for masked rows and rows without a
    positive. `loss.sum()` divided by the number of rows with a positive is the paper's
    scalar.

  Raises:
    TypeError: embeddings are not floating, labels not integers, bins not a static
      integer.
    ValueError: shapes do not match, bins is below 1, or an unknown `normalize`.

  Differentiable in: embeddings; derivative 0 at a node; in reverse mode.
  Cost: O(batch^2 (dim + bins)) time.

  Source: Cakir et al. 2019, "Deep metric learning to rank", eqs. 6 and 9.

  Example:
    >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> spherejax.losses.fast_ap(x, jnp.array([0, 0, 1]))
    Array([0.5, 0.5, 0. ], dtype=float32)
  """
  batch = _batch.batch_of(embeddings, labels, where, normalize, references, axis_name)
  terms = _terms(bins)
  loss = _batch.over_pairs(terms, batch, _batch.squared_euclidean, miner, block_size)
  return loss.astype(batch.dtype)


def _terms(bins: int) -> Callable[[_batch.Block], Array]:
  _checks.count("bins", bins)

  def terms(block: _batch.Block) -> Array:
    near, far = _histograms.histograms(
      block.values, (block.positives, block.negatives), 0.0, _HIGHEST, bins
    )
    # One minus the precision at each node, so that a small loss keeps its digits.
    wrong, right = jnp.cumsum(far, axis=1), jnp.cumsum(near, axis=1)
    missed = jnp.sum(near * _numerics.divide(wrong, wrong + right), axis=1)
    number = _selection.count_over(block.positives, block.values.dtype)
    return _numerics.divide(missed, number)

  return terms


def fast_ap_from_distance(
  distances: Float[ArrayLike, "queries references"],
  positives: _selection.Selection,
  negatives: _selection.Selection,
  *,
  bins: int = 10,
  where: Bool[ArrayLike, " queries"] | None = None,
) -> Float[Array, " queries"]:
  """FastAP loss from a matrix of squared distances.

  The matrix form of `fast_ap`; a pair in neither mask is ignored.

      loss_i = 1 - sum_l h+_l H+_l / H_l / |P_i|

  Args:
    distances: [queries, references], floating, squared; a value above 4 counts as 4.
    positives: [queries, references], boolean, or weights, not differentiated.
    negatives: [queries, references], boolean or weights.
    bins: number of intervals of [0, 4], at least 1. Static.
    where: [queries], boolean, True keeps. None keeps all.

  Returns:
    [queries], dtype of `distances`; 0 for masked rows.

  Raises:
    TypeError: distances are not floating, masks neither boolean nor floating, bins not
      a static integer.
    ValueError: shapes do not match, or bins is below 1.

  Differentiable in: distances; derivative 0 at a node; in reverse mode.
  Cost: O(queries references bins).

  Source: Cakir et al. 2019, "Deep metric learning to rank", eqs. 6 and 9.

  Example:
    >>> same = jnp.array([[True, False]])
    >>> d = jnp.array([[2.0, 1.0]])
    >>> spherejax.losses.fast_ap_from_distance(d, same, ~same)
    Array([0.5], dtype=float32)
  """
  block, dtype = _batch.matrix(distances, positives, negatives, where, "distances")
  return _terms(bins)(block).astype(dtype)
