"""Hierarchical similarity: retrieval judged by similarities between classes."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _numerics
from spherejax.distances._order import Distance
from spherejax.metrics import _nearest


class HierarchicalSimilarity(NamedTuple):
  """Result of `hierarchical_similarity`."""

  values: Float[Array, "queries k"]
  """HS@1 to HS@k of every query; 0 where `counted` is False."""
  counted: Bool[Array, " queries"]
  """True if the query has a reference at all, and a label in range."""


def hierarchical_similarity(
  embeddings: Float[ArrayLike, "queries dim"],
  labels: Integer[ArrayLike, " queries"],
  class_similarities: Real[ArrayLike, "classes classes"],
  *,
  k: int = 250,
  distance: Distance = "cosine",
  block_size: int = 128,
) -> HierarchicalSimilarity:
  """Hierarchical similarity (HS@1 ... HS@k): similarity of the k nearest over the best.

      HS@k_i = sum_{r <= k} s(y_i, y_(r)) / sum_{r <= k} (r-th largest s(y_i, y_j))

  All examples are queries, and also references for the other queries. (r) is the r-th
  nearest reference; the query itself is left out by its index, and ties go to the
  lowest index. The best order for a query depends only on its class and the class
  sizes. The similarities are positive, so a random order does not score 0.

  Args:
    embeddings: [queries, dim], floating.
    labels: [queries], integer in [0, classes).
    class_similarities: [classes, classes], above 0: `hierarchy.chordal_similarities`,
      or one minus `hierarchy.lca_distances`, which may be 0 for a dissimilar class.
    k: static. Beyond the number of references, the whole list counts.
    distance: "cosine" (of the angle between rows), "squared_euclidean" or "dot".
      Static.
    block_size: static. Queries ranked at once; memory is block_size x queries.

  Returns:
    HierarchicalSimilarity(values, counted), values in [0, 1] and in the dtype of
    `embeddings`. For example HS@50 is `mean_where(values[:, 49], counted)`. A query
    whose best sum is still 0 has the value 0 there. An example with a NaN or infinite
    entry retrieves nothing and is never retrieved, nor is one with a traced label out
    of range, which does not count.

  Raises:
    TypeError: embeddings not floating, labels not integers.
    ValueError: shapes do not match, a known label out of range, or an unknown distance.

  Differentiable in: nothing. Cost: O(queries^2 (dim + log queries)) time, O(queries k)
  memory beyond the blocks.

  Source: Barz and Denzler 2019, "Hierarchy-based image embeddings for semantic image
  retrieval", eq. 8; DIST IV eq. 15.

  Example:
    >>> x = jnp.array([[1.0, 0.0], [1.0, 0.1], [1.0, 0.2], [0.0, 1.0]])
    >>> similarities = jnp.array([[1.0, 0.5], [0.5, 1.0]])
    >>> spherejax.metrics.hierarchical_similarity(
    ...   x, jnp.array([0, 1, 0, 1]), similarities, k=2).values
    Array([[0.5      , 1.       ],
           [0.5      , 0.6666667],
           [0.5      , 1.       ],
           [0.5      , 1.       ]], dtype=float32)
  """
  embeddings = _checks.array("embeddings", embeddings, "floating", rank=2)
  _checks.count("k", k)
  dtype = _numerics.compute_dtype(embeddings.dtype)
  similar = _checks.array("class_similarities", class_similarities, "real", rank=2)
  classes = len(similar)
  _checks.shape("class_similarities", similar, (classes, classes), "its rows")
  labels = _checks.integers("labels", labels)
  _checks.labels(labels, embeddings)
  _checks.known_labels(labels, classes)
  inside = (labels >= 0) & (labels < classes)
  size = len(embeddings)
  length = min(k, size - 1)
  if length < 1:
    return HierarchicalSimilarity(
      jnp.zeros((size, k), embeddings.dtype), jnp.zeros(size, bool)
    )
  order = _nearest.nearest(
    embeddings,
    embeddings,
    k=length,
    exclude=jnp.arange(size, dtype=jnp.int32),
    distance=distance,
    block_size=block_size,
  )
  present = inside & jnp.all(jnp.isfinite(embeddings), axis=1)
  values = _curves(order, labels, similar.astype(dtype), inside, present)
  # Beyond the whole list nothing changes.
  values = jnp.pad(values, ((0, 0), (0, k - length)), mode="edge")
  return HierarchicalSimilarity(values.astype(embeddings.dtype), inside)


@jax.jit
def _curves(
  order: Array, labels: Array, similar: Array, inside: Array, present: Array
) -> Array:
  """[queries, k], sums over the first k as shares of the best sums."""
  length = order.shape[1]
  labels = jnp.where(inside, labels, 0)
  counts = jax.ops.segment_sum(inside.astype(jnp.int32), labels, len(similar))
  ranks = jnp.arange(1, length + 1, dtype=jnp.int32)

  def best(row: Array, own_class: Array) -> Array:
    # Similarities in falling order, each as often as its class has references.
    falling = jnp.argsort(-row)
    others = counts - (jnp.arange(len(row)) == own_class)
    until = jnp.cumsum(others[falling])
    place = jnp.searchsorted(until, ranks)
    return jnp.cumsum(row[falling][jnp.minimum(place, len(row) - 1)])

  ideal = jax.vmap(best)(similar, jnp.arange(len(similar), dtype=jnp.int32))
  known = present[:, None] & present[order]
  similarities = jnp.where(known, similar[labels[:, None], labels[order]], 0)
  reached = jnp.cumsum(similarities, axis=1)
  return _numerics.divide(reached, ideal[labels])


def average_hierarchical_similarity(
  values: Float[ArrayLike, "*queries k"],
) -> Float[Array, "*queries"]:
  """Area under the curve of HS@1 to HS@K, as a mean (AHS@K).

      AHS@K = 1/(K - 1) sum_{k < K} (HS@k + HS@(k+1)) / 2

  Args:
    values: [..., K], floating, K >= 2, from `hierarchical_similarity`: one curve for
      each query, or their mean.

  Returns:
    [...], dtype of `values`. 1 for the ideal order.

  Raises:
    TypeError: values not floating.
    ValueError: fewer than two ranks.

  Differentiable in: values. Cost: one read.

  Source: DIST IV eq. 15 with K = 250, as in its released code; Barz and Denzler 2019
  divide by K.

  Example:
    >>> spherejax.metrics.average_hierarchical_similarity(jnp.array([1.0, 0.5, 0.75]))
    Array(0.6875, dtype=float32)
  """
  values = _checks.array("values", values, "floating")
  if values.ndim < 1 or values.shape[-1] < 2:
    raise ValueError(f"values must have two ranks or more, got shape {values.shape}")
  wide = _numerics.upcast(values)
  middles = (wide[..., :-1] + wide[..., 1:]) / 2
  return jnp.mean(middles, axis=-1).astype(values.dtype)
