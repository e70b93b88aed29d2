"""Cross-entropy of logits and of cosines, and a squared error of cosines."""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks
from spherejax.losses import _classes


def softmax(
  logits: Float[ArrayLike, "batch classes"],
  labels: _classes.Targets,
  *,
  where: Bool[ArrayLike, " batch"] | None = None,
  class_axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Softmax cross-entropy, for classes or for distributions over classes.

      loss_i = -log softmax_c(z_ic)_{y_i}
      loss_i = -sum_c q_ic log softmax_c(z_ic)       labels q [batch, classes]

  Distributions serve smoothed labels, mixed examples and teachers; with them the least
  value is the entropy of q_i.

  Args:
    logits: [batch, classes], floating and finite; not probabilities. Known rows that
      look like probabilities cause a warning; traced rows are not checked.
    labels: [batch], integer in [0, classes), where a traced label out of range masks
      its row; or [batch, classes], floating, used as they are, without being normalised
      to sum 1.
    where: [batch], boolean, True keeps. None keeps all.
    class_axis_name: mapped axis over whose devices the classes are split, see
      :ref:`classes-over-devices`. None: all classes are here.

  Returns:
    [batch], dtype of `logits`; 0 for masked rows. `loss.mean()` is the paper's
    scalar. Rows do not depend on each other. Small values keep their digits.

  Raises:
    TypeError: logits are not floating, labels neither integers [batch] nor
      floating [batch, classes].
    ValueError: shapes do not match, or a known label outside [0, classes).

  Differentiable in: logits, distributions. Cost: O(batch classes).

  Source: DIST eqs. 1.2 to 1.5. For the label smoothing of Szegedy et al. 2016,
  "Rethinking the Inception architecture", give q = (1 - e) onehot(y) + e / classes.

  Example:
    >>> spherejax.losses.softmax(jnp.eye(2), jnp.array([0, 1]))
    Array([0.3132617, 0.3132617], dtype=float32)
  """
  if _classes.is_distribution(labels):
    values, targets, dtype = _classes.distributions("logits", logits, labels, where)
    logs = _classes.log_softmax(values, class_axis_name)
    loss = -_classes.over_classes(jnp.sum(targets * logs, axis=1), class_axis_name)
    return loss.astype(dtype)
  batch = _classes.scores(
    "logits", logits, labels, where, class_axis_name=class_axis_name
  )
  loss = _classes.cross_entropy(
    batch.values, batch.class_mask, axis_name=class_axis_name
  )
  return loss.astype(batch.dtype)


def normface(
  cosines: Float[ArrayLike, "batch classes"],
  labels: Integer[ArrayLike, " batch"],
  *,
  scale: Real[ArrayLike, ""] = 64.0,
  where: Bool[ArrayLike, " batch"] | None = None,
  class_axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """NormFace loss: cross-entropy of scaled cosines.

      loss_i = -log softmax_c(scale cos(x_i, w_c))_{y_i}

  Its least value over all directions is log(1 + (C - 1) exp(-scale C / (C - 1))),
  reached when the C weights form a regular simplex and x_i = w_{y_i}. Another name is
  normalised softmax loss, with temperature 1 / scale.

  Args:
    cosines: [batch, classes], floating; `distances.pairwise_cosine` makes them.
      Known values must be in [-1, 1] up to rounding; traced values are not checked.
    labels: [batch], integer in [0, classes). A traced label out of range masks its
      row.
    scale: positive, multiplies the cosines; may be traced and learned.
    where: [batch], boolean, True keeps. None keeps all.
    class_axis_name: mapped axis over whose devices the classes are split, see
      :ref:`classes-over-devices`. None: all classes are here.

  Returns:
    [batch], dtype of `cosines`; 0 for masked rows. `loss.mean()` is the paper's
    scalar. Rows do not depend on each other.

  Raises:
    TypeError: cosines are not floating, labels not integers.
    ValueError: shapes do not match, a known label outside [0, classes), or a static
      scale that is not positive.

  Differentiable in: cosines, scale. Cost: O(batch classes).

  Source: DIST eqs. 2.2 and 2.3; Wang et al. 2017, "NormFace".

  Example:
    >>> spherejax.losses.normface(jnp.eye(2), jnp.array([0, 1]), scale=1.0)
    Array([0.3132617, 0.3132617], dtype=float32)
  """
  _checks.positive("scale", scale)
  batch = _classes.scores(
    "cosines", cosines, labels, where, class_axis_name=class_axis_name
  )
  multiplier = _checks.scalar("scale", scale, batch.values.dtype)
  loss = _classes.cross_entropy(
    batch.values, batch.class_mask, multiplier, axis_name=class_axis_name
  )
  return loss.astype(batch.dtype)


def p2s_grad(
  cosines: Float[ArrayLike, "batch classes"],
  labels: Integer[ArrayLike, " batch"],
  *,
  where: Bool[ArrayLike, " batch"] | None = None,
  class_axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """P2SGrad loss: squared error of the cosines to their one-hot target.

      loss_i = 1/2 sum_c (cos(x_i, w_c) - 1[c = y_i])^2

  The derivative with respect to a cosine is the cosine minus its target. This is the
  derivative of softmax with the probability replaced by the cosine, so there is no
  scale to choose.

  Args:
    cosines: [batch, classes], floating; `distances.pairwise_cosine` makes them.
      Known values must be in [-1, 1] up to rounding; traced values are not checked.
    labels: [batch], integer in [0, classes). A traced label out of range masks its
      row.
    where: [batch], boolean, True keeps. None keeps all.
    class_axis_name: mapped axis over whose devices the classes are split, see
      :ref:`classes-over-devices`. None: all classes are here.

  Returns:
    [batch], dtype of `cosines`; 0 for masked rows. `loss.mean()` has the paper's
    gradient. Rows do not depend on each other.

  Raises:
    TypeError: cosines are not floating, labels not integers.
    ValueError: shapes do not match, or a known label outside [0, classes).

  Differentiable in: cosines. Cost: O(batch classes).

  Source: Zhang et al. 2019, "P2SGrad: refined gradients for optimizing deep face
  models", eq. 11 (which gives the gradient; this is its integral).

  Example:
    >>> spherejax.losses.p2s_grad(jnp.full((2, 2), 0.5), jnp.array([0, 1]))
    Array([0.25, 0.25], dtype=float32)
  """
  batch = _classes.scores(
    "cosines", cosines, labels, where, class_axis_name=class_axis_name
  )
  error = batch.values - batch.class_mask.astype(batch.values.dtype)
  loss = _classes.over_classes(jnp.sum(error**2, axis=1) / 2, class_axis_name)
  return loss.astype(batch.dtype)
