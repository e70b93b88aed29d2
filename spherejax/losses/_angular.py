"""The angular loss: each positive pair against all negatives, by one angle."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int, Real

from spherejax import _checks, _numerics
from spherejax.losses import _batch, _positives


def angular(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Int[ArrayLike, " batch"],
  *,
  angle: Real[ArrayLike, ""] = 0.7853981633974483,
  normalize: str = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  references: _batch.References | None = None,
  miner: _batch.Miner | None = None,
  block_size: int | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Angular loss: pushes negatives out of the cone around a positive pair.

  In its batch form, with t = tan(angle)^2 and unit vectors x,

      f_apn = 4 t <x_a + x_p, x_n> - 2 (1 + t) <x_a, x_p>
      loss_a = sum_{p: y_p = y_a, p != a} log(1 + sum_{n: y_n != y_a} exp(f_apn))

  The hinge form |x_a - x_p|^2 - 4 t |x_n - (x_a + x_p) / 2|^2 is f + 2 - 6 t: the paper
  drops this constant, and so do we.

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer. Only their equality matters.
    angle: radians in (0, pi / 2), may be traced; 45 degrees.
    normalize: "l2", "unit_ball" or "none". Static.
    where: [batch], boolean, True keeps. None keeps all.
    references: what the batch is compared with. None is the batch itself.
    miner: chooses the pairs that count, of the similarities. None keeps all.
    block_size: static. Rows at a time, computed again for the gradient; memory is
      block_size x batch. None takes all at once.
    axis_name: mapped axis over which the batch is spread; the values are those of
      the local rows in the batch of all devices.

  Returns:
    [batch], dtype of `embeddings`; 0 for masked rows and rows without a positive or
    without a negative. `loss.sum()` over the number of ordered positive pairs is the
    paper's scalar.

  Raises:
    TypeError: embeddings are not floating, labels not integers.
    ValueError: shapes do not match, an unknown `normalize`, or a static angle outside
      (0, pi / 2).

  Differentiable in: embeddings, angle; in reverse mode.
  Cost: O(batch^2 (dim + largest class)) time; with blocks, devices or references
  O(batch^2 dim largest class), one product for each positive of a row, none of which is
  kept. O(batch^2) memory.

  Source: Wang et al. 2017, "Deep metric learning with angular loss", eq. 8.

  Example:
    >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> spherejax.losses.angular(x, jnp.array([0, 0, 1]))
    Array([5.6036916, 5.6036916, 0.       ], dtype=float32)
  """
  _checks.between("angle", angle, 0, jnp.pi / 2, low_open=True, high_open=True)
  batch = _batch.batch_of(embeddings, labels, where, normalize, references, axis_name)
  t = jnp.tan(_checks.scalar("angle", angle, batch.anchors.dtype)) ** 2
  # The whole matrix of a batch with itself has the rows of the positives as well.
  whole = references is None and block_size is None and axis_name is None
  terms = _terms(None if whole else batch.references, t)
  loss = _batch.over_pairs(terms, batch, _batch.dot, miner, block_size)
  return loss.astype(batch.dtype)


def _terms(references: Array | None, t: Array) -> Callable[[_batch.Block], Array]:
  def terms(block: _batch.Block) -> Array:
    near = _batch.chosen(block.positives)
    masks = block.positives, block.negatives
    return _positives.sum_over(_pair, near, masks, (block.values, references, t))

  return terms


def _pair(index: Array, masks: tuple[Array, Array], operands: tuple) -> Array:
  """[rows]: the loss of one positive pair of each row."""
  positives, negatives = masks
  values, references, t = operands
  partners = jnp.minimum(index, values.shape[1] - 1)
  if references is None:
    of_partners = _batch.take_rows(values, partners)
  else:
    of_partners = _batch.dot(_batch.take_rows(references, partners), references)
  near = _positives.pick(values, index)
  weight = _positives.pick(positives.astype(values.dtype), index)[:, 0]
  against = 4 * t * (values + of_partners) - 2 * (1 + t) * near
  loss = _numerics.softplus(_batch.logsumexp_over(against, negatives))
  return jnp.where(_positives.exists(index, values), weight * loss, 0)
