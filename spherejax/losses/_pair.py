"""Losses over pairs of examples: contrastive in two forms, multi-similarity."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int, Real

from spherejax import _checks, _numerics
from spherejax.losses import _batch

AVERAGES = ("nonzero", "all")


def contrastive(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Int[ArrayLike, " batch"],
  *,
  positive_margin: Real[ArrayLike, ""] = 0.0,
  negative_margin: Real[ArrayLike, ""] = 1.0,
  average: str = "nonzero",
  normalize: str = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Contrastive loss with two margins on Euclidean distances (DML's C2).

  Pulls pairs of one class to within `positive_margin` of each other and pushes the
  others at least `negative_margin` apart.

      l_ij = [D_ij - positive_margin]+   for y_i = y_j, i != j
      l_ij = [negative_margin - D_ij]+   for y_i != y_j
      loss_i = n (sum_j l+_ij / #{l+ > 0} + sum_j l-_ij / #{l- > 0})     "nonzero"
      loss_i = sum_j l_ij / n                                            "all"

  with n the number of kept examples and the counts over the whole batch.

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer. Only their equality matters.
    positive_margin: unit of a distance, may be traced.
    negative_margin: unit of a distance, at least `positive_margin`, may be traced.
    average: "nonzero" divides each part by its number of positive terms, "all" by
      the number of all pairs. Static.
    normalize: "l2", "unit_ball" (what DML uses) or "none". Static.
    where: [batch], boolean, True keeps. None keeps all.
    axis_name: mapped axis over which the batch is spread; the values are those of
      the local rows in the batch of all devices.

  Returns:
    [batch], dtype of `embeddings`; 0 for masked rows. `loss.mean()` is the paper's
    scalar (over the kept rows).

  Raises:
    TypeError: embeddings are not floating, labels not integers.
    ValueError: shapes do not match, or an unknown `average` or `normalize`.

  Differentiable in: embeddings, margins (counts are constants).
  Cost: O(batch^2 dim) time, O(batch^2) memory.

  Source: DML 1.1 and 2.1.3; Hadsell et al. 2006, "Dimensionality reduction by
  learning an invariant mapping". Equation 1.1.1 averages over all pairs; the
  reported results use the average over nonzero terms. Equation 2.1.1 counts the
  distance of a positive pair twice; the intended form is used here.

  Example:
    >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> spherejax.losses.contrastive(x, jnp.array([0, 0, 1]))
    Array([2.2004998 , 2.3969786 , 0.35483795], dtype=float32)
  """
  _checks.one_of("average", average, AVERAGES)
  batch = _batch.pairs(embeddings, labels, where, normalize, axis_name)
  return _contrastive(
    _batch.pair_distances(batch, squared=False),
    batch,
    positive_margin,
    negative_margin,
    average,
    axis_name,
  )


def _contrastive(
  apart: Array,
  pairs: _batch.Pairs | _batch.Matrix,
  positive_margin: ArrayLike,
  negative_margin: ArrayLike,
  average: str,
  axis_name: str | None,
) -> Array:
  near = _checks.scalar("positive_margin", positive_margin, apart.dtype)
  far = _checks.scalar("negative_margin", negative_margin, apart.dtype)
  pull = jnp.where(pairs.positives, jax.nn.relu(apart - near), 0)
  push = jnp.where(pairs.negatives, jax.nn.relu(far - apart), 0)
  if average == "all":
    references = jnp.sum(pairs.reference_where, dtype=jnp.int32).astype(apart.dtype)
    loss = _numerics.divide(jnp.sum(pull + push, axis=1), references)
  else:
    rows = _batch.number(pairs.where[:, None], axis_name, apart.dtype)
    loss = jnp.zeros_like(apart, shape=apart.shape[:1])
    for part in (pull, push):
      # NaN counts as active, so that it reaches the value.
      active = _batch.number(~(part <= 0), axis_name, apart.dtype)
      loss += _numerics.divide(rows * jnp.sum(part, axis=1), active)
  return loss.astype(pairs.dtype)


def contrastive_from_distance(
  distances: Float[ArrayLike, "queries references"],
  positives: Bool[ArrayLike, "queries references"],
  negatives: Bool[ArrayLike, "queries references"],
  *,
  positive_margin: Real[ArrayLike, ""] = 0.0,
  negative_margin: Real[ArrayLike, ""] = 1.0,
  average: str = "nonzero",
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
    positives: [queries, references], boolean, pairs to pull together.
    negatives: [queries, references], boolean, pairs to push apart.
    positive_margin: unit of a distance, may be traced.
    negative_margin: unit of a distance, may be traced.
    average: "nonzero" or "all". Static.
    where: [queries], boolean, True keeps. None keeps all.
    axis_name: mapped axis over which the queries are spread.

  Returns:
    [queries], dtype of `distances`; 0 for masked rows.

  Raises:
    TypeError: distances are not floating, a mask is not boolean.
    ValueError: shapes do not match, or an unknown `average`.

  Differentiable in: distances, margins. Cost: O(queries references).

  Source: DML 1.1 and 2.1.3.

  Example:
    >>> same = jnp.array([[True, False]])
    >>> spherejax.losses.contrastive_from_distance(jnp.array([[0.3, 0.6]]), same, ~same)
    Array([0.7], dtype=float32)
  """
  _checks.one_of("average", average, AVERAGES)
  pairs = _batch.matrix(distances, positives, negatives, where, "distances")
  return _contrastive(
    pairs.values, pairs, positive_margin, negative_margin, average, axis_name
  )


def cosine_contrastive(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Int[ArrayLike, " batch"],
  *,
  margin: Real[ArrayLike, ""] = 0.5,
  normalize: str = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
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
    axis_name: mapped axis over which the batch is spread; the values are those of
      the local rows in the batch of all devices.

  Returns:
    [batch], dtype of `embeddings`; 0 for masked rows. `loss.mean()` is the paper's
    scalar: sums over pairs, divided by the number of examples only.

  Raises:
    TypeError: embeddings are not floating, labels not integers.
    ValueError: shapes do not match, or an unknown `normalize`.

  Differentiable in: embeddings, margin. Cost: O(batch^2 dim) time, O(batch^2) memory.

  Source: DML 3.3 (C1); Wang et al. 2020, "Cross-batch memory for embedding learning".
  Differs from its released code: an example is left out of its own pairs by index,
  not by a threshold on the similarity, and the margin stays in the value.

  Example:
    >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> spherejax.losses.cosine_contrastive(x, jnp.array([0, 0, 1]))
    Array([1.1       , 1.3       , 0.40000004], dtype=float32)
  """
  batch = _batch.pairs(embeddings, labels, where, normalize, axis_name)
  return _cosine_contrastive(_batch.pair_similarities(batch), batch, margin)


def _cosine_contrastive(
  similar: Array, pairs: _batch.Pairs | _batch.Matrix, margin: ArrayLike
) -> Array:
  limit = _checks.scalar("margin", margin, similar.dtype)
  pull = jnp.where(pairs.positives, jax.nn.relu(1 - similar), 0)
  push = jnp.where(pairs.negatives, jax.nn.relu(similar - limit), 0)
  return jnp.sum(pull + push, axis=1).astype(pairs.dtype)


def cosine_contrastive_from_similarity(
  similarities: Float[ArrayLike, "queries references"],
  positives: Bool[ArrayLike, "queries references"],
  negatives: Bool[ArrayLike, "queries references"],
  *,
  margin: Real[ArrayLike, ""] = 0.5,
  where: Bool[ArrayLike, " queries"] | None = None,
) -> Float[Array, " queries"]:
  """Contrastive loss from a matrix of cosine similarities.

  The matrix form of `cosine_contrastive`; a pair in neither mask is ignored.

      loss_i = sum_{j positive} [1 - S_ij]+ + sum_{j negative} [S_ij - margin]+

  Args:
    similarities: [queries, references], floating.
    positives: [queries, references], boolean.
    negatives: [queries, references], boolean.
    margin: unit of a similarity, may be traced.
    where: [queries], boolean, True keeps. None keeps all.

  Returns:
    [queries], dtype of `similarities`; 0 for masked rows.

  Raises:
    TypeError: similarities are not floating, a mask is not boolean.
    ValueError: shapes do not match.

  Differentiable in: similarities, margin. Cost: O(queries references).

  Source: DML 3.3 (C1).

  Example:
    >>> same = jnp.array([[True, False]])
    >>> s = jnp.array([[0.25, 0.75]])
    >>> spherejax.losses.cosine_contrastive_from_similarity(s, same, ~same)
    Array([1.], dtype=float32)
  """
  pairs = _batch.matrix(similarities, positives, negatives, where, "similarities")
  return _cosine_contrastive(pairs.values, pairs, margin)


def multi_similarity(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Int[ArrayLike, " batch"],
  *,
  positive_scale: Real[ArrayLike, ""] = 2.0,
  negative_scale: Real[ArrayLike, ""] = 50.0,
  threshold: Real[ArrayLike, ""] = 0.5,
  normalize: str = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Multi-similarity loss, every pair weighted by its similarity among the others.

      loss_i = log(1 + sum_{j: y_j = y_i, j != i} exp(-a (S_ij - t))) / a
             + log(1 + sum_{j: y_j != y_i} exp(b (S_ij - t))) / b

  with a = positive_scale, b = negative_scale, t = threshold. As b grows the second
  term tends to the hinge of the hardest negative, [max_j S_ij - t]+.

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer. Only their equality matters.
    positive_scale: positive, may be traced.
    negative_scale: positive, may be traced.
    threshold: similarity around which pairs begin to count, may be traced.
    normalize: "l2", "unit_ball" (S is then the dot product of the projected rows)
      or "none". Static.
    where: [batch], boolean, True keeps. None keeps all.
    axis_name: mapped axis over which the batch is spread; the values are those of
      the local rows in the batch of all devices.

  Returns:
    [batch], dtype of `embeddings`; 0 for masked rows. A row without positives keeps
    its negative part, and conversely. `loss.mean()` is the paper's scalar.

  Raises:
    TypeError: embeddings are not floating, labels not integers.
    ValueError: shapes do not match, an unknown `normalize`, or a static scale that
      is not positive.

  Differentiable in: embeddings, scales, threshold.
  Cost: O(batch^2 dim) time, O(batch^2) memory.

  Source: DML 2.1.3; Wang et al. 2019, "Multi-similarity loss with general pair
  weighting for deep metric learning", eq. 15. All pairs count, as in DML.

  Example:
    >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> spherejax.losses.multi_similarity(x, jnp.array([0, 0, 1]))
    Array([0.7567652 , 0.9566309 , 0.30000094], dtype=float32)
  """
  batch = _batch.pairs(embeddings, labels, where, normalize, axis_name)
  similar = _batch.pair_similarities(batch)
  return _multi_similarity(similar, batch, positive_scale, negative_scale, threshold)


def _multi_similarity(
  similar: Array,
  pairs: _batch.Pairs | _batch.Matrix,
  positive_scale: ArrayLike,
  negative_scale: ArrayLike,
  threshold: ArrayLike,
) -> Array:
  _checks.positive("positive_scale", positive_scale)
  _checks.positive("negative_scale", negative_scale)
  a = _checks.scalar("positive_scale", positive_scale, similar.dtype)
  b = _checks.scalar("negative_scale", negative_scale, similar.dtype)
  above = similar - _checks.scalar("threshold", threshold, similar.dtype)
  pull = _numerics.softplus(_numerics.logsumexp(-a * above, pairs.positives)) / a
  push = _numerics.softplus(_numerics.logsumexp(b * above, pairs.negatives)) / b
  return (pull + push).astype(pairs.dtype)


def multi_similarity_from_similarity(
  similarities: Float[ArrayLike, "queries references"],
  positives: Bool[ArrayLike, "queries references"],
  negatives: Bool[ArrayLike, "queries references"],
  *,
  positive_scale: Real[ArrayLike, ""] = 2.0,
  negative_scale: Real[ArrayLike, ""] = 50.0,
  threshold: Real[ArrayLike, ""] = 0.5,
  where: Bool[ArrayLike, " queries"] | None = None,
) -> Float[Array, " queries"]:
  """Multi-similarity loss from a matrix of similarities.

  The matrix form of `multi_similarity`; a pair in neither mask is ignored.

      loss_i = log(1 + sum_{j positive} exp(-a (S_ij - t))) / a
             + log(1 + sum_{j negative} exp(b (S_ij - t))) / b

  Args:
    similarities: [queries, references], floating.
    positives: [queries, references], boolean.
    negatives: [queries, references], boolean.
    positive_scale: positive, may be traced (a).
    negative_scale: positive, may be traced (b).
    threshold: unit of a similarity, may be traced (t).
    where: [queries], boolean, True keeps. None keeps all.

  Returns:
    [queries], dtype of `similarities`; 0 for masked rows.

  Raises:
    TypeError: similarities are not floating, a mask is not boolean.
    ValueError: shapes do not match, or a static scale that is not positive.

  Differentiable in: similarities, scales, threshold. Cost: O(queries references).

  Source: Wang et al. 2019, "Multi-similarity loss", eq. 15.

  Example:
    >>> same = jnp.array([[True, False]])
    >>> s = jnp.array([[0.5, 0.5]])
    >>> spherejax.losses.multi_similarity_from_similarity(s, same, ~same)
    Array([0.36043653], dtype=float32)
  """
  pairs = _batch.matrix(similarities, positives, negatives, where, "similarities")
  return _multi_similarity(
    pairs.values, pairs, positive_scale, negative_scale, threshold
  )
