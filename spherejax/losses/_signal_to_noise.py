"""Contrastive loss on the noise that turns one embedding into another."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _numerics
from spherejax.losses import _batch, _contrastive
from spherejax.losses._batch import Normalization
from spherejax.losses._contrastive import Average


def signal_to_noise_contrastive(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  *,
  positive_margin: Real[ArrayLike, ""] = 0.0,
  negative_margin: Real[ArrayLike, ""] = 1.0,
  mean_weight: Real[ArrayLike, ""] = 0.0,
  average: Average = "nonzero",
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  references: _batch.References | None = None,
  miner: _batch.Miner | None = None,
  block_size: int | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Contrastive loss on the inverse signal-to-noise ratio of a pair.

      D_ij = var(x_i - x_j) / var(x_i),   the variance over the dim entries of a row
      loss_i = contrastive loss of D + mean_weight |sum_k x_ik|

  The anchor is the signal and the difference the noise, so D is not symmetric. An
  anchor with equal entries has no signal: its distances are 0, with derivative 0. The
  matrix form is `contrastive_from_distance`.

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer. Only their equality matters.
    positive_margin: in units of D, may be traced.
    negative_margin: in units of D, at least `positive_margin`, may be traced.
    mean_weight: weight of the pull of each row's mean to zero, at least 0, may be
      traced.
    average: "nonzero" divides each part by its number of nonzero terms, "all" by the
      number of all pairs. Static.
    normalize: "l2", "unit_ball" or "none" (the paper's). Static.
    where: [batch], boolean, True keeps. None keeps all.
    references: rows to compare the batch with; None takes the batch itself.
    miner: chooses the pairs that count, given D. None keeps all.
    block_size: static. Rows per block, recomputed for the gradient; memory is
      block_size x batch. None takes all at once.
    axis_name: mapped axis over which the batch is spread. Each device returns the
      values of its rows, computed in the batch of all devices.

  Returns:
    [batch], dtype of `embeddings`; 0 for masked rows. `loss.mean()` is the paper's
    scalar (over the kept rows).

  Raises:
    TypeError: embeddings are not floating, labels not integers.
    ValueError: shapes do not match, an unknown `average` or `normalize`, a static
      `negative_margin` below a static `positive_margin`, or a static weight below 0.

  Differentiable in: embeddings, margins, mean_weight (counts are constants).
  Cost: O(batch^2 dim) time.

  Source: Yuan et al. 2019, "Signal-to-noise ratio: a robust distance metric for deep
  metric learning". Differs from the paper: rows are normalised by default.

  Example:
    >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> spherejax.losses.signal_to_noise_contrastive(x, jnp.array([0, 0, 1]))
    Array([6.  , 7.08, 0.  ], dtype=float32)
  """
  _checks.one_of("average", average, Average)
  batch = _batch.batch_of(embeddings, labels, where, normalize, references, axis_name)
  dtype = batch.anchors.dtype
  _checks.between("mean_weight", mean_weight, 0)
  weight = _checks.scalar("mean_weight", mean_weight, dtype)
  parts = _batch.over_pairs(
    _contrastive.hinge_sums(positive_margin, negative_margin, dtype),
    batch,
    _noise_to_signal,
    miner,
    block_size,
    additive=True,
  )
  number = jnp.sum(batch.reference_where, dtype=jnp.int32)
  loss = _contrastive.averaged(parts, batch.where, number, average, axis_name)
  offset = jnp.sum(batch.anchors, axis=1)
  # abs with derivative 0 at 0
  loss += weight * (jax.nn.relu(offset) + jax.nn.relu(-offset))
  return loss.astype(batch.dtype)


def _noise_to_signal(anchors: Array, references: Array) -> Array:
  # The rows are scaled first, so that their squares neither overflow nor vanish; the
  # quotient stays the same.
  power = _numerics.shrinking(anchors, references, grow=True)
  anchors, references = power * anchors, power * references
  x, y = (
    rows - jnp.mean(rows, axis=1, keepdims=True) for rows in (anchors, references)
  )
  signal = jnp.sum(x**2, axis=1, keepdims=True)
  # What equal entries leave after their rounded mean is subtracted is no signal.
  rounding = (16 * jnp.finfo(x.dtype).eps) ** 2
  silent = signal <= rounding * jnp.sum(anchors**2, axis=1, keepdims=True)
  signal = jnp.where(silent & jnp.isfinite(signal), 0, signal)
  return _numerics.divide(_batch.squared_euclidean(x, y), signal)
