"""Losses of the softmax family, on logits or cosines of classes."""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int, Real

from spherejax import _checks, _numerics
from spherejax.losses import _batch


def normface(
  cosines: Float[ArrayLike, "batch classes"],
  labels: Int[ArrayLike, " batch"],
  *,
  scale: Real[ArrayLike, ""] = 64.0,
  where: Bool[ArrayLike, " batch"] | None = None,
) -> Float[Array, " batch"]:
  """NormFace loss: cross-entropy of scaled cosines.

      loss_i = -log softmax_c(scale cos(x_i, w_c))_{y_i}

  Its least value over all directions is log(1 + (C - 1) exp(-scale C / (C - 1))),
  reached when the C weights form a regular simplex and x_i = w_{y_i}.

  Args:
    cosines: [batch, classes], floating; `distances.pairwise_cosine` makes them.
    labels: [batch], integer in [0, classes). A traced label outside makes a masked
      row.
    scale: positive, multiplies; may be traced and learned.
    where: [batch], boolean, True keeps. None keeps all.

  Returns:
    [batch], dtype of `cosines`; 0 for masked rows. `loss.mean()` is the paper's
    scalar. Rows do not depend on each other.

  Raises:
    TypeError: cosines are not floating, labels not integers.
    ValueError: shapes do not match, a known label outside [0, classes), or a static
      scale that is not positive.

  Differentiable in: cosines, scale. Cost: O(batch classes).

  Source: DIST 2.2-2.3; Wang et al. 2017, "NormFace".

  Example:
    >>> spherejax.losses.normface(jnp.eye(2), jnp.array([0, 1]), scale=1.0)
    Array([0.3132617, 0.3132617], dtype=float32)
  """
  cosines, labels = jnp.asarray(cosines), jnp.asarray(labels)
  _checks.floating("cosines", cosines)
  _checks.rank("cosines", cosines, 2)
  _checks.labels(labels, cosines)
  _checks.positive("scale", scale)
  kept = _batch.keep_all(where, cosines)
  wide = jnp.where(kept[:, None], _numerics.upcast(cosines), 0)
  own = _batch.class_mask(labels, cosines.shape[1], kept)
  multiplier = _checks.scalar("scale", scale, wide.dtype)
  return _batch.cross_entropy(wide, own, multiplier).astype(cosines.dtype)
