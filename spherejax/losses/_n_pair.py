"""N-pair loss: a pair of each class against the pairs of the other classes."""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _numerics
from spherejax.losses import _batch, _extremes, _selection
from spherejax.losses._batch import Normalization


def n_pair(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  *,
  norm_weight: Real[ArrayLike, ""] = 0.0,
  normalize: Normalization = "none",
  where: Bool[ArrayLike, " batch"] | None = None,
  references: _batch.References | None = None,
  miner: _batch.Miner | None = None,
  block_size: int | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """N-pair loss: compares an anchor's positive with the positives of other classes.

  The first kept row of each class is the anchor a_c, the second its positive p_c,
  whatever rows lie between them. Other rows do not count.

      loss_{a_c} = log(1 + sum_{k != c} exp(<a_c, p_k> - <a_c, p_c>))
                   + norm_weight (|a_c|^2 + |p_c|^2) / 4

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer. Only their equality matters.
    norm_weight: weight of the squared norms, at least 0, may be traced.
    normalize: "none" (the paper's), "l2" or "unit_ball". Static.
    where: [batch], boolean, True keeps. None keeps all.
    references: where the positives come from: the first reference of each class that is
      no copy of the anchor. None takes the batch itself.
    miner: chooses among the pairs (a_c, p_k), given their products. None keeps all.
    block_size: static. Anchors per block, recomputed for the gradient. None takes
      all at once.
    axis_name: mapped axis over which the batch is spread. Each device returns the
      values of its rows, computed in the batch of all devices.

  Returns:
    [batch], dtype of `embeddings`; 0 for all rows but the anchors, and for an anchor
    without a pair of another class. `loss.sum()` divided by the number of classes with
    two kept rows is the paper's mean.

  Raises:
    TypeError: embeddings are not floating, labels not integers.
    ValueError: shapes do not match, an unknown `normalize`, or a static weight below 0.

  Differentiable in: embeddings, norm_weight.
  Cost: O(batch^2 dim / 4) time, whatever the number of classes.

  Source: Sohn 2016, "Improved deep metric learning with multi-class N-pair loss
  objective", eq. 7 and section 3.2.2.

  Example:
    >>> x = jnp.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [0.0, 2.0]])
    >>> spherejax.losses.n_pair(x, jnp.array([0, 0, 1, 1]))
    Array([0.437488  , 0.        , 0.26328245, 0.        ], dtype=float32)
  """
  batch = _batch.batch_of(embeddings, labels, where, normalize, references, axis_name)
  _checks.between("norm_weight", norm_weight, 0)
  weight = _checks.scalar("norm_weight", norm_weight, batch.anchors.dtype)
  pairs, positives, rows = _pairs(batch, references is None, axis_name)

  def terms(block: _batch.Block, anchors: Array, positives: Array) -> Array:
    norms = jnp.sum(anchors**2 + positives**2, axis=1) / 4
    near, far = map(_selection.chosen, (block.positives, block.negatives))
    counts = jnp.any(near, axis=1) & jnp.any(far, axis=1)
    return _n_pair(block) + jnp.where(counts, weight * norms, 0)

  values = _batch.over_pairs(
    terms, pairs, _batch.dot, miner, block_size, (pairs.anchors, positives)
  )
  loss = jnp.zeros_like(batch.anchors[:, 0]).at[rows].set(values, mode="drop")
  return loss.astype(batch.dtype)


def _n_pair(block: _batch.Block) -> Array:
  """Losses of each row's first positive against the row's negatives."""
  positives = _selection.chosen(block.positives)
  # The positives are equally large here, so the lowest index is taken.
  index = _extremes.where_largest(jnp.zeros_like(block.values), positives)
  first = _extremes.one_hot(index, positives.shape[1])
  positive = _numerics.masked_sum(block.values, first)
  lead = _selection.logsumexp_over(block.values - positive[:, None], block.negatives)
  loss = _numerics.softplus(lead)
  if block.positives.dtype != jnp.bool_:
    loss *= _numerics.masked_sum(block.positives, first).astype(loss.dtype)
  return jnp.where(jnp.any(positives, axis=1), loss, 0)


def _pairs(
  batch: _batch.Batch, itself: bool, axis_name: str | None
) -> tuple[_batch.Batch, Array, Array]:
  """Returns the anchors against the positives, the positives, and the anchors' rows.

  The arrays have room for the largest possible number of pairs.
  """
  rows, references = len(batch.anchors), len(batch.references)
  pool, mask = (_batch.gather(x, axis_name) for x in (batch.labels, batch.where))
  nobody = jnp.full_like(batch.position, -1)
  leader, _ = _first(batch.labels, pool, mask, nobody)
  positive, exists = _first(
    batch.labels, batch.reference_labels, batch.reference_where, batch.itself
  )
  anchor = exists & batch.where & (leader == batch.position)

  room = max(1, min(rows, references // 2 if itself else references))
  # Sorting compiles in less time than `jnp.nonzero`.
  chosen = jnp.sort(jnp.where(anchor, jnp.arange(rows, dtype=jnp.int32), rows))[:room]

  def of_anchors(array: Array) -> Array:
    return jnp.take(array, chosen, axis=0, mode="clip")

  real, labels = chosen < rows, of_anchors(batch.labels)
  positives = jnp.take(batch.references, of_anchors(positive), axis=0, mode="clip")
  positives = jnp.where(real[:, None], positives, 0)
  pairs = _batch.Batch(
    anchors=jnp.where(real[:, None], of_anchors(batch.anchors), 0),
    labels=labels,
    itself=jnp.full(room, -1, jnp.int32),
    position=of_anchors(batch.position),
    where=real,
    references=_batch.gather(positives, axis_name),
    reference_labels=_batch.gather(labels, axis_name),
    reference_where=_batch.gather(real, axis_name),
    dtype=batch.dtype,
  )
  return pairs, positives, chosen


def _first(labels: Array, pool: Array, mask: Array, but: Array) -> tuple[Array, Array]:
  """Index of the first kept member of each label's class, and whether there is one.

  The member `but` is passed over.
  """
  order = jnp.lexsort((pool, ~mask))
  number = jnp.sum(mask, dtype=jnp.int32)
  largest = jnp.iinfo(pool.dtype).max
  start = jnp.searchsorted(jnp.where(mask[order], pool[order], largest), labels)

  def member(position: Array) -> tuple[Array, Array]:
    index = jnp.take(order, position, mode="clip")
    return index, (position < number) & (jnp.take(pool, index, mode="clip") == labels)

  first, exists = member(start)
  second, found_second = member(start + 1)
  skip = exists & (first == but)
  return jnp.where(skip, second, first), jnp.where(skip, found_second, exists)


def n_pair_from_similarity(
  similarities: Float[ArrayLike, "queries references"],
  positives: _selection.Selection,
  negatives: _selection.Selection,
  *,
  where: Bool[ArrayLike, " queries"] | None = None,
) -> Float[Array, " queries"]:
  """N-pair loss from a matrix of similarities.

  The matrix form of `n_pair`, for pairs chosen elsewhere: p_i is the first positive of
  a row. A pair in neither mask is ignored.

      loss_i = log(1 + sum_{j negative} exp(S_ij - S_i,p_i))

  Args:
    similarities: [queries, references], floating.
    positives: [queries, references], boolean, or weights of the rows' losses, not
      differentiated.
    negatives: [queries, references], boolean, or weights of the exponentials.
    where: [queries], boolean, True keeps. None keeps all.

  Returns:
    [queries], dtype of `similarities`; 0 for masked rows and for rows without a
    positive or without a negative.

  Raises:
    TypeError: similarities are not floating, masks neither boolean nor floating.
    ValueError: shapes do not match.

  Differentiable in: similarities. Cost: O(queries references).

  Source: Sohn 2016, "Improved deep metric learning with multi-class N-pair loss
  objective", eq. 7.

  Example:
    >>> s = jnp.array([[2.0, 1.0], [0.5, 0.5]])
    >>> same = jnp.eye(2, dtype=bool)
    >>> spherejax.losses.n_pair_from_similarity(s, same, ~same)
    Array([0.3132617, 0.6931472], dtype=float32)
  """
  block, dtype = _batch.matrix(
    similarities, positives, negatives, where, "similarities"
  )
  return _n_pair(block).astype(dtype)
