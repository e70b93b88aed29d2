"""Supervised contrastive loss: all rows of a class are positives."""

from collections.abc import Callable
from typing import Literal

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _numerics
from spherejax.losses import _batch, _selection
from spherejax.losses._batch import Normalization

Average = Literal["out", "in"]


def sup_con(
  embeddings: Float[ArrayLike, "batch *views dim"],
  labels: Integer[ArrayLike, " batch"],
  *,
  temperature: Real[ArrayLike, ""] = 0.1,
  average: Average = "out",
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  references: _batch.References | None = None,
  miner: _batch.Miner | None = None,
  block_size: int | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Supervised contrastive loss (SupCon).

      p_ij = exp(S_ij / temperature) / sum_{k != i} exp(S_ik / temperature)
      loss_i = -sum_{j: y_j = y_i, j != i} log p_ij / #{j}       "out"
      loss_i = -log(sum_{j: y_j = y_i, j != i} p_ij / #{j})      "in"

  The value of "in" is at most that of "out". With several views of each example every
  view is a row of its own, with the label of its example. With two views and labels
  that are all different the loss is `nt_xent`.

  Args:
    embeddings: [batch, dim] or [batch, views, dim], floating.
    labels: [batch], integer. Only their equality matters.
    temperature: positive, divides the similarities; may be traced.
    average: "out" averages the logarithms over the positives, "in" the
      probabilities. Static.
    normalize: "l2", "unit_ball" or "none", of the rows. Static.
    where: [batch], boolean, True keeps. None keeps all.
    references: rows to compare with; None takes the batch itself.
    miner: chooses the pairs that count, given the similarities. None keeps all.
    block_size: static. Rows per block, recomputed for the gradient; memory is
      block_size x batch views. None takes all at once.
    axis_name: mapped axis over which the batch is spread. Each device returns the
      values of its rows, computed in the batch of all devices.

  Returns:
    [batch], dtype of `embeddings`, the mean over the views; 0 for masked rows and
    where there is no positive. `loss.sum()` divided by the number of examples that have
    a positive is the paper's scalar; with views that is `loss.mean()`.

  Raises:
    TypeError: embeddings are not floating, labels not integers.
    ValueError: shapes do not match, an unknown `average` or `normalize`, block_size
      below 1, or a static temperature that is not positive.

  Differentiable in: embeddings, temperature.
  Cost: O((batch views)^2 dim) time.

  Source: Khosla et al. 2020, "Supervised contrastive learning", eqs. 2 and 3. Its
  released code multiplies by temperature / 0.07; this does not.

  Example:
    >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> spherejax.losses.sup_con(x, jnp.array([0, 0, 1]), temperature=1.0)
    Array([1.037488 , 1.1711006, 0.       ], dtype=float32)
  """
  rows = _checks.array("embeddings", embeddings)
  classes, references = _batch.same_names(labels, references)
  _checks.expect("embeddings", rows, "floating", rank=(2, 3))
  _checks.labels(classes, rows)
  views = rows.shape[1] if rows.ndim == 3 else 1
  # Without a mask the rows are known to be kept, also while the function is compiled.
  mask = None if where is None else _batch.keep_all(where, rows)
  if views > 1:
    classes = jnp.repeat(classes, views)
    mask = mask if mask is None else jnp.repeat(mask, views)
  batch = _batch.batch_of(
    rows.reshape(-1, rows.shape[-1]), classes, mask, normalize, references, axis_name
  )
  terms = _sup_con(temperature, average, batch.anchors.dtype)
  loss = _batch.over_pairs(terms, batch, _batch.dot, miner, block_size)
  return jnp.mean(loss.reshape(-1, views), axis=1).astype(batch.dtype)


def _sup_con(
  temperature: ArrayLike, average: Average, dtype: jnp.dtype
) -> Callable[[_batch.Block], Array]:
  _checks.one_of("average", average, Average)
  _checks.positive("temperature", temperature)
  t = _checks.scalar("temperature", temperature, dtype)

  def terms(block: _batch.Block) -> Array:
    logits = block.values / t
    count = _selection.count_over(block.positives, logits.dtype)
    positive = _selection.chosen(block.positives)
    negative = _selection.chosen(block.negatives)
    if average == "in":
      attraction = _selection.logsumexp_over(logits, block.positives)
      attraction -= jnp.log(jnp.where(count > 0, count, 1))
    else:
      attraction = _numerics.divide(_selection.sum_over(logits, block.positives), count)
    has_positive = jnp.any(positive, axis=1)
    attraction = jnp.where(has_positive, attraction, 0)
    # Computed as the lead of all entries over the positives, not as a difference of two
    # logarithms.
    lead = logits - attraction[:, None]
    if block.negatives.dtype != jnp.bool_:
      weights = jnp.where(negative, block.negatives, 1).astype(lead.dtype)
      lead += jnp.where(positive, 0, jnp.log(weights))
    return jnp.where(has_positive, _numerics.logsumexp(lead, positive | negative), 0)

  return terms


def sup_con_from_similarity(
  similarities: Float[ArrayLike, "queries references"],
  positives: _selection.Selection,
  negatives: _selection.Selection,
  *,
  temperature: Real[ArrayLike, ""] = 0.1,
  average: Average = "out",
  where: Bool[ArrayLike, " queries"] | None = None,
) -> Float[Array, " queries"]:
  """Supervised contrastive loss from a matrix of similarities.

  The matrix form of `sup_con`. For examples with several labels, pass weights w in
  place of the mask of positives, such as the share of labels that two examples have in
  common.

      p_ij = exp(S_ij / temperature) / sum_{k in either} exp(S_ik / temperature)
      loss_i = -sum_j w_ij log p_ij / sum_j w_ij        "out"
      loss_i = -log(sum_j w_ij p_ij / sum_j w_ij)       "in"

  Args:
    similarities: [queries, references], floating.
    positives: [queries, references], boolean, or weights w of the terms, not
      differentiated.
    negatives: [queries, references], boolean, or weights of the exponentials. A pair in
      neither mask is ignored; a positive is in the denominator once, whatever w.
    temperature: positive, divides the similarities; may be traced.
    average: "out" or "in". Static.
    where: [queries], boolean, True keeps. None keeps all.

  Returns:
    [queries], dtype of `similarities`; 0 for masked rows and without a positive.

  Raises:
    TypeError: similarities are not floating, masks neither boolean nor floating.
    ValueError: shapes do not match, an unknown `average`, or a static temperature
      that is not positive.

  Differentiable in: similarities, temperature. Cost: O(queries references).

  Source: Khosla et al. 2020, "Supervised contrastive learning", eqs. 2 and 3.

  Example:
    >>> s, w = jnp.array([[0.9, 0.5, 0.1]]), jnp.array([[1.0, 0.5, 0.0]])
    >>> spherejax.losses.sup_con_from_similarity(s, w, w == 0, temperature=1.0)
    Array([0.88458383], dtype=float32)
  """
  block, dtype = _batch.matrix(
    similarities, positives, negatives, where, "similarities"
  )
  return _sup_con(temperature, average, block.values.dtype)(block).astype(dtype)
