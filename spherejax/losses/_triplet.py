"""The triplet loss over all triplets, without forming them."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int, Real

from spherejax import _checks
from spherejax.losses import _batch

AVERAGES = ("nonzero", "all")


def triplet(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Int[ArrayLike, " batch"],
  *,
  margin: Real[ArrayLike, ""] = 0.05,
  squared: bool = False,
  average: str = "nonzero",
  normalize: str = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  references: _batch.References | None = None,
  miner: _batch.Miner | None = None,
  block_size: int | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Triplet loss over all triplets of the batch.

      T_apq = D_ap - D_aq + margin,   y_a = y_p, a != p,   y_a != y_q
      loss_a = n sum_pq [T_apq]+ / #{T > 0}      "nonzero"
      loss_a = n sum_pq [T_apq]+ / #{T}          "all"

  with n the number of kept examples and the counts over the whole batch.

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer. Only their equality matters.
    margin: unit of the distance, may be traced. 0.05 is DML's, for plain distances;
      0.2 is FaceNet's, for squared ones.
    squared: True compares squared distances. Static.
    average: "nonzero" divides by the number of triplets that violate the margin,
      "all" by the number of triplets. Static.
    normalize: "l2", "unit_ball" (what DML uses) or "none". Static.
    where: [batch], boolean, True keeps. None keeps all.
    references: what the batch is compared with. None is the batch itself.
    miner: chooses the pairs that count, of the distances. None keeps all.
    block_size: static. Rows at a time, computed again for the gradient; memory is
      block_size x batch. None takes all at once.
    axis_name: mapped axis over which the batch is spread; the values are those of
      the local rows in the batch of all devices.

  Returns:
    [batch], dtype of `embeddings`; 0 for masked rows and for anchors without a
    positive or without a negative. `loss.mean()` is the paper's scalar.

  Raises:
    TypeError: embeddings are not floating, labels not integers.
    ValueError: shapes do not match, or an unknown `average` or `normalize`.

  Differentiable in: embeddings, margin (counts are constants).
  Cost: O(batch^2 (dim + log batch)) time, O(batch^2) memory: the negatives of an
  anchor are sorted, the triplets are never formed.

  Source: DML 2.1.2; Schroff et al. 2015, "FaceNet".

  Example:
    >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> spherejax.losses.triplet(x, jnp.array([0, 0, 1]))
    Array([0.85467947, 1.2476369 , 0.        ], dtype=float32)
  """
  _checks.one_of("average", average, AVERAGES)
  batch = _batch.batch_of(embeddings, labels, where, normalize, references, axis_name)
  measure = _batch.squared_euclidean if squared else _batch.euclidean
  terms = _triplet_terms(margin, average, batch.anchors.dtype)
  sums, counts = _batch.over_pairs(terms, batch, measure, miner, block_size)
  loss = _batch.average_of_active(sums, counts, batch.where, axis_name)
  return loss.astype(batch.dtype)


def _triplet_terms(
  margin: ArrayLike, average: str, dtype: jnp.dtype
) -> Callable[[_batch.Block], tuple[Array, Array]]:
  """Sum of the hinges of each row's triplets, and the number to average over."""
  m = _checks.scalar("margin", margin, dtype)

  def terms(block: _batch.Block) -> tuple[Array, Array]:
    apart, limits = block.values, block.values + m
    # The gradient of a sum of hinges is its number of active terms. With these counts,
    # which are found in sorted rows and are not differentiated, the sum over triplets
    # is a sum over positives minus one over negatives.
    near, far = (jax.lax.stop_gradient(x) for x in (limits, apart))
    far = jnp.where(jnp.isnan(far), -jnp.inf, far)  # active, so that NaN is seen
    negatives = jnp.sort(jnp.where(block.negatives, far, jnp.inf), axis=1)
    positives = jnp.sort(jnp.where(block.positives, near, -jnp.inf), axis=1)
    below = jax.vmap(lambda row, x: jnp.searchsorted(row, x, side="left"))
    up_to = jax.vmap(lambda row, x: jnp.searchsorted(row, x, side="right"))
    pulled = jnp.where(block.positives, below(negatives, near), 0)
    above = apart.shape[1] - up_to(positives, far)
    pushed = jnp.where(block.negatives, above, 0).astype(dtype)
    counts = pulled.astype(dtype)
    # Both counts have one sum, so both sides may be measured from the nearest
    # negative: then no term is larger than the largest hinge, and small hinges keep
    # their digits.
    nearest = negatives[:, :1]
    origin = jnp.where(jnp.isfinite(nearest), nearest, 0)
    sums = jnp.where(block.positives, counts * (limits - origin), 0)
    sums -= jnp.where(pushed > 0, pushed * (apart - origin), 0)
    if average == "all":
      available = jnp.sum(block.negatives, axis=1, dtype=jnp.int32).astype(dtype)
      counts = jnp.where(block.positives, available[:, None], 0)
    return jnp.sum(sums, axis=1), jnp.sum(counts, axis=1)

  return terms


def triplet_from_distance(
  distances: Float[ArrayLike, "queries references"],
  positives: Bool[ArrayLike, "queries references"],
  negatives: Bool[ArrayLike, "queries references"],
  *,
  margin: Real[ArrayLike, ""] = 0.05,
  average: str = "nonzero",
  where: Bool[ArrayLike, " queries"] | None = None,
  axis_name: str | None = None,
) -> Float[Array, " queries"]:
  """Triplet loss over all triplets from a matrix of distances.

  The matrix form of `triplet`; a pair in neither mask is ignored.

      loss_a = n sum_pq [D_ap - D_aq + margin]+ / #{> 0}      "nonzero"
      loss_a = n sum_pq [D_ap - D_aq + margin]+ / #{p, q}     "all"

  with n the number of kept queries and the counts over all of them.

  Args:
    distances: [queries, references], floating; plain or squared.
    positives: [queries, references], boolean.
    negatives: [queries, references], boolean.
    margin: unit of the distances, may be traced.
    average: "nonzero" or "all". Static.
    where: [queries], boolean, True keeps. None keeps all.
    axis_name: mapped axis over which the queries are spread.

  Returns:
    [queries], dtype of `distances`; 0 for masked rows.

  Raises:
    TypeError: distances are not floating, a mask is not boolean.
    ValueError: shapes do not match, or an unknown `average`.

  Differentiable in: distances, margin. Cost: O(queries references log references).

  Source: DML 2.1.2; Schroff et al. 2015, "FaceNet".

  Example:
    >>> same = jnp.array([[True, False]])
    >>> spherejax.losses.triplet_from_distance(jnp.array([[0.5, 0.25]]), same, ~same)
    Array([0.3], dtype=float32)
  """
  _checks.one_of("average", average, AVERAGES)
  block, dtype = _batch.matrix(distances, positives, negatives, where, "distances")
  sums, counts = _triplet_terms(margin, average, block.values.dtype)(block)
  loss = _batch.average_of_active(sums, counts, block.where, axis_name)
  return loss.astype(dtype)
