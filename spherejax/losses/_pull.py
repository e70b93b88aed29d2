"""Losses that pull an example to the prototype of its class, without any push.

They need prototypes that are separated by construction: fixed ones, on the sphere.
"""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _numerics
from spherejax.losses import _batch, _classes


def pull(
  cosines: Float[ArrayLike, "batch classes"],
  labels: _classes.Targets,
  *,
  weights: Float[ArrayLike, " classes"] | None = None,
  where: Bool[ArrayLike, " batch"] | None = None,
) -> Float[Array, " batch"]:
  """Pull loss: squared error of the cosine with the class's prototype.

      loss_i = 1/2 w_{y_i} (cos(x_i, p_{y_i}) - 1)^2
      loss_i = 1/2 sum_c q_ic w_c (cos(x_i, p_c) - 1)^2      labels q [batch, classes]

  The gradient vanishes at the prototype and also opposite to it. With mixed labels q =
  t onehot(a) + (1 - t) onehot(b) the minimum is not at the mixed direction: for
  orthogonal prototypes and t = 0.8 it lies 33.6 degrees from a, not 14.

  Args:
    cosines: [batch, classes], floating, with the prototypes in the order of the
      labels; `distances.pairwise_cosine` makes them.
      Known values must be in [-1, 1] up to rounding; traced values are not checked.
    labels: [batch], integer in [0, classes), where a traced label out of range masks
      its row; or [batch, classes], floating, for mixed or smoothed labels.
    weights: [classes], floating, such as `inverse_frequency_weights`. None for 1.
    where: [batch], boolean, True keeps. None keeps all.

  Returns:
    [batch], dtype of `cosines`; 0 for masked rows. `loss.mean()` is the paper's
    scalar; the published code of its balanced experiments takes twice the sum. Rows
    do not depend on each other.

  Raises:
    TypeError: cosines or weights are not floating, labels neither integers [batch]
      nor floating [batch, classes].
    ValueError: shapes do not match, or a known label outside [0, classes).

  Differentiable in: cosines, weights, distributions. Cost: O(batch classes).

  Source: DL2P eq. 6; Yang et al. 2022, "Inducing neural collapse in imbalanced
  learning".

  Example:
    >>> spherejax.losses.pull(jnp.array([[0.5, -0.5]]), jnp.array([0]))
    Array([0.125], dtype=float32)
  """
  return _regression("cosines", cosines, labels, 1.0, weights, where)


def dot_regression(
  products: Float[ArrayLike, "batch classes"],
  labels: _classes.Targets,
  *,
  target: Real[ArrayLike, ""] = 1.0,
  weights: Float[ArrayLike, " classes"] | None = None,
  where: Bool[ArrayLike, " batch"] | None = None,
) -> Float[Array, " batch"]:
  """Dot-regression loss: squared error of the product with the class's prototype.

      loss_i = w_{y_i} (<x_i, p_{y_i}> - target)^2 / (2 target)
      loss_i = sum_c q_ic w_c (<x_i, p_c> - target)^2 / (2 target)

  the second for labels q [batch, classes]. With features of length sqrt(E_H) and
  prototypes of length sqrt(E_W), `target` is sqrt(E_H E_W). With target 1 the loss is
  `pull`.

  Args:
    products: [batch, classes], floating, dot products with the prototypes.
    labels: [batch], integer in [0, classes), where a traced label out of range masks
      its row; or [batch, classes], floating, for mixed or smoothed labels.
    target: positive, the product to reach; may be traced.
    weights: [classes], floating, such as `inverse_frequency_weights`. None for 1.
    where: [batch], boolean, True keeps. None keeps all.

  Returns:
    [batch], dtype of `products`; 0 for masked rows. `loss.mean()` is the paper's
    scalar. Rows do not depend on each other.

  Raises:
    TypeError: products or weights are not floating, labels neither integers [batch]
      nor floating [batch, classes].
    ValueError: shapes do not match, a known label outside [0, classes), or a static
      target that is not positive.

  Differentiable in: products, target, weights, distributions.
  Cost: O(batch classes).

  Source: Yang et al. 2022, "Inducing neural collapse in imbalanced learning".

  Example:
    >>> products = jnp.array([[2.0, -0.5]])
    >>> spherejax.losses.dot_regression(products, jnp.array([0]), target=4.0)
    Array([0.5], dtype=float32)
  """
  _checks.positive("target", target)
  return _regression("products", products, labels, target, weights, where)


def _regression(
  name: str,
  products: ArrayLike,
  labels: ArrayLike,
  target: ArrayLike,
  weights: ArrayLike | None,
  where: ArrayLike | None,
) -> Array:
  if _classes.is_distribution(labels):
    values, shares, dtype = _classes.distributions(name, products, labels, where)
    class_mask = jnp.ones(shares.shape, bool)
  else:
    values, class_mask, dtype, _ = _classes.scores(name, products, labels, where)
    shares = class_mask.astype(values.dtype)
  if weights is not None:
    factors = _checks.array("weights", weights, "floating")
    _checks.shape("weights", factors, values.shape[1:], "the classes")
    shares *= jnp.where(class_mask, factors.astype(values.dtype)[None], 0)
  goal = _checks.scalar("target", target, values.dtype)
  gaps = jnp.where(class_mask, values - goal, 0)
  loss = jnp.sum(shares * gaps**2, axis=1) / (2 * goal)
  return loss.astype(dtype)


def inverse_frequency_weights(
  labels: Integer[ArrayLike, " batch"],
  num_classes: int,
  *,
  where: Bool[ArrayLike, " batch"] | None = None,
  axis_name: str | None = None,
) -> Float[Array, " classes"]:
  """Class weights that make each class in a batch count equally.

      w_c = n / (n_c #{classes present})      0 for a class without examples

  The weights of the n kept examples add up to n.

  Args:
    labels: [batch], integer in [0, num_classes). A traced label out of range counts for
      no class.
    num_classes: static.
    where: [batch], boolean, True keeps. None keeps all.
    axis_name: mapped axis over which the batch is spread; counts are those of all
      devices.

  Returns:
    [classes], float32 (float64 where that is JAX's default).

  Raises:
    TypeError: labels are not integers, num_classes not a static integer.
    ValueError: shapes do not match, or a known label outside [0, num_classes).

  Differentiable in: nothing. Cost: O(batch + classes).

  Source: DL2P 7.2 ("the inverse ratio of the number of samples per class").

  Example:
    >>> spherejax.losses.inverse_frequency_weights(jnp.array([0, 0, 2]), 3)
    Array([0.75, 0.  , 1.5 ], dtype=float32)
  """
  labels = _checks.integers("labels", labels)
  _checks.expect("labels", labels, "integer", rank=1)
  _checks.count("num_classes", num_classes)
  mask = _batch.keep_all(where, labels)
  mask &= _checks.inside(labels, num_classes, mask)
  index = jnp.where(mask, labels, 0)
  members = jax.ops.segment_sum(mask.astype(jnp.int32), index, num_classes)
  members = _batch.total(members, axis_name)
  counts = members.astype(jnp.result_type(float))
  present = jnp.sum(members > 0, dtype=jnp.int32).astype(counts.dtype)
  return _numerics.divide(jnp.sum(counts), counts * present)


def correlation(
  cosines: Float[ArrayLike, "batch classes"],
  labels: Integer[ArrayLike, " batch"],
  *,
  where: Bool[ArrayLike, " batch"] | None = None,
) -> Float[Array, " batch"]:
  """Correlation loss (CORR): 1 minus the cosine with the class's prototype.

      loss_i = 1 - cos(x_i, p_{y_i}) = |x_i/|x_i| - p_{y_i}|^2 / 2

  Args:
    cosines: [batch, classes], floating; `distances.pairwise_cosine` makes them.
      Known values must be in [-1, 1] up to rounding; traced values are not checked.
    labels: [batch], integer in [0, classes). A traced label out of range masks its
      row.
    where: [batch], boolean, True keeps. None keeps all.

  Returns:
    [batch], dtype of `cosines`; 0 for masked rows. `loss.mean()` is the paper's
    scalar (its released code sums). Rows do not depend on each other.

  Raises:
    TypeError: cosines are not floating, labels not integers.
    ValueError: shapes do not match, or a known label outside [0, classes).

  Differentiable in: cosines. Cost: O(batch classes).

  Source: DIST IV eq. 11; Barz and Denzler 2019, "Hierarchy-based image embeddings for
  semantic image retrieval", who add 0.1 times `softmax`.

  Example:
    >>> spherejax.losses.correlation(jnp.array([[0.5, -0.5]]), jnp.array([0]))
    Array([0.5], dtype=float32)
  """
  batch = _classes.scores("cosines", cosines, labels, where)
  return _numerics.masked_sum(1 - batch.values, batch.class_mask).astype(batch.dtype)


def hyperspherical(
  cosines: Float[ArrayLike, "batch classes"],
  labels: Integer[ArrayLike, " batch"],
  *,
  where: Bool[ArrayLike, " batch"] | None = None,
) -> Float[Array, " batch"]:
  """Hyperspherical-prototype loss: (1 - cosine with the class's prototype)^2.

      loss_i = (1 - cos(x_i, p_{y_i}))^2

  It is twice the `pull` loss.

  Args:
    cosines: [batch, classes], floating; `distances.pairwise_cosine` makes them.
      Known values must be in [-1, 1] up to rounding; traced values are not checked.
    labels: [batch], integer in [0, classes). A traced label out of range masks its
      row.
    where: [batch], boolean, True keeps. None keeps all.

  Returns:
    [batch], dtype of `cosines`; 0 for masked rows. `loss.mean()` is the original
    paper's scalar; `loss.sum()` is DIST's. Rows do not depend on each other.

  Raises:
    TypeError: cosines are not floating, labels not integers.
    ValueError: shapes do not match, or a known label outside [0, classes).

  Differentiable in: cosines. Cost: O(batch classes).

  Source: DIST 4.2; Mettes et al. 2019, "Hyperspherical prototype networks".

  Example:
    >>> spherejax.losses.hyperspherical(jnp.array([[0.5, -0.5]]), jnp.array([0]))
    Array([0.25], dtype=float32)
  """
  batch = _classes.scores("cosines", cosines, labels, where)
  return _numerics.masked_sum((1 - batch.values) ** 2, batch.class_mask).astype(
    batch.dtype
  )
