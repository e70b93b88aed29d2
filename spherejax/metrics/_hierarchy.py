"""Quality of predictions and severity of mistakes, by distances between the classes."""

import functools
from typing import NamedTuple

import jax
import jax.core
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _numerics


class Severity(NamedTuple):
  """Distances of predictions from the truth: the result of `severity`."""

  distances: Float[Array, " batch"]
  """Distance of the predicted class from the true one."""
  mistaken: Bool[Array, " batch"]
  """True where the prediction is wrong."""


def top_k(
  scores: Float[ArrayLike, "batch classes"],
  labels: Integer[ArrayLike, " batch"],
  *,
  k: int = 1,
) -> Float[Array, " batch"]:
  """Top-k accuracy: 1 where the true class is among the k with the largest scores.

  Args:
    scores: [batch, classes], floating: logits, probabilities, cosines, or the negative
      of distances or of `conditional_risk`. Ties go to the lowest class; a NaN is last
      and is not a prediction.
    labels: [batch], integer in [0, classes).
    k: static, at most the number of classes.

  Returns:
    [batch], dtype of `scores`; average with `mean`. 0 for a traced label out of range.

  Raises:
    TypeError: scores not floating, labels not integers, k not a static integer.
    ValueError: shapes do not match, a known label out of range, or k above classes.

  Differentiable in: nothing. Cost: O(batch classes log classes).

  Source: Russakovsky et al. 2015, "ImageNet large scale visual recognition challenge".

  Example:
    >>> scores = jnp.array([[0.1, 0.7, 0.2], [0.3, 0.4, 0.3]])
    >>> spherejax.metrics.top_k(scores, jnp.array([2, 2]), k=2)
    Array([1., 0.], dtype=float32)
  """
  scores, labels = _checked(scores, labels, k)
  return _is_among(_largest(scores, k), labels, scores.shape[1]).astype(scores.dtype)


def average_hierarchical_distance(
  scores: Float[ArrayLike, "batch classes"],
  labels: Integer[ArrayLike, " batch"],
  class_distances: Real[ArrayLike, "classes classes"],
  *,
  k: int = 1,
) -> Float[Array, " batch"]:
  """Mean distance (AHD@k) of the k classes with the largest scores from the true class.

      AHD@k_i = 1/k sum_{j among the first k} D(y_i, j)

  For k = 1 and D(y, y) = 0, this is the average hierarchical cost.

  Args:
    scores: [batch, classes], floating. Ties go to the lowest class; a NaN is last and
      is not a prediction.
    labels: [batch], integer in [0, classes).
    class_distances: [classes, classes], such as `hierarchy.path_distances`.
    k: static, at most the number of classes.

  Returns:
    [batch], dtype of `scores`; average with `mean`. NaN for a traced label out of range
    and where one of the k scores is NaN.

  Raises:
    TypeError: scores not floating, labels not integers, k not a static integer.
    ValueError: shapes do not match, a known label out of range, or k above classes.

  Differentiable in: class_distances. Cost: O(batch classes log classes).

  Source: DIST IV (with path distances, over all examples); Garnot and Landrieu 2021,
  "Leveraging class hierarchies with metric-guided prototype learning" (k = 1).

  Example:
    >>> distances = jnp.array([[0, 2, 4], [2, 0, 4], [4, 4, 0]])
    >>> scores = jnp.array([[0.1, 0.7, 0.2], [0.3, 0.4, 0.3]])
    >>> spherejax.metrics.average_hierarchical_distance(
    ...   scores, jnp.array([2, 1]), distances, k=2)
    Array([2., 1.], dtype=float32)
  """
  scores, labels = _checked(scores, labels, k)
  matrix = _square(class_distances, scores)
  mean = jnp.mean(_distances_of(_largest(scores, k), labels, matrix), axis=1)
  return mean.astype(scores.dtype)


def severity(
  scores: Float[ArrayLike, "batch classes"],
  labels: Integer[ArrayLike, " batch"],
  class_distances: Real[ArrayLike, "classes classes"],
) -> Severity:
  """Distance of each prediction from the true class, and whether it is a mistake.

      severity_i = D(y_i, argmax_k scores_ik)      over the mistakes

  `mean_where(*severity(...))` is the mean severity of the mistakes, NaN without one.
  AHD@1 is this mean times the error rate.

  Args:
    scores: [batch, classes], floating. Ties go to the lowest class; a NaN is last and
      is not a prediction.
    labels: [batch], integer in [0, classes).
    class_distances: [classes, classes]: `hierarchy.lca_heights` as in the paper, or
      `hierarchy.path_distances`.

  Returns:
    Severity(distances, mistaken), [batch] each, in the dtype of `scores`. NaN for a
    traced label out of range and for a row of only NaN, which counts as a mistake.

  Raises:
    TypeError: scores not floating, labels not integers.
    ValueError: shapes do not match, or a known label out of range.

  Differentiable in: class_distances. Cost: O(batch classes log classes).

  Source: Bertinetto et al. 2020, "Making better mistakes", section 4.

  Example:
    >>> distances = jnp.array([[0, 2, 4], [2, 0, 4], [4, 4, 0]])
    >>> scores = jnp.array([[0.1, 0.7, 0.2], [0.3, 0.4, 0.3]])
    >>> found = spherejax.metrics.severity(scores, jnp.array([2, 1]), distances)
    >>> spherejax.metrics.mean_where(*found)
    Array(4., dtype=float32)
  """
  scores, labels = _checked(scores, labels, 1)
  matrix = _square(class_distances, scores)
  first = _largest(scores, 1)
  chosen = _distances_of(first, labels, matrix)[:, 0].astype(scores.dtype)
  return Severity(chosen, ~_is_among(first, labels, scores.shape[1]))


def hierarchical_precision(
  scores: Float[ArrayLike, "batch classes"],
  labels: Integer[ArrayLike, " batch"],
  class_distances: Real[ArrayLike, "classes classes"],
  *,
  k: int,
  rank_offset: int = 0,
) -> Float[Array, " batch"]:
  """Hierarchical precision (HP@k): share of k predicted classes near the true class.

      HP@k_i = |first k  &  N_i| / k
      N_i = {j : D(y_i, j) <= the (k + rank_offset)-th smallest entry of row y_i}

  The near classes include the true class and all classes tied with the last of them, so
  there may be more than k.

  Args:
    scores: [batch, classes], floating. Ties go to the lowest class; a NaN is last and
      is not a prediction.
    labels: [batch], integer in [0, classes).
    class_distances: [classes, classes], such as `hierarchy.path_distances`.
    k: static, at most the number of classes.
    rank_offset: static. 0 is the definition. 2 is for comparison with the article's
      figures: its released code uses it, which admits far more classes.

  Returns:
    [batch], dtype of `scores`, in [0, 1]; average with `mean`. NaN for a traced label
    out of range.

  Raises:
    TypeError: scores not floating, labels not integers, k not a static integer.
    ValueError: shapes do not match, a known label out of range, or k + rank_offset
      above classes.

  Differentiable in: nothing. Cost: O(batch classes log classes).

  Source: DIST IV; Frome et al. 2013, "DeViSE: a deep visual-semantic embedding model".

  Example:
    >>> distances = jnp.array([[0, 2, 4], [2, 0, 4], [4, 4, 0]])
    >>> scores = jnp.array([[0.1, 0.7, 0.2], [0.3, 0.4, 0.3]])
    >>> spherejax.metrics.hierarchical_precision(
    ...   scores, jnp.array([0, 1]), distances, k=2)
    Array([0.5, 1. ], dtype=float32)
  """
  _checks.count("rank_offset", rank_offset, 0)
  scores, labels = _checked(scores, labels, k)
  classes = scores.shape[1]
  if k + rank_offset > classes:
    raise ValueError(
      f"k + rank_offset must be at most the {classes} classes, got {k + rank_offset}"
    )
  matrix = _square(class_distances, scores)
  return _share_near(scores, labels, matrix, k, k + rank_offset)


def conditional_risk(
  probabilities: Float[ArrayLike, "batch classes"],
  class_distances: Real[ArrayLike, "classes classes"],
) -> Float[Array, "batch classes"]:
  """Expected distance of every possible prediction from the truth.

      risk_ik = sum_j D_kj p_ij

  The prediction of least risk makes milder mistakes than the most probable class. Pass
  the negative risk as `scores` to the metrics. If D is a metric, both predictions agree
  wherever a probability exceeds 1/2; they also agree if all distances are equal.

  Args:
    probabilities: [batch, classes], floating.
    class_distances: [classes, classes]: D_kj is the cost of predicting k for j.

  Returns:
    [batch, classes], dtype of `probabilities`.

  Raises:
    TypeError: probabilities not floating.
    ValueError: shapes do not match.

  Differentiable in: probabilities, class_distances. Cost: O(batch classes^2).

  Source: Karthik et al. 2021, "No cost likelihood manipulation at test time for making
  better mistakes in deep networks".

  Example:
    >>> distances = jnp.array([[0, 2, 4], [2, 0, 4], [4, 4, 0]])
    >>> probabilities = jnp.array([[0.3, 0.3, 0.4]])
    >>> spherejax.metrics.conditional_risk(probabilities, distances)
    Array([[2.2, 2.2, 2.4]], dtype=float32)
  """
  probabilities = _checks.array("probabilities", probabilities, "floating", rank=2)
  wide = _numerics.upcast(probabilities)
  costs = _square(class_distances, probabilities)
  risk = _numerics.product(wide, costs.T)
  return risk.astype(probabilities.dtype)


def _checked(scores: ArrayLike, labels: ArrayLike, k: int) -> tuple[Array, Array]:
  scores = _checks.array("scores", scores, "floating", rank=2)
  classes = scores.shape[1]
  _checks.count("k", k)
  if k > classes:
    raise ValueError(f"k must be at most the {classes} classes, got {k}")
  integers = _checks.integers("labels", labels)
  _checks.labels(integers, scores)
  _checks.known_labels(integers, classes)
  return scores, integers


def _square(class_distances: ArrayLike, scores: Array) -> Array:
  """Checked matrix in the dtype that the scores are computed in."""
  matrix = _checks.array("class_distances", class_distances, "real")
  _checks.shape("class_distances", matrix, (scores.shape[1],) * 2, "the classes")
  return matrix.astype(_numerics.compute_dtype(scores.dtype))


@functools.partial(jax.jit, static_argnums=1)
def _largest(scores: Array, k: int) -> Array:
  """Classes [batch, k] with the largest scores; an invalid index replaces a NaN."""
  wide = _numerics.upcast(scores)
  # Ties go to the lowest class, also those of 0 and -0. NaN is last, behind -inf.
  low = jnp.asarray(jnp.finfo(wide.dtype).min)
  rank = jnp.maximum(wide, jnp.nextafter(low, jnp.zeros_like(low)))
  rank = jnp.where(wide == -jnp.inf, low, jnp.where(wide == 0, 0, rank))
  first = jax.lax.top_k(jnp.where(jnp.isnan(wide), -jnp.inf, rank), k)[1]
  known = ~jnp.isnan(jnp.take_along_axis(scores, first, axis=1))
  return jnp.where(known, first, scores.shape[1])


@functools.partial(jax.jit, static_argnums=2)
def _is_among(first: Array, labels: Array, classes: int) -> Array:
  # A traced label may equal the index that replaces a NaN.
  return jnp.any((first == labels[:, None]) & (first < classes), axis=1)


def _rows(matrix: Array, labels: Array) -> Array:
  """Distances [batch, classes] from the true class; NaN for a label out of range."""
  inside = (labels >= 0) & (labels < len(matrix))
  rows = jnp.take(matrix, labels, axis=0, mode="clip")
  return jnp.where(inside[:, None], rows, jnp.nan)


@jax.jit
def _distances_of(first: Array, labels: Array, matrix: Array) -> Array:
  """Distances [batch, k] of the predicted classes from the true class."""
  return jnp.take_along_axis(_rows(matrix, labels), first, axis=1, mode="fill")


@functools.partial(jax.jit, static_argnums=(3, 4))
def _share_near(
  scores: Array, labels: Array, matrix: Array, k: int, rank: int
) -> Array:
  """Share [batch] of the first k at least as near as the class of this rank."""
  rows = _rows(matrix, labels)
  radius = jnp.sort(rows, axis=1)[:, rank - 1, None]
  near = _distances_of(_largest(scores, k), labels, matrix) <= radius
  share = jnp.mean(near.astype(rows.dtype), axis=1)
  return jnp.where(jnp.isnan(radius[:, 0]), jnp.nan, share).astype(scores.dtype)
