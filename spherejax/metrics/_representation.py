"""Class variances of features: between classes, within classes, and their ratios.

Means and scatters are stored per class and updated block by block, so a set of any size
takes a single pass.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int, Integer

from spherejax import _checks, _numerics, distances
from spherejax.distances._lp import Norm


class ClassMoments(NamedTuple):
  """Number, mean and scatter of the features of each class."""

  counts: Int[Array, " classes"]
  means: Float[Array, "classes dim"]
  scatter: Float[Array, " classes"]
  """Sum of squared distances from the mean."""
  zeros: Int[Array, " classes"]
  """Rows that were zero and so could not be normalised."""


class ClassVariance(NamedTuple):
  """Result of `class_variance`."""

  inter: Float[Array, ""]
  """D_inter: mean squared distance between class means; NaN with one class."""
  intra: Float[Array, ""]
  """D_intra: mean over the classes of the mean squared distance from the mean."""
  phi: Float[Array, ""]
  """inter / intra; inf where only intra is 0, NaN where both are."""
  r2: Float[Array, ""]
  """1 - d_within / d_total of cosine distances, for normalised rows; for other rows,
  the share of the variance between classes, with equal weights of the classes."""


def class_moments_init(num_classes: int, dim: int) -> ClassMoments:
  """Moments of an empty set of features.

  Args:
    num_classes: static.
    dim: static.

  Returns:
    ClassMoments of zeros.

  Raises:
    TypeError: a size that is not a static integer.
    ValueError: a size below 1.

  Differentiable in: nothing.

  Source: DIST 2.4.

  Example:
    >>> spherejax.metrics.class_moments_init(2, 3).counts
    Array([0, 0], dtype=int32)
  """
  _checks.count("num_classes", num_classes)
  _checks.count("dim", dim)
  none = jnp.zeros(num_classes, jnp.int32)
  return ClassMoments(none, jnp.zeros((num_classes, dim)), jnp.zeros(num_classes), none)


def class_moments_update(
  moments: ClassMoments,
  features: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  *,
  normalize: bool = False,
  where: Bool[ArrayLike, " batch"] | None = None,
  axis_name: str | None = None,
) -> ClassMoments:
  """Adds a block of features to the moments of their classes.

      delta = mean_b - mean,    n' = n + n_b
      mean <- mean + delta n_b / n',    scatter <- scatter + scatter_b
                                                   + |delta|^2 n n_b / n'

  Args:
    moments: from `class_moments_init` or the last update.
    features: [batch, dim], floating.
    labels: [batch], integer in [0, classes). A traced label out of range masks its
      row.
    normalize: True divides rows by their norm first; a zero row stays zero and counts.
      Static; the same for all blocks.
    where: [batch], boolean, True keeps; masked rows may be NaN. None keeps all.
    axis_name: mapped axis over which the block is spread; every device gets the moments
      over all devices.

  Returns:
    ClassMoments.

  Raises:
    TypeError: features not floating, labels not integers, where not boolean, normalize
      not boolean.
    ValueError: shapes do not match, or a known label outside [0, classes).

  Differentiable in: features. Cost: O(batch dim).

  Source: Chan, Golub, LeVeque 1983, "Algorithms for computing the sample variance";
  DIST 2.4.

  Example:
    >>> moments = spherejax.metrics.class_moments_init(2, 1)
    >>> spherejax.metrics.class_moments_update(
    ...   moments, jnp.array([[1.0], [3.0], [7.0]]), jnp.array([0, 0, 1])).scatter
    Array([2., 0.], dtype=float32)
  """
  _checks.flag("normalize", normalize)
  _checks.instance("moments", moments, ClassMoments)
  classes, dim = moments.means.shape
  features = _checks.array("features", features, "floating")
  labels = _checks.integers("labels", labels)
  _checks.batched("features", features)
  _checks.shape("features", features, (len(features), dim), "the moments")
  _checks.labels(labels, features)
  mask = _checks.where_mask(where, labels.shape)
  mask &= _checks.inside(labels, classes, mask)
  rows = features.astype(moments.means.dtype)
  rows = jnp.where(mask[:, None], rows, 0)
  empty = mask & jnp.all(rows == 0, axis=1) & normalize
  rows = _numerics.normalize(rows) if normalize else rows

  def total(values: Array) -> Array:
    values = jnp.where(jnp.reshape(mask, (-1,) + (1,) * (values.ndim - 1)), values, 0)
    sums = jax.ops.segment_sum(values, labels, classes)
    return sums if axis_name is None else jax.lax.psum(sums, axis_name)

  counts = total(mask.astype(jnp.int32))
  size = jnp.maximum(counts, 1).astype(rows.dtype)
  index = jnp.where(mask, labels, 0)
  means = total(rows) / size[:, None]
  # Repeated around the first mean, to remove its rounding error.
  means += total(rows - means[index]) / size[:, None]
  scatter = total(jnp.sum((rows - means[index]) ** 2, axis=1))
  block = ClassMoments(counts, means, scatter, total(empty.astype(jnp.int32)))
  return class_moments_merge(moments, block)


def class_moments_merge(first: ClassMoments, second: ClassMoments) -> ClassMoments:
  """Merges the moments of two disjoint sets, as in `class_moments_update`.

  Args:
    first: of one set.
    second: of the other.

  Returns:
    ClassMoments.

  Raises:
    TypeError: first or second not a `ClassMoments`.

  Differentiable in: means and scatters. Cost: O(classes dim).

  Source: Chan, Golub, LeVeque 1983, "Algorithms for computing the sample variance".

  Example:
    >>> one = spherejax.metrics.class_moments_init(1, 1)
    >>> one = spherejax.metrics.class_moments_update(
    ...   one, jnp.array([[2.0]]), jnp.array([0]))
    >>> spherejax.metrics.class_moments_merge(one, one).counts
    Array([2], dtype=int32)
  """
  _checks.instance("first", first, ClassMoments)
  _checks.instance("second", second, ClassMoments)
  counts = first.counts + second.counts
  share = second.counts / jnp.maximum(counts, 1)
  share = share.astype(first.means.dtype)
  differences = second.means - first.means
  between = share * first.counts.astype(share.dtype) * jnp.sum(differences**2, axis=1)
  return ClassMoments(
    counts,
    first.means + share[:, None] * differences,
    first.scatter + second.scatter + between,
    first.zeros + second.zeros,
  )


def class_scatter(
  means: Float[ArrayLike, "classes dim"],
  features: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  *,
  norm: Norm,
  where: Bool[ArrayLike, " batch"] | None = None,
) -> Float[Array, " classes"]:
  """Sums of squared distances from given class means, in another norm.

      scatter_c = sum_{i: y_i = c} ||f_i - mean_c||_p^2

  This is the second pass of variances in l1 or l-infinity: add the results of all
  blocks and put the sum into the moments, `moments._replace(scatter=...)`.

  Args:
    means: [classes, dim], floating, of the finished moments.
    features: [batch, dim], floating, as they were counted (normalised or not).
    labels: [batch], integer in [0, classes). A traced label out of range masks its
      row.
    norm: "linf", "l2" or "l1". Static.
    where: [batch], boolean, True keeps; masked rows may be NaN. None keeps all.

  Returns:
    [classes], dtype of `means`.

  Raises:
    TypeError: arrays not floating, labels not integers, where not boolean.
    ValueError: shapes do not match, an unknown norm, or a known label outside
      [0, classes).

  Differentiable in: means, features. Cost: O(batch dim).

  Source: DIST 2.4, table 5.3.

  Example:
    >>> spherejax.metrics.class_scatter(
    ...   jnp.zeros((1, 2)), jnp.array([[3.0, 4.0]]), jnp.array([0]), norm="linf")
    Array([16.], dtype=float32)
  """
  means = _checks.array("means", means, "floating", rank=2)
  features = _checks.array("features", features, "floating")
  labels = _checks.integers("labels", labels)
  _checks.batched("features", features)
  _checks.shape("features", features, (len(features), means.shape[1]), "the means")
  _checks.labels(labels, features)
  mask = _checks.where_mask(where, labels.shape)
  mask &= _checks.inside(labels, len(means), mask)
  wide = _numerics.upcast(means)
  differences = features.astype(wide.dtype) - wide[jnp.where(mask, labels, 0)]
  differences = jnp.where(mask[:, None], differences, 0)
  squares = distances.lp_norm(differences, norm=norm) ** 2
  places = jnp.where(mask, labels, len(means))
  return jax.ops.segment_sum(squares, places, len(means)).astype(means.dtype)


def class_variance(moments: ClassMoments, *, norm: Norm = "l2") -> ClassVariance:
  """Variances between and within classes, their ratio, and the share explained.

      D_inter = 1/(C (C - 1)) sum_{j != k} d(mu_j, mu_k)^2
      D_intra = 1/C sum_k 1/N_k sum_{i in k} d(f_i, mu_k)^2
      phi = D_inter / D_intra,    R2 = 1 - d_within / d_total

  over the C classes that occur. For unit rows phi and R2 are equivalent, R2 = phi /
  (phi + 2 C / (C - 1)): report only one of them. With rows of zeros, as of a dead
  network, they differ: R2 takes such a row to be at cosine distance 1 from all rows.

  Args:
    moments: of all features; for norms other than l2, with the scatters of
      `class_scatter`.
    norm: of the distances: "linf", "l2" or "l1". Static.

  Returns:
    ClassVariance(inter, intra, phi, r2); r2 is NaN for other norms than l2.

  Raises:
    TypeError: moments not a `ClassMoments`.
    ValueError: an unknown norm.

  Differentiable in: means and scatters. Cost: O(classes dim), for other norms
  O(classes^2 dim).

  Source: DIST eqs. 2.6, 2.7, 2.10 and 2.11 and tables 5.3 to 5.5. The outer sum of
  D_inter must run to C, as in these tables.

  Example:
    >>> moments = spherejax.metrics.class_moments_init(2, 1)
    >>> moments = spherejax.metrics.class_moments_update(
    ...   moments, jnp.array([[0.0], [2.0], [7.0]]), jnp.array([0, 0, 1]))
    >>> spherejax.metrics.class_variance(moments).phi
    Array(72., dtype=float32)
  """
  _checks.instance("moments", moments, ClassMoments)
  means = moments.means
  present = moments.counts > 0
  classes = jnp.sum(present).astype(means.dtype)
  some = jnp.maximum(classes, 1)
  size = jnp.maximum(moments.counts, 1).astype(means.dtype)
  rows = jnp.where(present[:, None], means, 0)
  centre = jnp.sum(rows, axis=0, keepdims=True) / some
  spread = _numerics.masked_sum(jnp.sum((rows - centre) ** 2, axis=1), present)
  if norm == "l2":
    total = 2 * classes * spread
  else:
    squares = distances.pairwise_lp(rows, norm=norm) ** 2
    total = _numerics.masked_sum(squares, present[:, None] & present[None], axis=None)
  several = classes > 1
  inter = jnp.where(
    several, total / jnp.where(several, classes * (classes - 1), 1), jnp.nan
  )
  intra = jnp.sum(jnp.where(present, moments.scatter / size, 0)) / some
  # A zero row is at cosine distance 1 from all rows, itself included.
  within = intra + jnp.sum(moments.zeros / size) / some
  between = spread / some
  whole = within + between
  # R2 needs variances that add up; squares of other norms do not.
  defined = several & (whole > 0) & (norm == "l2")
  r2 = jnp.where(defined, between / jnp.where(defined, whole, 1), jnp.nan)
  return ClassVariance(inter, intra, inter / intra, r2)


def pi_ratio(moments: ClassMoments, *, pooled: bool = True) -> Float[Array, ""]:
  """Ratio of the mean cosine distance within classes to that between class means.

      pi_inter = 1/(C (C - 1)) sum_{k != l} (1 - cos(mu_k, mu_l))
      pi_intra = sum_k sum_{i != j in k} (1 - cos(f_i, f_j)) / sum_k N_k (N_k - 1)

  Args:
    moments: of normalised features.
    pooled: True gives all pairs the same weight, as in the formula. False averages the
      means of the classes with two or more rows, as Roth's code does. Static.

  Returns:
    Scalar; NaN with fewer than two classes, or without a pair.

  Raises:
    TypeError: moments not a `ClassMoments`, pooled not boolean.

  Differentiable in: means and scatters. Cost: O(classes^2 dim).

  Source: DIST eq. 2.8; Roth et al. 2020, "Revisiting training strategies and
  generalization performance in deep metric learning".

  Example:
    >>> moments = spherejax.metrics.class_moments_init(2, 2)
    >>> x = jnp.array([[3.0, 4.0], [4.0, 3.0], [-1.0, 1.0]])
    >>> moments = spherejax.metrics.class_moments_update(
    ...   moments, x, jnp.array([0, 0, 1]), normalize=True)
    >>> spherejax.metrics.pi_ratio(moments)
    Array(0.04, dtype=float32)
  """
  _checks.flag("pooled", pooled)
  _checks.instance("moments", moments, ClassMoments)
  means = moments.means
  present = moments.counts > 0
  classes = jnp.sum(present).astype(means.dtype)
  matrix = distances.pairwise_cosine_distance(means)
  pairs = present[:, None] & present[None] & ~jnp.eye(len(means), dtype=bool)
  inter = _numerics.masked_sum(matrix, pairs, axis=None) / (classes * (classes - 1))
  number = moments.counts.astype(means.dtype)
  zeros = moments.zeros.astype(means.dtype)
  sums = number * (moments.scatter + zeros) - zeros
  ordered = number * (number - 1)
  if pooled:
    intra = jnp.sum(sums) / jnp.sum(ordered)
  else:
    counted = ordered > 0
    means_within = _numerics.divide(sums, ordered)
    intra = _numerics.masked_sum(means_within, counted) / jnp.sum(counted)
  return jnp.where(classes > 1, intra / inter, jnp.nan)
