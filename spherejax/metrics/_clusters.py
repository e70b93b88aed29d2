"""Spread of the classes around their centroids, and distances between centroids."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer

from spherejax import _checks, _numerics

_ROWS = 16  # rows compared with all others at once


def cluster_radii(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  centroids: Float[ArrayLike, "classes dim"],
  *,
  where: Bool[ArrayLike, " batch"] | None = None,
) -> Float[Array, " classes"]:
  """Mean distance of the embeddings of each class from its centroid.

      r_c = mean_{i: y_i = c} |x_i - mu_c|

  On the unit sphere, with the mean of the same embeddings for mu_c (not normalised),
  r_c <= sqrt(1 - |mu_c|^2), with equality where all distances are equal.
  `distances.euclidean` of two sets of centroids tells how far they have moved.

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer in [0, classes). A traced label out of range masks its
      row.
    centroids: [classes, dim], floating, such as those from `prototypes.class_means(...,
      normalize="none")`.
    where: [batch], boolean, True keeps; masked rows may be NaN. None keeps all.

  Returns:
    [classes], dtype of `embeddings`; NaN for a class without an embedding.

  Raises:
    TypeError: arrays not floating, labels not integers, where not boolean.
    ValueError: shapes do not match, or a known label outside [0, classes).

  Differentiable in: embeddings, centroids; a distance of 0 has derivative 0.
  Cost: O(batch dim).

  Source: DIST I 3.2.

  Example:
    >>> x, centroids = jnp.array([[0.0], [4.0], [5.0]]), jnp.array([[1.0], [5.0]])
    >>> spherejax.metrics.cluster_radii(x, jnp.array([0, 0, 1]), centroids)
    Array([2., 0.], dtype=float32)
  """
  embeddings = _checks.array("embeddings", embeddings, "floating", rank=2)
  labels = _checks.integers("labels", labels)
  centroids = _checks.array("centroids", centroids, "floating", rank=2)
  classes, dim = centroids.shape
  _checks.shape("embeddings", embeddings, (len(embeddings), dim), "the centroids")
  _checks.labels(labels, embeddings)
  mask = _checks.where_mask(where, labels.shape)
  mask &= _checks.inside(labels, classes, mask)
  wide = _numerics.upcast(embeddings)
  differences = wide - centroids.astype(wide.dtype)[jnp.where(mask, labels, 0)]
  lengths = _numerics.norm(jnp.where(mask[:, None], differences, 0))
  groups = jnp.where(mask, labels, classes)
  sums = jax.ops.segment_sum(lengths, groups, classes)
  counts = jax.ops.segment_sum(mask.astype(wide.dtype), groups, classes)
  radii = jnp.where(counts > 0, sums / jnp.maximum(counts, 1), jnp.nan)
  return radii.astype(embeddings.dtype)


def mean_interclass_distance(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  *,
  where: Bool[ArrayLike, " batch"] | None = None,
) -> Float[Array, ""]:
  """Mean distance between two embeddings of different classes.

      mean_{i, j: y_i != y_j} |x_i - x_j|

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer. Only their equality matters.
    where: [batch], boolean, True keeps; masked rows may be NaN. None keeps all.

  Returns:
    Scalar, dtype of `embeddings`; NaN if all have the same class.

  Raises:
    TypeError: embeddings not floating, labels not integers, where not boolean.
    ValueError: shapes do not match.

  Differentiable in: embeddings; a distance of 0 has derivative 0.
  Cost: O(batch^2 dim) time, O(batch dim) memory.

  Source: DML figure 3.3.

  Example:
    >>> x = jnp.array([[0.0], [4.0], [5.0]])
    >>> spherejax.metrics.mean_interclass_distance(x, jnp.array([0, 0, 1]))
    Array(3., dtype=float32)
  """
  embeddings = _checks.array("embeddings", embeddings, "floating", rank=2)
  (labels,) = _checks.names(("labels", labels))
  _checks.labels(labels, embeddings)
  mask = _checks.where_mask(where, (len(embeddings),))
  rows = jnp.where(mask[:, None], _numerics.upcast(embeddings), 0)

  def from_row(entry: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    row, label, is_kept = entry
    other = mask & (labels != label) & is_kept
    lengths = _numerics.norm(rows - row[None])
    return jnp.sum(jnp.where(other, lengths, 0)), jnp.sum(other, dtype=rows.dtype)

  some = min(_ROWS, max(len(rows), 1))
  sums, counts = jax.lax.map(
    jax.checkpoint(from_row), (rows, labels, mask), batch_size=some
  )
  return (jnp.sum(sums) / jnp.sum(counts)).astype(embeddings.dtype)
