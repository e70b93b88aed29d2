"""Contrastive losses: hinges on the distances or the cosines of pairs."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _numerics
from spherejax.losses import _batch, _selection
from spherejax.losses._batch import Normalization

Average = Literal["nonzero", "all"]


def contrastive(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  *,
  positive_margin: Real[ArrayLike, ""] = 0.0,
  negative_margin: Real[ArrayLike, ""] = 1.0,
  average: Average = "nonzero",
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  references: _batch.References | None = None,
  miner: _batch.Miner | None = None,
  block_size: int | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Contrastive loss with two margins on Euclidean distances (DML's C2).

  Pulls pairs of one class to within `positive_margin` of each other and pushes the
  others at least `negative_margin` apart.

      l_ij = [D_ij - positive_margin]+   for y_i = y_j, i != j
      l_ij = [negative_margin - D_ij]+   for y_i != y_j
      loss_i = n (sum_j l+_ij / #{l+ > 0} + sum_j l-_ij / #{l- > 0})     "nonzero"
      loss_i = sum_j l_ij / n                                            "all"

  with n the number of kept examples (under "all", of kept references) and the counts
  over the whole batch. The generalised form [iota (D - b) + a]+, with iota = 1 for a
  pair of one class and -1 for any other, has the margins b - a and b + a.

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer. Only their equality matters.
    positive_margin: in units of a distance, may be traced.
    negative_margin: in units of a distance, at least `positive_margin`, may be traced.
    average: "nonzero" divides each part by its number of nonzero terms, "all" by the
      number of all pairs. Static.
    normalize: "l2", "unit_ball" (what DML uses) or "none". Static.
    where: [batch], boolean, True keeps. None keeps all.
    references: rows to compare the batch with; None takes the batch itself.
    miner: chooses the pairs that count, given the distances. None keeps all.
    block_size: static. Rows per block, recomputed for the gradient; memory is
      block_size x batch. None takes all at once.
    axis_name: mapped axis over which the batch is spread. Each device returns the
      values of its rows, computed in the batch of all devices.

  Returns:
    [batch], dtype of `embeddings`; 0 for masked rows. `loss.mean()` is the paper's
    scalar (over the kept rows).

  Raises:
    TypeError: embeddings are not floating, labels not integers.
    ValueError: shapes do not match, an unknown `average` or `normalize`, or a static
      `negative_margin` below a static `positive_margin`.

  Differentiable in: embeddings, margins (counts are constants).
  Cost: O(batch^2 dim) time.

  Source: DML 1.1 and eqs. 2.1.1, 2.1.3; Hadsell et al. 2006, "Dimensionality reduction
  by learning an invariant mapping". DML eq. 1.1.1 averages over all pairs; the reported
  results use the average over nonzero terms. DML eq. 2.1.1 counts the distance of a
  positive pair twice; the intended form is used here.

  Example:
    >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> spherejax.losses.contrastive(x, jnp.array([0, 0, 1]))
    Array([2.2004998 , 2.3969786 , 0.35483795], dtype=float32)
  """
  _checks.one_of("average", average, Average)
  batch = _batch.batch_of(embeddings, labels, where, normalize, references, axis_name)
  parts = _batch.over_pairs(
    hinge_sums(positive_margin, negative_margin, batch.anchors.dtype),
    batch,
    _batch.euclidean,
    miner,
    block_size,
    additive=True,
  )
  number = jnp.sum(batch.reference_where, dtype=jnp.int32)
  loss = averaged(parts, batch.where, number, average, axis_name)
  return loss.astype(batch.dtype)


class _Hinges(NamedTuple):
  pull: Array
  pulled: Array
  push: Array
  pushed: Array


def hinge_sums(
  positive_margin: ArrayLike, negative_margin: ArrayLike, dtype: jnp.dtype
) -> Callable[[_batch.Block], _Hinges]:
  """Sums of the hinges of each row, and the number of active hinges."""
  near = _checks.scalar("positive_margin", positive_margin, dtype)
  far = _checks.scalar("negative_margin", negative_margin, dtype)
  _checks.between("negative_margin", negative_margin, positive_margin)

  def terms(block: _batch.Block) -> _Hinges:
    return _Hinges(
      *_selection.hinges(block.values - near, block.positives),
      *_selection.hinges(far - block.values, block.negatives),
    )

  return terms


def averaged(
  parts: _Hinges, where: Array, number: Array, average: Average, axis_name: str | None
) -> Array:
  """Shares of each row in the means over the parts' active terms, or over all pairs.

  `number` is the number of references.
  """
  if average == "all":
    return _numerics.divide(parts.pull + parts.push, number.astype(parts.pull.dtype))
  pull = _batch.average_of_active(parts.pull, parts.pulled, where, axis_name)
  push = _batch.average_of_active(parts.push, parts.pushed, where, axis_name)
  return pull + push


def contrastive_from_distance(
  distances: Float[ArrayLike, "queries references"],
  positives: _selection.Selection,
  negatives: _selection.Selection,
  *,
  positive_margin: Real[ArrayLike, ""] = 0.0,
  negative_margin: Real[ArrayLike, ""] = 1.0,
  average: Average = "nonzero",
  where: Bool[ArrayLike, " queries"] | None = None,
  axis_name: str | None = None,
) -> Float[Array, " queries"]:
  """Contrastive loss with two margins from a matrix of distances.

  The matrix form of `contrastive`, for memory banks, proxies, other modalities and
  mined pairs: a pair in neither mask is ignored.

      loss_i = n (sum_{j positive} [D_ij - positive_margin]+ / #{> 0}
                  + sum_{j negative} [negative_margin - D_ij]+ / #{> 0})   "nonzero"
      loss_i = (the same two sums) / references                           "all"

  with n the number of kept queries and the counts over all of them.

  Args:
    distances: [queries, references], floating.
    positives: [queries, references], boolean, pairs to pull together; or weights
      of their terms, not differentiated.
    negatives: [queries, references], boolean or weights, pairs to push apart.
    positive_margin: in units of a distance, may be traced.
    negative_margin: in units of a distance, may be traced.
    average: "nonzero" or "all". Static.
    where: [queries], boolean, True keeps. None keeps all.
    axis_name: mapped axis over which the queries are spread.

  Returns:
    [queries], dtype of `distances`; 0 for masked rows.

  Raises:
    TypeError: distances are not floating, masks neither boolean nor floating.
    ValueError: shapes do not match, an unknown `average`, or a static
      `negative_margin` below a static `positive_margin`.

  Differentiable in: distances, margins. Cost: O(queries references).

  Source: DML 1.1 and eqs. 2.1.1, 2.1.3.

  Example:
    >>> same = jnp.array([[True, False]])
    >>> spherejax.losses.contrastive_from_distance(jnp.array([[0.3, 0.6]]), same, ~same)
    Array([0.7], dtype=float32)
  """
  _checks.one_of("average", average, Average)
  block, dtype = _batch.matrix(distances, positives, negatives, where, "distances")
  terms = hinge_sums(positive_margin, negative_margin, block.values.dtype)
  number = jnp.asarray(block.values.shape[1])
  loss = averaged(terms(block), block.where, number, average, axis_name)
  return loss.astype(dtype)


def cosine_contrastive(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  *,
  margin: Real[ArrayLike, ""] = 0.5,
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  references: _batch.References | None = None,
  miner: _batch.Miner | None = None,
  block_size: int | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Contrastive loss on cosine similarities, summed over pairs (DML's C1).

      loss_i = sum_{j: y_j = y_i, j != i} [1 - S_ij]+
             + sum_{j: y_j != y_i} [S_ij - margin]+

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer. Only their equality matters.
    margin: cosine above which a pair of different classes is pushed apart, may be
      traced.
    normalize: "l2", "unit_ball" (S is then the dot product of the projected rows)
      or "none". Static.
    where: [batch], boolean, True keeps. None keeps all.
    references: rows to compare the batch with; None takes the batch itself.
    miner: chooses the pairs that count, given the similarities. None keeps all.
    block_size: static. Rows per block, recomputed for the gradient; memory is
      block_size x batch. None takes all at once.
    axis_name: mapped axis over which the batch is spread. Each device returns the
      values of its rows, computed in the batch of all devices.

  Returns:
    [batch], dtype of `embeddings`; 0 for masked rows. `loss.mean()` is the paper's
    scalar: sums over pairs, divided by the number of examples only.

  Raises:
    TypeError: embeddings are not floating, labels not integers.
    ValueError: shapes do not match, or an unknown `normalize`.

  Differentiable in: embeddings, margin. Cost: O(batch^2 dim) time.

  Source: DML 3.3.2.1 (C1); Wang et al. 2020, "Cross-batch memory for embedding
  learning". Differs from its released code in two ways. Self-pairs are left out by
  index, not by a threshold on the similarity; and the margin is subtracted from the
  value.

  Example:
    >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> spherejax.losses.cosine_contrastive(x, jnp.array([0, 0, 1]))
    Array([1.1       , 1.3       , 0.40000004], dtype=float32)
  """
  batch = _batch.batch_of(embeddings, labels, where, normalize, references, axis_name)
  terms = _cosine_contrastive(margin, batch.anchors.dtype)
  loss = _batch.over_pairs(terms, batch, _batch.dot, miner, block_size, additive=True)
  return loss.astype(batch.dtype)


def _cosine_contrastive(
  margin: ArrayLike, dtype: jnp.dtype
) -> Callable[[_batch.Block], Array]:
  threshold = _checks.scalar("margin", margin, dtype)

  def terms(block: _batch.Block) -> Array:
    pull, _ = _selection.hinges(1 - block.values, block.positives)
    push, _ = _selection.hinges(block.values - threshold, block.negatives)
    return pull + push

  return terms


def cosine_contrastive_from_similarity(
  similarities: Float[ArrayLike, "queries references"],
  positives: _selection.Selection,
  negatives: _selection.Selection,
  *,
  margin: Real[ArrayLike, ""] = 0.5,
  where: Bool[ArrayLike, " queries"] | None = None,
) -> Float[Array, " queries"]:
  """Contrastive loss from a matrix of cosine similarities.

  The matrix form of `cosine_contrastive`; a pair in neither mask is ignored.

      loss_i = sum_{j positive} [1 - S_ij]+ + sum_{j negative} [S_ij - margin]+

  Args:
    similarities: [queries, references], floating.
    positives: [queries, references], boolean, or weights of the terms, not
      differentiated.
    negatives: [queries, references], boolean or weights.
    margin: in units of a similarity, may be traced.
    where: [queries], boolean, True keeps. None keeps all.

  Returns:
    [queries], dtype of `similarities`; 0 for masked rows.

  Raises:
    TypeError: similarities are not floating, masks neither boolean nor floating.
    ValueError: shapes do not match.

  Differentiable in: similarities, margin. Cost: O(queries references).

  Source: DML 3.3.2.1 (C1).

  Example:
    >>> same = jnp.array([[True, False]])
    >>> s = jnp.array([[0.25, 0.75]])
    >>> spherejax.losses.cosine_contrastive_from_similarity(s, same, ~same)
    Array([1.], dtype=float32)
  """
  block, dtype = _batch.matrix(
    similarities, positives, negatives, where, "similarities"
  )
  return _cosine_contrastive(margin, block.values.dtype)(block).astype(dtype)
