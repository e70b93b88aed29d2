"""Tuplet margin loss: every positive pair against all negatives of its anchor."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _numerics
from spherejax.losses import _batch, _selection, _turned
from spherejax.losses._batch import Normalization

# Below this multiple of the rounding error, 1 - cosine^2 says nothing about the angle.
_NOISE = 16


def tuplet_margin(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  *,
  scale: Real[ArrayLike, ""] = 64.0,
  margin: Real[ArrayLike, ""] = 0.1,
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  references: _batch.References | None = None,
  miner: _batch.Miner | None = None,
  block_size: int | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Tuplet margin loss: cross-entropy of each positive pair with its angle narrowed.

      loss_i = sum_{p: y_p = y_i, p != i}
               log(1 + sum_{n: y_n != y_i} exp(scale (S_in - cos(angle_ip - margin))))

  The margin makes positives look closer than they are, so that the hardest do not
  dominate. The formula is taken literally: a pair closer than the margin looks farther
  again.

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer. Only their equality matters.
    scale: positive, may be traced.
    margin: radians, may be traced.
    normalize: "l2", "unit_ball" or "none". Static.
    where: [batch], boolean, True keeps. None keeps all.
    references: rows to compare the batch with; None takes the batch itself.
    miner: chooses the pairs that count, given the similarities. None keeps all.
    block_size: static. Rows per block, recomputed for the gradient; memory is
      block_size x batch. None takes all at once.
    axis_name: mapped axis over which the batch is spread. Each device returns the
      values of its rows, computed in the batch of all devices.

  Returns:
    [batch], dtype of `embeddings`; 0 for masked rows and rows without a positive or
    without a negative. `loss.sum()` divided by the number of ordered positive pairs is
    the paper's scalar.

  Raises:
    TypeError: embeddings are not floating, labels not integers.
    ValueError: shapes do not match, an unknown `normalize`, or a static scale that is
      not positive.

  Differentiable in: embeddings, scale, margin; at the angles 0 and pi the derivative
  with respect to the cosine is cos(margin). Cost: O(batch^2 dim) time.

  Source: Yu & Tao 2019, "Deep metric learning with tuplet margin loss", eq. 5.

  Example:
    >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> spherejax.losses.tuplet_margin(x, jnp.array([0, 0, 1]), scale=2.0)
    Array([1.3135053, 1.6206846, 0.       ], dtype=float32)
  """
  batch = _batch.batch_of(embeddings, labels, where, normalize, references, axis_name)
  terms = _terms(scale, margin, batch.anchors.dtype)
  loss = _batch.over_pairs(terms, batch, _batch.dot, miner, block_size)
  return loss.astype(batch.dtype)


def _terms(
  scale: ArrayLike, margin: ArrayLike, dtype: jnp.dtype
) -> Callable[[_batch.Block], Array]:
  _checks.positive("scale", scale)
  s = _checks.scalar("scale", scale, dtype)
  m = _checks.scalar("margin", margin, dtype)

  def terms(block: _batch.Block) -> Array:
    cosines = block.values
    narrowed = _turned.turned(cosines, -m, _NOISE * float(jnp.finfo(dtype).eps))
    against = _selection.logsumexp_over(s * cosines, block.negatives)[:, None]
    losses = _numerics.softplus(against - s * narrowed)
    return _selection.sum_over(losses, block.positives)

  return terms


def tuplet_margin_from_similarity(
  similarities: Float[ArrayLike, "queries references"],
  positives: _selection.Selection,
  negatives: _selection.Selection,
  *,
  scale: Real[ArrayLike, ""] = 64.0,
  margin: Real[ArrayLike, ""] = 0.1,
  where: Bool[ArrayLike, " queries"] | None = None,
) -> Float[Array, " queries"]:
  """Tuplet margin loss from a matrix of cosines.

  The matrix form of `tuplet_margin`; a pair in neither mask is ignored.

      loss_i = sum_{p positive}
               log(1 + sum_{n negative} exp(scale (S_in - cos(angle_ip - margin))))

  Args:
    similarities: [queries, references], floating; cosines.
    positives: [queries, references], boolean, or weights of the terms, not
      differentiated.
    negatives: [queries, references], boolean, or weights of the exponentials.
    scale: positive, may be traced.
    margin: radians, may be traced.
    where: [queries], boolean, True keeps. None keeps all.

  Returns:
    [queries], dtype of `similarities`; 0 for masked rows.

  Raises:
    TypeError: similarities are not floating, masks neither boolean nor floating.
    ValueError: shapes do not match, or a static scale that is not positive.

  Differentiable in: similarities, scale, margin. Cost: O(queries references).

  Source: Yu & Tao 2019, "Deep metric learning with tuplet margin loss", eq. 5.

  Example:
    >>> same = jnp.array([[True, False]])
    >>> s = jnp.array([[0.5, 0.5]])
    >>> loss = spherejax.losses.tuplet_margin_from_similarity
    >>> loss(s, same, ~same, scale=1.0, margin=0.0)
    Array([0.6931472], dtype=float32)
  """
  block, dtype = _batch.matrix(
    similarities, positives, negatives, where, "similarities"
  )
  return _terms(scale, margin, block.values.dtype)(block).astype(dtype)
