"""Dynamic soft margin: triplets weighted by their rank among recent triplets."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _numerics
from spherejax.losses import _batch, _extremes, _histograms, _selection
from spherejax.losses._batch import Normalization

LIMIT = 2.0
"""Largest difference of two distances on the unit sphere."""


def dynamic_soft_margin(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  histogram: Float[ArrayLike, " bins"],
  *,
  momentum: Real[ArrayLike, ""] = 0.01,
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  references: _batch.References | None = None,
  miner: _batch.Miner | None = None,
  block_size: int | None = None,
  axis_name: str | None = None,
) -> tuple[Float[Array, " batch"], Float[Array, " bins"]]:
  """Dynamic soft margin loss: the hardest triplet of each anchor, weighted by rank.

      p = argmax_{y_j = y_i, j != i} D_ij
      t_i = D_ip - min(min_{y_k != y_i} D_ik, min_{y_k != y_p} D_pk)
      loss_i = F(t_i) t_i

  where F is the cumulative distribution of t in the running histogram, which includes
  the triplets of this batch. There is no margin to tune, and the triplets that are hard
  at this stage of training count most. F is a constant for the derivative. With
  `references` only the anchor's negatives count, since the negatives of references are
  not in the batch.

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer. Only their equality matters.
    histogram: [bins], floating, of the triplets so far, as this function returned it;
      512 zeros at the start. Entries stand for t from -2 to 2 at equal steps.
    momentum: share of this batch in the histogram, in [0, 1], may be traced. The first
      batch alone fills the histogram.
    normalize: "l2", "unit_ball" or "none" (t beyond 2 then counts as 2). Static.
    where: [batch], boolean, True keeps. None keeps all.
    references: rows to compare the batch with; None takes the batch itself.
    miner: chooses the pairs that count, given the distances; weights count as True.
      None keeps all.
    block_size: static. Rows per block, recomputed for the gradient; memory is
      block_size x batch. None takes all at once.
    axis_name: mapped axis over which the batch is spread (the histogram is the same
      on all devices); the values are those of the local rows in the batch of all
      devices.

  Returns:
    The values and the next histogram. Values: [batch], dtype of `embeddings`; 0 for
    masked rows and for rows without a positive or without a negative; negative for
    easy triplets. `loss.sum()` divided by the number of rows with both is the paper's
    mean. Histogram: [bins], sums to 1, dtype of `histogram`; unchanged by a batch
    without triplets.

  Raises:
    TypeError: embeddings or histogram are not floating, labels not integers.
    ValueError: shapes do not match, fewer than two bins, an unknown `normalize`, or a
      static momentum outside [0, 1].

  Differentiable in: embeddings, in reverse mode.
  Cost: O(batch^2 dim + batch bins) time.

  Source: Zhang and Rusinkiewicz 2019, "Learning local descriptors with a CDF-based
  dynamic soft margin", eq. 5 to 7. Differs from the paper: a class may have more than
  two rows, the farthest of which is the positive; and rows of both views are anchors.

  Example:
    >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> loss, histogram = spherejax.losses.dynamic_soft_margin(
    ...   x, jnp.array([0, 0, 1]), jnp.zeros(512)
    ... )
    >>> loss
    Array([0.4928215, 0.4928215, 0.       ], dtype=float32)
  """
  batch = _batch.batch_of(embeddings, labels, where, normalize, references, axis_name)
  dtype = batch.anchors.dtype
  _checks.between("momentum", momentum, 0, 1)
  history = _history(histogram)
  share = _checks.scalar("momentum", momentum, dtype)

  far, farthest, near, valid = _batch.over_pairs(
    _hardest, batch, _batch.euclidean, miner, block_size
  )
  if references is None:
    there = _batch.take_rows(_batch.gather(near, axis_name), farthest)
    near = jnp.where(near <= there, near, there)  # a tie takes the first
  loss, updated = _weighted(
    jnp.where(valid, far - near, 0), valid, history.astype(dtype), share, axis_name
  )
  return loss.astype(batch.dtype), updated.astype(history.dtype)


def _hardest(block: _batch.Block) -> tuple[Array, Array, Array, Array]:
  """Farthest positive and its column, nearest negative, and whether both exist."""
  positives, negatives = map(_selection.chosen, (block.positives, block.negatives))
  fixed, size = jax.lax.stop_gradient(block.values), block.values.shape[1]
  farthest = _extremes.where_largest(fixed, positives)
  nearest = _extremes.where_smallest(fixed, negatives)
  far, near = (
    _selection.sum_over(block.values, _extremes.one_hot(index, size))
    for index in (farthest, nearest)
  )
  valid = (farthest < size) & (nearest < size)
  near = jnp.where(nearest < size, near, jnp.inf)
  return far, jnp.where(valid, farthest, 0), near, valid


def _weighted(
  leads: Array, valid: Array, history: Array, momentum: Array, axis_name: str | None
) -> tuple[Array, Array]:
  """Leads times their ranks, and the histogram that ranks them."""
  bins = history.shape[0]
  fixed = jax.lax.stop_gradient(leads)
  nodes = _histograms.Nodes(-LIMIT, LIMIT, bins - 1)
  # A lead between two bins is shared by them.
  (local,) = _histograms.histograms(fixed[None], (valid[None],), *nodes)
  counts = _batch.total(local[0], axis_name)
  number = jnp.sum(counts)

  history = jax.lax.stop_gradient(history)
  total = jnp.sum(history)
  new = jnp.where(total > 0, momentum, 1) * _numerics.divide(counts, number)
  old = jnp.where(total > 0, 1 - momentum, 0) * _numerics.divide(history, total)
  updated = jnp.where(number > 0, old + new, history)
  below, way = nodes.place(fixed)
  rank = jnp.cumsum(updated)[below + (way == 1)]
  return jnp.where(valid, jax.lax.stop_gradient(rank) * leads, 0), updated


def dynamic_soft_margin_from_distance(
  distances: Float[ArrayLike, "queries references"],
  positives: Bool[ArrayLike, "queries references"],
  negatives: Bool[ArrayLike, "queries references"],
  histogram: Float[ArrayLike, " bins"],
  *,
  momentum: Real[ArrayLike, ""] = 0.01,
  where: Bool[ArrayLike, " queries"] | None = None,
  axis_name: str | None = None,
) -> tuple[Float[Array, " queries"], Float[Array, " bins"]]:
  """Dynamic soft margin loss from a matrix of distances.

  The matrix form of `dynamic_soft_margin` against references; a pair in neither mask
  is ignored.

      t_i = max_{j positive} D_ij - min_{k negative} D_ik,    loss_i = F(t_i) t_i

  Args:
    distances: [queries, references], floating.
    positives: [queries, references], boolean.
    negatives: [queries, references], boolean.
    histogram: [bins], floating, as this function returned it; zeros at the start.
    momentum: share of these queries in the histogram, in [0, 1], may be traced.
    where: [queries], boolean, True keeps. None keeps all.
    axis_name: mapped axis over which the queries are spread.

  Returns:
    The values and the next histogram. Values: [queries], dtype of `distances`; 0 for
    masked rows and for rows without a positive or without a negative. Histogram:
    [bins], dtype of `histogram`.

  Raises:
    TypeError: distances or histogram are not floating, masks not boolean.
    ValueError: shapes do not match, fewer than two bins, or a static momentum outside
      [0, 1].

  Differentiable in: distances. Cost: O(queries (references + bins)).

  Source: Zhang and Rusinkiewicz 2019, "Learning local descriptors with a CDF-based
  dynamic soft margin", eq. 5 to 7.

  Example:
    >>> same = jnp.array([[True, False]])
    >>> loss, histogram = spherejax.losses.dynamic_soft_margin_from_distance(
    ...   jnp.array([[0.75, 0.25]]), same, ~same, jnp.zeros(5)
    ... )
    >>> loss, histogram
    (Array([0.25], dtype=float32), Array([0. , 0. , 0.5, 0.5, 0. ], dtype=float32))
  """
  block, dtype = _batch.matrix(
    distances, positives, negatives, where, "distances", weights=False
  )
  _checks.between("momentum", momentum, 0, 1)
  history = _history(histogram)
  far, _, near, valid = _hardest(block)
  loss, updated = _weighted(
    jnp.where(valid, far - near, 0),
    valid,
    history.astype(block.values.dtype),
    _checks.scalar("momentum", momentum, block.values.dtype),
    axis_name,
  )
  return loss.astype(dtype), updated.astype(history.dtype)


def _history(histogram: ArrayLike) -> Array:
  history = _checks.array("histogram", histogram, "floating", rank=1)
  if history.shape[0] < 2:
    raise ValueError(f"histogram must have two bins or more, got {history.shape}")
  return history
