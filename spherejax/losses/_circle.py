"""Circle loss: pairs weighted by how far they are from their optimum."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _numerics
from spherejax.losses import _batch, _selection
from spherejax.losses._batch import Normalization


def circle(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  *,
  margin: Real[ArrayLike, ""] = 0.4,
  scale: Real[ArrayLike, ""] = 80.0,
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  references: _batch.References | None = None,
  miner: _batch.Miner | None = None,
  block_size: int | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Circle loss: similarities weighted by their distance from their optimum.

      a_ij = [1 + m - S_ij]+  for y_i = y_j, i != j,    [S_ij + m]+  for y_i != y_j
      loss_i = log(1 + sum_{n: y_n != y_i} exp(scale a_in (S_in - m))
                     sum_{p: y_p = y_i} exp(-scale a_ip (S_ip - (1 - m))))

  with m = margin. The weights a are constants for the derivative. The decision boundary
  is the circle S_n^2 + (1 - S_p)^2 = 2 m^2.

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer. Only their equality matters.
    margin: in units of a similarity, may be traced. 0.4 for retrieval, 0.25 for faces.
    scale: positive, may be traced. 80 for retrieval, 256 for faces.
    normalize: "l2", "unit_ball" (S is then the dot product of the projected rows)
      or "none". Static.
    where: [batch], boolean, True keeps. None keeps all.
    references: rows to compare the batch with; None takes the batch itself. Proxies
      give the class-level form of the loss.
    miner: chooses the pairs that count, given the similarities. None keeps all.
    block_size: static. Rows per block, recomputed for the gradient; memory is
      block_size x batch. None takes all at once.
    axis_name: mapped axis over which the batch is spread. Each device returns the
      values of its rows, computed in the batch of all devices.

  Returns:
    [batch], dtype of `embeddings`; 0 for masked rows and for rows without a positive
    or without a negative. `loss.sum()` divided by the number of rows with both is the
    paper's mean.

  Raises:
    TypeError: embeddings are not floating, labels not integers.
    ValueError: shapes do not match, an unknown `normalize`, or a static scale that
      is not positive.

  Differentiable in: embeddings, margin, scale (the weights a are held constant).
  Cost: O(batch^2 dim) time.

  Source: Sun et al. 2020, "Circle loss", eq. 4 to 8.

  Example:
    >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> spherejax.losses.circle(x, jnp.array([0, 0, 1]), scale=2.0)
    Array([2.1977212, 2.7089303, 0.       ], dtype=float32)
  """
  batch = _batch.batch_of(embeddings, labels, where, normalize, references, axis_name)
  terms = _circle(margin, scale, batch.anchors.dtype)
  loss = _batch.over_pairs(terms, batch, _batch.dot, miner, block_size)
  return loss.astype(batch.dtype)


def _circle(
  margin: ArrayLike, scale: ArrayLike, dtype: jnp.dtype
) -> Callable[[_batch.Block], Array]:
  _checks.positive("scale", scale)
  m = _checks.scalar("margin", margin, dtype)
  s = _checks.scalar("scale", scale, dtype)

  def terms(block: _batch.Block) -> Array:
    similar, optimum = (jax.lax.stop_gradient(x) for x in (block.values, m))
    to_one = jax.nn.relu(1 + optimum - similar)
    to_zero = jax.nn.relu(similar + optimum)
    pull = s * to_one * (1 - m - block.values)
    push = s * to_zero * (block.values - m)
    return _numerics.softplus(
      _selection.logsumexp_over(pull, block.positives)
      + _selection.logsumexp_over(push, block.negatives)
    )

  return terms


def circle_from_similarity(
  similarities: Float[ArrayLike, "queries references"],
  positives: _selection.Selection,
  negatives: _selection.Selection,
  *,
  margin: Real[ArrayLike, ""] = 0.4,
  scale: Real[ArrayLike, ""] = 80.0,
  where: Bool[ArrayLike, " queries"] | None = None,
) -> Float[Array, " queries"]:
  """Circle loss from a matrix of similarities.

  The matrix form of `circle`; a pair in neither mask is ignored.

      loss_i = log(1 + sum_{n negative} exp(scale [S_in + m]+ (S_in - m))
                     sum_{p positive} exp(-scale [1 + m - S_ip]+ (S_ip - (1 - m))))

  Args:
    similarities: [queries, references], floating.
    positives: [queries, references], boolean, or weights of the exponentials, not
      differentiated.
    negatives: [queries, references], boolean or weights.
    margin: in units of a similarity, may be traced.
    scale: positive, may be traced.
    where: [queries], boolean, True keeps. None keeps all.

  Returns:
    [queries], dtype of `similarities`; 0 for masked rows and for rows without a
    positive or without a negative.

  Raises:
    TypeError: similarities are not floating, masks neither boolean nor floating.
    ValueError: shapes do not match, or a static scale that is not positive.

  Differentiable in: similarities, margin, scale (the factors [.]+ are constants).
  Cost: O(queries references).

  Source: Sun et al. 2020, "Circle loss", eq. 4 to 8.

  Example:
    >>> same = jnp.array([[True, False]])
    >>> s = jnp.array([[0.75, 0.5]])
    >>> spherejax.losses.circle_from_similarity(s, same, ~same, scale=4.0)
    Array([0.67825973], dtype=float32)
  """
  block, dtype = _batch.matrix(
    similarities, positives, negatives, where, "similarities"
  )
  return _circle(margin, scale, block.values.dtype)(block).astype(dtype)
