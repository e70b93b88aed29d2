"""Counts of the pairs in a batch, and of those that a miner keeps."""

from typing import NamedTuple

from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer

from spherejax import _checks
from spherejax.losses import _batch, _selection
from spherejax.losses._batch import Measure, Normalization


class PairCounts(NamedTuple):
  """Numbers of pairs, or sums of their weights.

  Example:
    >>> counts = spherejax.losses.pair_counts(jnp.eye(3), jnp.array([0, 0, 1]))
    >>> (counts.positives > 0) & (counts.negatives > 0)
    Array([ True,  True, False], dtype=bool)
  """

  positives: Float[Array, " batch"]
  """[batch]: pairs of one class with each example as the anchor."""
  negatives: Float[Array, " batch"]
  """[batch]: pairs of two classes."""


def pair_counts(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  *,
  of: Measure = "distance",
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  references: _batch.References | None = None,
  miner: _batch.Miner | None = None,
  block_size: int | None = None,
  axis_name: str | None = None,
) -> PairCounts:
  """Counts the pairs of each example, and those among them that a miner keeps.

  A loss without any pair is 0 with gradient 0, and so is a loss whose pairs all satisfy
  their margins; these numbers tell the two apart. They also turn a sum over anchors
  into the mean over the anchors that have a positive and a negative.

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer. Only their equality matters.
    of: measure that the miner sees: "distance", "squared_distance" or "similarity", as
      in the loss that it mines for. Static.
    normalize: "l2", "unit_ball" or "none". Static.
    where: [batch], boolean, True keeps. None keeps all.
    references: rows to compare the batch with; None takes the batch itself.
    miner: chooses the pairs that count. None keeps all.
    block_size: static. Rows at a time; memory is block_size x batch. None takes all at
      once.
    axis_name: mapped axis over which the batch is spread; the counts are those of the
      local rows.

  Returns:
    PairCounts, floating, at least float32; 0 for masked rows.

  Raises:
    TypeError: embeddings are not floating, labels not integers.
    ValueError: shapes do not match, or an unknown `of` or `normalize`.

  Not differentiated. Cost: O(batch^2 dim) time.

  Source: none; reductions over pairs divide by these numbers.

  Example:
    >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> mine = spherejax.losses.mine_pair_margin
    >>> spherejax.losses.pair_counts(x, jnp.array([0, 0, 1]), miner=mine).negatives
    Array([0., 1., 1.], dtype=float32)
  """
  _checks.one_of("of", of, Measure)
  batch = _batch.batch_of(embeddings, labels, where, normalize, references, axis_name)

  def terms(block: _batch.Block) -> PairCounts:
    dtype = block.values.dtype
    return PairCounts(
      _selection.count_over(block.positives, dtype),
      _selection.count_over(block.negatives, dtype),
    )

  measure = _batch.MEASURES[of]
  return _batch.over_pairs(terms, batch, measure, miner, block_size, additive=True)
