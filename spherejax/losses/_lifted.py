"""Lifted structure losses: soft extremes of the distances of a row."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks
from spherejax.losses import _batch, _selection
from spherejax.losses._batch import Normalization


def lifted_structure(
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
  """Lifted structure loss: a positive pair against the negatives of both its ends.

      A_i = log sum_{k: y_k != y_i} exp(margin - D_ik)
      J_ij = log(exp(A_i) + exp(A_j)) + D_ij
      loss_i = 1/4 sum_{j: y_j = y_i, j != i} [J_ij]+^2

  Each end of a pair gets half of its loss [J_ij]+^2 / 2. With `references` a pair has
  only one end, since the negatives of a reference are not in the batch:

      loss_i = 1/2 sum_{j: y_j = y_i} [A_i + D_ij]+^2

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer. Only their equality matters.
    margin: in units of a distance, may be traced.
    normalize: "l2", "unit_ball" or "none" (the paper's). Static.
    where: [batch], boolean, True keeps. None keeps all.
    references: rows to compare the batch with; None takes the batch itself.
    miner: chooses the pairs that count, given the distances. None keeps all.
    block_size: static. Rows per block, recomputed for the gradient; memory is
      block_size x batch. None takes all at once.
    axis_name: mapped axis over which the batch is spread. Each device returns the
      values of its rows, computed in the batch of all devices.

  Returns:
    [batch], dtype of `embeddings`; 0 for masked rows and for rows without a positive.
    A pair is 0 when neither end has a negative. `loss.sum()` divided by the number of
    unordered positive pairs is the paper's scalar (with references: divided by the
    number of positive pairs).

  Raises:
    TypeError: embeddings are not floating, labels not integers.
    ValueError: shapes do not match, or an unknown `normalize`.

  Differentiable in: embeddings, margin.
  Cost: O(batch^2 dim) time; in blocks every distance is computed twice.

  Source: Oh Song et al. 2016, "Deep metric learning via lifted structured feature
  embedding", eq. 4. Differs from the paper: rows are normalised by default.

  Example:
    >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> spherejax.losses.lifted_structure(x, jnp.array([0, 0, 1]))
    Array([1.3835329, 1.3835329, 0.       ], dtype=float32)
  """
  batch = _batch.batch_of(embeddings, labels, where, normalize, references, axis_name)
  m = _checks.scalar("margin", margin, batch.anchors.dtype)

  over_pairs = functools.partial(
    _batch.over_pairs,
    batch=batch,
    measure=_batch.euclidean,
    miner=miner,
    block_size=block_size,
  )
  if references is not None:
    loss = over_pairs(lambda block: _one_end(block, m))
  elif block_size is None:
    # All rows at once: the distances and their gradient are computed only once.
    def of_all(block: _batch.Block) -> Array:
      near = _near(block, m)
      return _both_ends(block, near, _batch.gather(near, axis_name))

    loss = over_pairs(of_all)
  else:
    near = over_pairs(lambda block: _near(block, m))
    near_all = _batch.gather(near, axis_name)
    loss = over_pairs(
      lambda block, near: _both_ends(block, near, near_all), extra=(near,)
    )
  return loss.astype(batch.dtype)


def _near(block: _batch.Block, margin: Array) -> Array:
  """Soft maximum of margin - distance over the negatives of each row."""
  return _selection.logsumexp_over(margin - block.values, block.negatives)


def _one_end(block: _batch.Block, margin: Array) -> Array:
  near = _near(block, margin)
  hinge = jax.nn.relu(near[:, None] + block.values)
  return _selection.sum_over(hinge**2, block.positives) / 2


def _both_ends(block: _batch.Block, near: Array, near_all: Array) -> Array:
  """Losses per row, from the soft nearest negatives of rows and of references."""
  here, there = near[:, None], near_all[None]
  # An end without negatives adds 0 to the sum of exponentials.
  none = (here == -jnp.inf) & (there == -jnp.inf)
  joint = jnp.logaddexp(*(jnp.where(none, 0, x) for x in (here, there)))
  hinge = jnp.where(none, 0, jax.nn.relu(joint + block.values))
  return _selection.sum_over(hinge**2, block.positives) / 4


def lifted_structure_from_distance(
  distances: Float[ArrayLike, "queries references"],
  positives: _selection.Selection,
  negatives: _selection.Selection,
  *,
  margin: Real[ArrayLike, ""] = 1.0,
  where: Bool[ArrayLike, " queries"] | None = None,
) -> Float[Array, " queries"]:
  """Lifted structure loss from a matrix of distances to references.

  The matrix form of `lifted_structure` against references: a positive pair meets the
  negatives of its query. A pair in neither mask is ignored.

      A_i = log sum_{k negative} exp(margin - D_ik)
      loss_i = 1/2 sum_{j positive} [A_i + D_ij]+^2

  Args:
    distances: [queries, references], floating.
    positives: [queries, references], boolean, or weights of the terms, not
      differentiated.
    negatives: [queries, references], boolean, or weights of the exponentials.
    margin: in units of a distance, may be traced.
    where: [queries], boolean, True keeps. None keeps all.

  Returns:
    [queries], dtype of `distances`; 0 for masked rows and for rows without a positive
    or without a negative. `loss.sum()` divided by the number of positive pairs is the
    paper's scalar.

  Raises:
    TypeError: distances are not floating, masks neither boolean nor floating.
    ValueError: shapes do not match.

  Differentiable in: distances, margin. Cost: O(queries references).

  Source: Oh Song et al. 2016, "Deep metric learning via lifted structured feature
  embedding", eq. 4.

  Example:
    >>> same = jnp.array([[True, False]])
    >>> s = jnp.array([[0.5, 0.25]])
    >>> spherejax.losses.lifted_structure_from_distance(s, same, ~same)
    Array([0.78125], dtype=float32)
  """
  block, dtype = _batch.matrix(distances, positives, negatives, where, "distances")
  m = _checks.scalar("margin", margin, block.values.dtype)
  return _one_end(block, m).astype(dtype)


def generalized_lifted_structure(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  *,
  positive_margin: Real[ArrayLike, ""] = 0.0,
  negative_margin: Real[ArrayLike, ""] = 1.0,
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  references: _batch.References | None = None,
  miner: _batch.Miner | None = None,
  block_size: int | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Generalised lifted structure loss: soft farthest positive, soft nearest negative.

      loss_i = [log sum_{p: y_p = y_i, p != i} exp(D_ip - positive_margin)
                + log sum_{n: y_n != y_i} exp(negative_margin - D_in)]+

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer. Only their equality matters.
    positive_margin: in units of a distance, may be traced.
    negative_margin: in units of a distance, may be traced. Only the difference of the
      two counts.
    normalize: "l2", "unit_ball" or "none". Static.
    where: [batch], boolean, True keeps. None keeps all.
    references: rows to compare the batch with; None takes the batch itself.
    miner: chooses the pairs that count, given the distances. None keeps all.
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
    ValueError: shapes do not match, or an unknown `normalize`.

  Differentiable in: embeddings, margins. Cost: O(batch^2 dim) time.

  Source: Hermans et al. 2017, "In defense of the triplet loss for person
  re-identification", eq. 4.

  Example:
    >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> spherejax.losses.generalized_lifted_structure(x, jnp.array([0, 0, 1]))
    Array([1.5197864, 1.7817581, 0.       ], dtype=float32)
  """
  batch = _batch.batch_of(embeddings, labels, where, normalize, references, axis_name)
  terms = _generalized(positive_margin, negative_margin, batch.anchors.dtype)
  loss = _batch.over_pairs(terms, batch, _batch.euclidean, miner, block_size)
  return loss.astype(batch.dtype)


def _generalized(
  positive_margin: ArrayLike, negative_margin: ArrayLike, dtype: jnp.dtype
) -> Callable[[_batch.Block], Array]:
  near = _checks.scalar("positive_margin", positive_margin, dtype)
  far = _checks.scalar("negative_margin", negative_margin, dtype)

  def terms(block: _batch.Block) -> Array:
    return jax.nn.relu(
      _selection.logsumexp_over(block.values - near, block.positives)
      + _selection.logsumexp_over(far - block.values, block.negatives)
    )

  return terms


def generalized_lifted_structure_from_distance(
  distances: Float[ArrayLike, "queries references"],
  positives: _selection.Selection,
  negatives: _selection.Selection,
  *,
  positive_margin: Real[ArrayLike, ""] = 0.0,
  negative_margin: Real[ArrayLike, ""] = 1.0,
  where: Bool[ArrayLike, " queries"] | None = None,
) -> Float[Array, " queries"]:
  """Generalised lifted structure loss from a matrix of distances.

  The matrix form of `generalized_lifted_structure`; a pair in neither mask is ignored.

      loss_i = [log sum_{p positive} exp(D_ip - positive_margin)
                + log sum_{n negative} exp(negative_margin - D_in)]+

  Args:
    distances: [queries, references], floating.
    positives: [queries, references], boolean, or weights of the exponentials, not
      differentiated.
    negatives: [queries, references], boolean or weights.
    positive_margin: in units of a distance, may be traced.
    negative_margin: in units of a distance, may be traced.
    where: [queries], boolean, True keeps. None keeps all.

  Returns:
    [queries], dtype of `distances`; 0 for masked rows and for rows without a positive
    or without a negative.

  Raises:
    TypeError: distances are not floating, masks neither boolean nor floating.
    ValueError: shapes do not match.

  Differentiable in: distances, margins. Cost: O(queries references).

  Source: Hermans et al. 2017, "In defense of the triplet loss for person
  re-identification", eq. 4.

  Example:
    >>> same = jnp.array([[True, False]])
    >>> s = jnp.array([[0.5, 0.25]])
    >>> spherejax.losses.generalized_lifted_structure_from_distance(s, same, ~same)
    Array([1.25], dtype=float32)
  """
  block, dtype = _batch.matrix(distances, positives, negatives, where, "distances")
  terms = _generalized(positive_margin, negative_margin, block.values.dtype)
  return terms(block).astype(dtype)
