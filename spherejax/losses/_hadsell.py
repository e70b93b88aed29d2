"""Contrastive loss of Hadsell, Chopra and LeCun, with squares on both sides."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks
from spherejax.losses import _batch, _selection
from spherejax.losses._batch import Normalization


def hadsell_contrastive(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  *,
  margin: Real[ArrayLike, ""] = 1.0,
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  references: _batch.References | None = None,
  miner: _batch.Miner | None = None,
  block_size: int | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Contrastive loss with squares, in its original form.

      l_ij = D_ij^2 / 2               for y_i = y_j, i != j
      l_ij = [margin - D_ij]+^2 / 2   for y_i != y_j
      loss_i = sum_j l_ij

  The pull of a positive pair grows with its distance, so outliers dominate;
  `contrastive` pulls all pairs with the same force.

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer. Only their equality matters.
    margin: in units of a distance, may be traced.
    normalize: "l2", "unit_ball" or "none". Static.
    where: [batch], boolean, True keeps. None keeps all.
    references: rows to compare the batch with; None takes the batch itself.
    miner: chooses the pairs that count, given the distances. None keeps all.
    block_size: static. Rows per block, recomputed for the gradient; memory is
      block_size x batch. None takes all at once.
    axis_name: mapped axis over which the batch is spread. Each device returns the
      values of its rows, computed in the batch of all devices.

  Returns:
    [batch], dtype of `embeddings`; 0 for masked rows. `loss.sum()` divided by the
    number of pairs, n (n - 1) for n kept rows, is the mean over pairs.

  Raises:
    TypeError: embeddings are not floating, labels not integers.
    ValueError: shapes do not match, or an unknown `normalize`.

  Differentiable in: embeddings, margin. Cost: O(batch^2 dim) time.

  Source: DIST 2.1; Hadsell et al. 2006, "Dimensionality reduction by learning an
  invariant mapping", eq. 4.

  Example:
    >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> spherejax.losses.hadsell_contrastive(x, jnp.array([0, 0, 1]))
    Array([1.0055728 , 1.0675445 , 0.07311728], dtype=float32)
  """
  batch = _batch.batch_of(embeddings, labels, where, normalize, references, axis_name)
  terms = _hadsell(margin, batch.anchors.dtype)
  loss = _batch.over_pairs(
    terms, batch, _batch.euclidean, miner, block_size, additive=True
  )
  return loss.astype(batch.dtype)


def _hadsell(margin: ArrayLike, dtype: jnp.dtype) -> Callable[[_batch.Block], Array]:
  m = _checks.scalar("margin", margin, dtype)

  def terms(block: _batch.Block) -> Array:
    pull = _selection.sum_over(block.values**2, block.positives)
    push = _selection.sum_over(jax.nn.relu(m - block.values) ** 2, block.negatives)
    return (pull + push) / 2

  return terms


def hadsell_contrastive_from_distance(
  distances: Float[ArrayLike, "queries references"],
  positives: _selection.Selection,
  negatives: _selection.Selection,
  *,
  margin: Real[ArrayLike, ""] = 1.0,
  where: Bool[ArrayLike, " queries"] | None = None,
) -> Float[Array, " queries"]:
  """Contrastive loss with squares from a matrix of distances.

  The matrix form of `hadsell_contrastive`; a pair in neither mask is ignored.

      loss_i = sum_{j positive} D_ij^2 / 2 + sum_{j negative} [margin - D_ij]+^2 / 2

  Args:
    distances: [queries, references], floating; not squared.
    positives: [queries, references], boolean, or weights of the terms, not
      differentiated.
    negatives: [queries, references], boolean or weights.
    margin: in units of a distance, may be traced.
    where: [queries], boolean, True keeps. None keeps all.

  Returns:
    [queries], dtype of `distances`; 0 for masked rows. `loss.sum()` divided by the
    number of pairs in the masks is the mean over pairs.

  Raises:
    TypeError: distances are not floating, masks neither boolean nor floating.
    ValueError: shapes do not match.

  Differentiable in: distances, margin. Cost: O(queries references).

  Source: Hadsell et al. 2006, "Dimensionality reduction by learning an invariant
  mapping", eq. 4.

  Example:
    >>> same = jnp.array([[True, False]])
    >>> d = jnp.array([[0.5, 0.5]])
    >>> spherejax.losses.hadsell_contrastive_from_distance(d, same, ~same)
    Array([0.25], dtype=float32)
  """
  block, dtype = _batch.matrix(distances, positives, negatives, where, "distances")
  return _hadsell(margin, block.values.dtype)(block).astype(dtype)
