"""Normalised mutual information of two partitions."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer

from spherejax import _checks


def normalized_mutual_information(
  labels: Integer[ArrayLike, " n"],
  clusters: Integer[ArrayLike, " n"],
  *,
  where: Bool[ArrayLike, " n"] | None = None,
) -> Float[Array, ""]:
  """Normalised mutual information (NMI) of classes and clusters.

      I = sum_ab n_ab / n log(n n_ab / (n_a n_b)),    H(a) = -sum_a n_a / n log(n_a / n)
      NMI = 2 I / (H(labels) + H(clusters))

  with n_ab examples of class a in cluster b. For embeddings, clusters are usually those
  of `solvers.k_means` with as many clusters as there are classes.

  Args:
    labels: [n], integer, any numbers.
    clusters: [n], integer, any numbers.
    where: [n], boolean, True keeps. None keeps all.

  Returns:
    Scalar in [0, 1], in the default type; 1 if both have a single block, 0 if only one
    of them does, NaN without a kept row.

  Raises:
    TypeError: labels or clusters not integers, where not boolean.
    ValueError: shapes do not match.

  Differentiable in: nothing. Cost: O(n log n).

  Source: Manning, Raghavan, Schuetze 2008, "Introduction to information retrieval",
  section 16.3; `sklearn.metrics.normalized_mutual_info_score` (arithmetic).

  Example:
    >>> labels, clusters = jnp.array([0, 0, 1, 1]), jnp.array([7, 7, 7, 3])
    >>> spherejax.metrics.normalized_mutual_information(labels, clusters)
    Array(0.3437, dtype=float32)
  """
  (labels,) = _checks.names(("labels", labels))
  (clusters,) = _checks.names(("clusters", clusters))
  _checks.expect("labels", labels, "integer", rank=1)
  _checks.labels(clusters, labels, "clusters")
  mask = _checks.where_mask(where, labels.shape)
  return _information(labels, clusters, mask)


@jax.jit
def _information(labels: Array, clusters: Array, mask: Array) -> Array:
  dtype = jnp.result_type(float)
  n = jnp.sum(mask).astype(dtype)
  of_label, of_cluster, of_both = (
    jnp.where(mask, _block_sizes(keys, mask), 1).astype(dtype)
    for keys in ((labels,), (clusters,), (labels, clusters))
  )

  def mean(x: Array) -> Array:
    return jnp.sum(jnp.where(mask, x, 0)) / n

  # The sums over cells are computed as means over rows.
  shared = mean(jnp.log(n * of_both / (of_label * of_cluster)))
  entropy = mean(jnp.log(n / of_label)) + mean(jnp.log(n / of_cluster))
  several = entropy > 0
  share = 2 * jnp.maximum(shared, 0) / jnp.where(several, entropy, 1)
  information = jnp.where(several, jnp.minimum(share, 1), 1)
  return jnp.where(n > 0, information, jnp.nan)


def _block_sizes(keys: tuple[Array, ...], mask: Array) -> Array:
  """Number of kept rows that have the same keys as each row."""
  number = len(mask)
  if not number:
    return jnp.zeros(0, jnp.int32)
  order = jnp.lexsort(keys)
  changed = [key[order][1:] != key[order][:-1] for key in keys]
  first = jnp.concatenate([jnp.zeros(1, bool), jnp.any(jnp.stack(changed), axis=0)])
  block = jnp.cumsum(first)
  sizes = jax.ops.segment_sum(mask[order].astype(jnp.int32), block, number)
  return jnp.zeros(number, jnp.int32).at[order].set(sizes[block])
