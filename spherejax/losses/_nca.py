"""Neighbourhood components analysis (NCA), with a stochastic nearest neighbour."""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _numerics
from spherejax.losses import _batch, _selection
from spherejax.losses._batch import Normalization

Form = Literal["log", "probability"]


def nca(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  *,
  scale: Real[ArrayLike, ""] = 1.0,
  form: Form = "log",
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  references: _batch.References | None = None,
  miner: _batch.Miner | None = None,
  block_size: int | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Neighbourhood components analysis: a randomly drawn neighbour has the right class.

      p_i = sum_{j: y_j = y_i, j != i} exp(-scale |x_i - x_j|^2)
            / sum_{j != i} exp(-scale |x_i - x_j|^2)
      loss_i = -log p_i    "log",        loss_i = 1 - p_i    "probability"

  The logarithm is taken of the sum over the positives, so one near positive is enough.

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer. Only their equality matters.
    scale: positive, multiplies the squared distances, may be traced.
    form: "log" or "probability", whose gradient vanishes for hopeless rows. Static.
    normalize: "l2", "unit_ball" or "none". Static.
    where: [batch], boolean, True keeps. None keeps all.
    references: rows to compare the batch with; None takes the batch itself.
    miner: chooses the pairs that count, given the squared distances. None keeps all.
    block_size: static. Rows per block, recomputed for the gradient; memory is
      block_size x batch. None takes all at once.
    axis_name: mapped axis over which the batch is spread. Each device returns the
      values of its rows, computed in the batch of all devices.

  Returns:
    [batch], dtype of `embeddings`; 0 for masked rows and for rows without a positive
    or without a negative. `loss.sum()` divided by the number of rows with a positive is
    the paper's mean.

  Raises:
    TypeError: embeddings are not floating, labels not integers.
    ValueError: shapes do not match, an unknown `form` or `normalize`, or a static
      scale that is not positive.

  Differentiable in: embeddings, scale. Cost: O(batch^2 dim) time.

  Source: Goldberger et al. 2004, "Neighbourhood components analysis", eq. 1 to 4
  ("probability") and section 3 ("log").

  Example:
    >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> spherejax.losses.nca(x, jnp.array([0, 0, 1]))
    Array([1.4632825, 1.7839007, 0.       ], dtype=float32)
  """
  batch = _batch.batch_of(embeddings, labels, where, normalize, references, axis_name)
  terms = _nca(scale, form, batch.anchors.dtype)
  loss = _batch.over_pairs(terms, batch, _batch.squared_euclidean, miner, block_size)
  return loss.astype(batch.dtype)


def _nca(
  scale: ArrayLike, form: Form, dtype: jnp.dtype
) -> Callable[[_batch.Block], Array]:
  _checks.one_of("form", form, Form)
  _checks.positive("scale", scale)
  s = _checks.scalar("scale", scale, dtype)

  def terms(block: _batch.Block) -> Array:
    logits = -s * block.values
    positive_sum = _selection.logsumexp_over(logits, block.positives)
    valid = jnp.any(_selection.chosen(block.positives), axis=1)
    # Computed from the log odds of a wrong neighbour, so small losses keep their
    # digits.
    odds = _selection.logsumexp_over(logits, block.negatives) - jnp.where(
      valid, positive_sum, 0
    )
    loss = _numerics.softplus(odds) if form == "log" else jax.nn.sigmoid(odds)
    return jnp.where(valid, loss, 0)

  return terms


def nca_from_distance(
  distances: Float[ArrayLike, "queries references"],
  positives: _selection.Selection,
  negatives: _selection.Selection,
  *,
  scale: Real[ArrayLike, ""] = 1.0,
  form: Form = "log",
  where: Bool[ArrayLike, " queries"] | None = None,
) -> Float[Array, " queries"]:
  """Neighbourhood components analysis from a matrix of squared distances.

  The matrix form of `nca`; a pair in neither mask is ignored.

      p_i = sum_{j positive} exp(-scale D_ij) / sum_{j positive or negative} exp(...)
      loss_i = -log p_i    "log",        loss_i = 1 - p_i    "probability"

  Args:
    distances: [queries, references], floating; squared in the paper.
    positives: [queries, references], boolean, or weights of the exponentials, not
      differentiated.
    negatives: [queries, references], boolean or weights.
    scale: positive, may be traced.
    form: "log" or "probability". Static.
    where: [queries], boolean, True keeps. None keeps all.

  Returns:
    [queries], dtype of `distances`; 0 for masked rows and for rows without a positive
    or without a negative.

  Raises:
    TypeError: distances are not floating, masks neither boolean nor floating.
    ValueError: shapes do not match, an unknown `form`, or a static scale that is not
      positive.

  Differentiable in: distances, scale. Cost: O(queries references).

  Source: Goldberger et al. 2004, "Neighbourhood components analysis".

  Example:
    >>> same = jnp.array([[True, False]])
    >>> spherejax.losses.nca_from_distance(jnp.array([[0.5, 0.25]]), same, ~same)
    Array([0.8259394], dtype=float32)
  """
  block, dtype = _batch.matrix(distances, positives, negatives, where, "distances")
  return _nca(scale, form, block.values.dtype)(block).astype(dtype)
