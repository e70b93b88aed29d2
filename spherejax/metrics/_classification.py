"""Metrics of predicted classes: F1, accuracy, and common confusions."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int, Integer

from spherejax import _checks
from spherejax.metrics import _averages


class ClassScores(NamedTuple):
  """Result of `class_scores`."""

  accuracy: Float[Array, ""]
  """Share of correct predictions; NaN without examples."""
  macro_f1: Float[Array, ""]
  """Mean of `f1` over the classes that have one; NaN when none has."""
  f1: Float[Array, " classes"]
  """NaN for a class that is neither a label nor a prediction."""
  recall: Float[Array, " classes"]
  """NaN for a class that is not among the labels."""
  missing: Int[Array, ""]
  """Number of classes whose F1 is NaN; the mean leaves them out."""


class Confusions(NamedTuple):
  """Result of `common_confusions`, the most common first."""

  labels: Int[Array, " k"]
  predictions: Int[Array, " k"]
  rates: Float[Array, " k"]
  """Share of the label's examples; 0 where there are fewer than k confusions."""


def confusion_counts(
  labels: Integer[ArrayLike, " batch"],
  predictions: Integer[ArrayLike, " batch"],
  *,
  num_classes: int,
  where: Bool[ArrayLike, " batch"] | None = None,
) -> Int[Array, "classes classes"]:
  """Counts how often each class was predicted for each true class.

      counts_ab = #{i: y_i = a, predicted_i = b}

  For data in blocks, add up their counts; beyond 2^31, add them in NumPy's int64.

  Args:
    labels: [batch], integer in [0, num_classes).
    predictions: [batch], integer in [0, num_classes).
    num_classes: static.
    where: [batch], boolean, True keeps. None keeps all. A traced label or prediction
      out of range masks its row.

  Returns:
    [num_classes, num_classes], int32: rows are labels, columns predictions.

  Raises:
    TypeError: labels or predictions not integers, where not boolean.
    ValueError: shapes do not match, or a known label or prediction out of range.

  Differentiable in: nothing. Cost: O(batch + num_classes^2).

  Source: textbook definition.

  Example:
    >>> spherejax.metrics.confusion_counts(
    ...   jnp.array([0, 0, 1]), jnp.array([0, 1, 1]), num_classes=2)
    Array([[1, 1],
           [0, 1]], dtype=int32)
  """
  labels = _checks.integers("labels", labels)
  predictions = _checks.integers("predictions", predictions)
  _checks.count("num_classes", num_classes)
  _checks.expect("labels", labels, "integer", rank=1)
  _checks.labels(predictions, labels, "predictions")
  mask = selected = _checks.where_mask(where, labels.shape)
  for name, array in (("labels", labels), ("predictions", predictions)):
    mask &= _checks.inside(array, num_classes, selected, name)
  counts = jnp.zeros((num_classes, num_classes), jnp.int32)
  # Two indices: a flat index of the cell may need more than 32 bits.
  return counts.at[jnp.where(mask, labels, num_classes), predictions].add(
    1, mode="drop"
  )


def class_scores(counts: Integer[ArrayLike, "classes classes"]) -> ClassScores:
  """F1 and recall of each class, their mean, and the accuracy.

      F1_c = 2 TP / (2 TP + FP + FN) = 2 counts_cc / (labels c + predictions c)

  F1 is 0 for a class that occurs but is never predicted correctly. The macro F1 gives
  all classes the same weight; the accuracy gives all examples the same weight.

  Args:
    counts: [classes, classes], integer, from `confusion_counts`.

  Returns:
    `ClassScores`, float32 (float64 under x64).

  Raises:
    TypeError: counts not integers.
    ValueError: counts not square.

  Differentiable in: nothing. Cost: O(classes^2).

  Source: van Rijsbergen 1979, "Information retrieval", chapter 7; DIST I 3.4.

  Example:
    >>> spherejax.metrics.class_scores(jnp.array([[1, 1], [0, 2]])).f1
    Array([0.6666667, 0.8      ], dtype=float32)
  """
  counts = _square(counts)
  right = jnp.diagonal(counts)
  true, predicted = jnp.sum(counts, axis=1), jnp.sum(counts, axis=0)
  f1 = _share(2 * right, true + predicted)
  there = true + predicted > 0
  return ClassScores(
    accuracy=_share(jnp.sum(right), jnp.sum(true)),
    macro_f1=_averages.mean_where(f1, there),
    f1=f1,
    recall=_share(right, true),
    missing=jnp.sum(~there, dtype=jnp.int32),
  )


def common_confusions(
  counts: Integer[ArrayLike, "classes classes"], *, k: int = 10
) -> Confusions:
  """Pairs of classes with the highest rates of confusion.

      rate_ab = counts_ab / labels a,    a != b

  Equal rates are ordered by label, then by prediction.

  Args:
    counts: [classes, classes], integer, from `confusion_counts`.
    k: static, at most classes x (classes - 1).

  Returns:
    `Confusions`, each [k].

  Raises:
    TypeError: counts not integers.
    ValueError: counts not square, or k too large.

  Differentiable in: nothing. Cost: O(classes^2).

  Source: DIST I tables 1 and 2.

  Example:
    >>> counts = jnp.array([[8, 2, 0], [5, 4, 1], [0, 0, 0]])
    >>> spherejax.metrics.common_confusions(counts, k=2)
    Confusions(labels=Array([1, 0], dtype=int32),
      predictions=Array([0, 1], dtype=int32),
      rates=Array([0.5, 0.2], dtype=float32))
  """
  counts = _square(counts)
  classes = len(counts)
  _checks.count("k", k)
  if k > classes * (classes - 1):
    raise ValueError(
      f"k must be at most the {classes * (classes - 1)} pairs of {classes} classes,"
      f" got {k}"
    )
  rates = _share(counts, jnp.sum(counts, axis=1, keepdims=True))
  # Impossible pairs, a class with itself, come after pairs that were never confused.
  ranked = jnp.where(jnp.isnan(rates), -1, rates)
  ranked = jnp.where(jnp.eye(classes, dtype=bool), -2, ranked)
  shares, cells = jax.lax.top_k(ranked.reshape(-1), k)
  cells = cells.astype(jnp.int32)
  return Confusions(cells // classes, cells % classes, jnp.maximum(shares, 0))


def _square(counts: ArrayLike) -> Array:
  """Checked counts as floats: a sum of integers may need more than 32 bits."""
  matrix = _checks.unwrapped(counts)
  matrix = matrix if isinstance(matrix, jax.Array) else np.asarray(matrix)
  _checks.expect("counts", matrix, "integer", rank=2, empty=False)
  _checks.shape("counts", matrix, (len(matrix), len(matrix)))
  return jnp.asarray(matrix.astype(jnp.result_type(float)))


def _share(part: Array, whole: Array) -> Array:
  """Quotient of part and whole, NaN where the whole is 0."""
  some = jnp.broadcast_to(whole > 0, part.shape)
  below = jnp.broadcast_to(jnp.maximum(whole, 1), part.shape)
  return jnp.where(some, part / below, jnp.nan)
