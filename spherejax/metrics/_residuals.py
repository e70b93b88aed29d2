"""Residuals of features from their class's mean, and augmentation by them."""

from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Integer, Real

from spherejax import _checks, _numerics
from spherejax.metrics._representation import ClassMoments

Kind = Literal["residual", "normal"]


def class_residuals(
  features: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  moments: ClassMoments,
) -> Float[Array, "batch dim"]:
  """Features minus the mean of their class.

      r_i = f_i - mu_{y_i}

  Over the features of the moments the residuals sum to 0 in each class. The mean over
  the classes of their mean square is D_intra of `class_variance`.

  Args:
    features: [batch, dim], floating, as they were counted (normalised or not).
    labels: [batch], integer in [0, classes). A traced label out of range leaves a row
      NaN.
    moments: of the training set.

  Returns:
    [batch, dim], dtype of `features`.

  Raises:
    TypeError: features not floating, labels not integers.
    ValueError: shapes do not match, or a known label outside [0, classes).

  Differentiable in: features, the means. Cost: O(batch dim).

  Source: DIST 6.2.2.

  Example:
    >>> x, labels = jnp.array([[1.0], [3.0], [7.0]]), jnp.array([0, 0, 1])
    >>> moments = spherejax.metrics.class_moments_init(2, 1)
    >>> moments = spherejax.metrics.class_moments_update(moments, x, labels)
    >>> spherejax.metrics.class_residuals(x, labels, moments)[:, 0]
    Array([-1.,  1.,  0.], dtype=float32)
  """
  _checks.instance("moments", moments, ClassMoments)
  features = _checks.array("features", features)
  labels = _checks.integers("labels", labels)
  classes, dim = moments.means.shape
  _checks.expect("features", features, "floating")
  _checks.batched("features", features)
  _checks.shape("features", features, (len(features), dim), "the moments")
  _checks.labels(labels, features)
  _checks.known_labels(labels, classes)
  index = jnp.where((labels >= 0) & (labels < classes), labels, classes)
  means = moments.means.at[index].get(mode="fill", fill_value=jnp.nan)
  return (features.astype(means.dtype) - means).astype(features.dtype)


def augment_within_classes(
  key: Array,
  features: Float[ArrayLike, "batch dim"],
  residuals: Float[ArrayLike, "n dim"],
  labels: Integer[ArrayLike, " n"],
  *,
  num_classes: int,
  scale: Real[ArrayLike, ""] = 1.0,
  kind: Kind = "residual",
) -> Float[Array, "batch dim"]:
  """Moves features by the deviations of other features from their class means.

      "residual": f_i + scale r_j,  j uniform       "normal": f_i + scale N(0, Sigma)
      Sigma = 1/C sum_k 1/N_k sum_{j: y_j = k} r_j r_j^T,    of trace D_intra

  In expectation the class means stay. D_intra grows by the factor 1 + scale^2: always
  for "normal", and for "residual" with equally many residuals in every class. Divide by
  the norms afterwards if features are directions.

  Args:
    key: a typed PRNG key.
    features: [batch, dim], floating.
    residuals: [n, dim], floating, from `class_residuals`.
    labels: [n], integer in [0, num_classes), those of the residuals.
    num_classes: static.
    scale: may be traced.
    kind: "residual" or "normal". Static.

  Returns:
    [batch, dim], dtype of `features`.

  Raises:
    TypeError: features or residuals not floating, labels not integers.
    ValueError: shapes do not match, no residual, a known label out of range, or an
      unknown kind.

  Differentiable in: features, residuals, scale. Cost: O(batch dim), for "normal"
  O(batch n dim) time and O(batch n) memory.

  Source: DIST 6.2.2.

  Example:
    >>> x, residuals, labels = jnp.zeros((2, 1)), jnp.ones((3, 1)), jnp.zeros(3, int)
    >>> spherejax.metrics.augment_within_classes(
    ...   jax.random.key(0), x, residuals, labels, num_classes=1, scale=2.0)[:, 0]
    Array([2., 2.], dtype=float32)
  """
  _checks.key("key", key)
  features = _checks.array("features", features, "floating", rank=2)
  residuals = _checks.array("residuals", residuals, "floating", rank=2, empty=False)
  labels = _checks.integers("labels", labels)
  number = len(residuals)
  _checks.shape("residuals", residuals, (number, features.shape[1]), "the features")
  _checks.labels(labels, residuals)
  _checks.count("num_classes", num_classes)
  _checks.known_labels(labels, num_classes)
  _checks.one_of("kind", kind, Kind)
  wide = _numerics.upcast(features)
  known = residuals.astype(wide.dtype)
  if kind == "residual":
    moves = known[jax.random.randint(key, (len(wide),), 0, number)]
  else:
    counts = jax.ops.segment_sum(jnp.ones(number, wide.dtype), labels, num_classes)
    classes = jnp.sum(counts > 0).astype(wide.dtype)
    # A sum of residuals with normal weights has the residuals' second moment.
    known = known / jnp.sqrt(classes * counts[labels])[:, None]
    drawn = jax.random.normal(key, (len(wide), number), wide.dtype)
    moves = _numerics.product(drawn, known)
  return (wide + _checks.scalar("scale", scale, wide.dtype) * moves).astype(
    features.dtype
  )
