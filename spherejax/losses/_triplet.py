"""Triplet loss: over all triplets without forming them, or over mined triplets."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _numerics
from spherejax.losses import _batch, _extremes, _positives, _selection, _triplet_counts
from spherejax.losses._batch import Normalization
from spherejax.losses._contrastive import Average

Mining = Literal["all", "violating", "hard", "semihard", "semihard_one", "batch_hard"]
Fallback = Literal["skip", "easiest"]


def triplet(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  *,
  margin: Real[ArrayLike, ""] = 0.05,
  squared: bool = False,
  soft: bool = False,
  mining: Mining = "all",
  fallback: Fallback = "skip",
  average: Average = "nonzero",
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  references: _batch.References | None = None,
  miner: _batch.Miner | None = None,
  block_size: int | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Triplet loss over all or over the mined triplets of the batch.

      T_apq = D_ap - D_aq + margin,   y_a = y_p, a != p,   y_a != y_q
      loss_a = n sum_pq [T_apq]+ / #{T > 0}      "nonzero"
      loss_a = n sum_pq [T_apq]+ / #{T}          "all"

  with n the number of kept examples, sums over the mined triplets and counts over the
  whole batch. `soft` replaces the hinge [T]+ by log(1 + exp(T)).

      "all"           every triplet
      "violating"     D_aq - D_ap <= margin
      "hard"          D_aq <= D_ap, and D_aq - D_ap <= margin
      "semihard"      D_ap < D_aq <= D_ap + margin
      "semihard_one"  for each pair (a, p) the nearest q with D_aq > D_ap
      "batch_hard"    for each a the farthest p and the nearest q

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer. Only their equality matters.
    margin: in units of the distance, may be traced. 0.05 is DML's, for plain distances;
      0.2 is FaceNet's, for squared ones; 0 is usual with `soft`.
    squared: True compares squared distances. Static.
    soft: True replaces the hinge by a softplus. Static.
    mining: which triplets count, see above; equal distances go to the lowest index. The
      choice is not differentiated. Static.
    fallback: what "semihard_one" does with a positive pair if no negative is farther:
      "skip" it or take the "easiest", the farthest negative. Static.
    average: "nonzero" divides by the number of triplets that violate the margin,
      "all" by the number of mined triplets; "batch_hard" is published with "all".
      Every soft term is nonzero. Static.
    normalize: "l2", "unit_ball" (what DML uses) or "none". Static.
    where: [batch], boolean, True keeps. None keeps all.
    references: rows to compare the batch with; None takes the batch itself.
    miner: chooses the pairs that count, given the distances. None keeps all.
    block_size: static. Rows per block, recomputed for the gradient; memory is
      block_size x batch. None takes all at once.
    axis_name: mapped axis over which the batch is spread. Each device returns the
      values of its rows, computed in the batch of all devices.

  Returns:
    [batch], dtype of `embeddings`; 0 for masked rows and for anchors without a
    positive or without a negative. `loss.mean()` is the paper's scalar.

  Raises:
    TypeError: embeddings are not floating, labels not integers, squared or soft not
      boolean.
    ValueError: shapes do not match, or an unknown `mining`, `fallback`, `average` or
      `normalize`.

  Differentiable in: embeddings, margin (counts are constants); with `soft` or
  "batch_hard" in reverse mode only.
  Cost: O(batch^2 dim) time and O(batch^2) memory; the triplets are never formed. "all",
  "violating", "hard" and "semihard" also sort the rows or pass over them once for each
  positive, whichever is cheaper; `soft` and "semihard_one" always pass over them.
  "batch_hard" differentiates only two pairs per row.

  Source: DML eq. 2.1.2; Schroff et al. 2015, "FaceNet"; Hermans et al. 2017, "In
  defense of the triplet loss" (batch hard, soft).

  Example:
    >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> spherejax.losses.triplet(x, jnp.array([0, 0, 1]))
    Array([0.85467947, 1.2476369 , 0.        ], dtype=float32)
  """
  _checks.flag("squared", squared)
  _checks.flag("soft", soft)
  settings = _settings(margin, soft, mining, fallback, average)
  batch = _batch.batch_of(embeddings, labels, where, normalize, references, axis_name)
  measure = _batch.squared_euclidean if squared else _batch.euclidean
  if mining == "batch_hard":
    constant = batch._replace(
      anchors=jax.lax.stop_gradient(batch.anchors),
      references=jax.lax.stop_gradient(batch.references),
    )
    pairs = _batch.over_pairs(_hardest, constant, measure, miner, block_size)
    sums, counts = _of_hardest(batch, pairs, squared, settings)
  else:
    terms = settings.soft_sums if soft else settings.sums
    sums, counts = _batch.over_pairs(terms, batch, measure, miner, block_size)
  loss = _batch.average_of_active(sums, counts, batch.where, axis_name)
  return loss.astype(batch.dtype)


class _Settings(NamedTuple):
  """Settings of the sum over a row's triplets, and of the number that divides it."""

  margin: ArrayLike
  soft: bool
  kind: str
  average: Average

  def scalar(self, dtype: jnp.dtype) -> Array:
    return _checks.scalar("margin", self.margin, dtype)

  def sums(self, block: _batch.Block) -> tuple[Array, Array]:
    """[rows] each: sum of the hinges, and the number to average over."""
    values, dtype = block.values, block.values.dtype
    m = self.scalar(dtype)
    # The gradient of a sum of hinges is its number of active terms. With these counts,
    # which are not differentiated, the sum over triplets is a sum over positives minus
    # one over negatives.
    pulled, pushed = _triplet_counts.count_triplets(
      values, m, block.positives, block.negatives, self.kind, True
    )
    # Both counts have the same sum, so both sides may be measured from the nearest
    # negative. Then no term is larger than the largest hinge, and small hinges keep
    # their digits.
    far = _selection.chosen(block.negatives)
    nearest = _extremes.smallest(jax.lax.stop_gradient(values), far)
    origin = jnp.where(jnp.isfinite(nearest), nearest, 0)
    pull = jnp.where(pulled > 0, pulled * (values + m - origin), 0)
    push = jnp.where(pushed > 0, pushed * (values - origin), 0)
    active = jnp.sum(pulled, axis=1)
    return (
      jnp.sum(pull - push, axis=1),
      active if self.average == "nonzero" else self.number(block),
    )

  def soft_sums(self, block: _batch.Block) -> tuple[Array, Array]:
    """[rows] each: sum of the softplus terms, and their number."""
    m = self.scalar(block.values.dtype)
    masks = block.positives, block.negatives
    near = _selection.chosen(block.positives)
    operands = block.values, m
    sums = _positives.sum_over(_soft_terms(self.kind), near, masks, operands)
    return sums, self.number(block)

  def number(self, block: _batch.Block) -> Array:
    """Number [rows] of triplets."""
    dtype = block.values.dtype
    if self.kind == "all":
      near, far = (
        _selection.count_over(x, dtype) for x in (block.positives, block.negatives)
      )
      return near * far
    pulled, _ = _triplet_counts.count_triplets(
      block.values,
      self.scalar(dtype),
      block.positives,
      block.negatives,
      self.kind,
      False,
    )
    return jnp.sum(pulled, axis=1)

  def of_one(
    self, near: Array, far: Array, weight: Array, valid: Array
  ) -> tuple[Array, Array]:
    """Term [rows] of a triplet per row, and whether the average counts it [rows]."""
    over = near - far + self.scalar(near.dtype)
    term = _numerics.softplus(over) if self.soft else jax.nn.relu(over)
    counted = valid if self.soft or self.average == "all" else valid & ~(over <= 0)
    return jnp.where(valid, weight * term, 0), jnp.where(counted, weight, 0)


def _settings(
  margin: ArrayLike, soft: bool, mining: Mining, fallback: Fallback, average: Average
) -> _Settings:
  _checks.one_of("average", average, Average)
  _checks.one_of("mining", mining, Mining)
  _checks.one_of("fallback", fallback, Fallback)
  kind = mining
  if mining == "semihard_one" and fallback == "easiest":
    kind = "semihard_one or easiest"
  return _Settings(margin, soft, kind, average)


def _soft_terms(kind: str) -> Callable[[Array, tuple, tuple], Array]:
  """A step over one positive of each row: [rows], the softplus of its triplets."""

  def step(index: Array, masks: tuple[Array, Array], operands: tuple) -> Array:
    values, margin = operands
    positives, negatives = masks
    near = _positives.pick(values, index)
    weight = _positives.pick(positives.astype(values.dtype), index)[:, 0]
    far = _selection.chosen(negatives)
    if kind != "all":
      fixed, at = jax.lax.stop_gradient(values), jax.lax.stop_gradient(near)
      limit = at + jax.lax.stop_gradient(margin)
      far = _triplet_counts.is_counted(fixed, at, limit, far, kind, False)
    terms = _numerics.softplus(jnp.where(far, near - values + margin, -jnp.inf))
    present = _positives.exists(index, values)
    return jnp.where(
      present, weight * _selection.sum_over(terms, _selection.part(negatives, far)), 0
    )

  return step


class _Pairs(NamedTuple):
  """The farthest positive and the nearest negative of each row."""

  positive: Array
  negative: Array
  weight: Array
  valid: Array


def _hardest(block: _batch.Block) -> _Pairs:
  values, size = block.values, block.values.shape[1]
  positive = _extremes.where_largest(values, _selection.chosen(block.positives))
  negative = _extremes.where_smallest(values, _selection.chosen(block.negatives))
  valid = (positive < size) & (negative < size)
  weight = valid.astype(values.dtype)
  for index, selection in ((positive, block.positives), (negative, block.negatives)):
    if selection.dtype != jnp.bool_:
      hit = _extremes.one_hot(index, size)
      weight *= jnp.sum(jnp.where(hit, selection, 0), axis=1).astype(values.dtype)
  return _Pairs(
    jnp.where(valid, positive, 0), jnp.where(valid, negative, 0), weight, valid
  )


def _of_hardest(
  batch: _batch.Batch, pairs: _Pairs, squared: bool, settings: _Settings
) -> tuple[Array, Array]:
  """Terms from the distances to the chosen references alone; no product backwards."""

  def distance(index: Array) -> Array:
    square = jnp.sum(
      (batch.anchors - _batch.take_rows(batch.references, index)) ** 2, axis=1
    )
    return square if squared else _numerics.sqrt(square)

  near, far = distance(pairs.positive), distance(pairs.negative)
  return settings.of_one(near, far, pairs.weight, pairs.valid)


def triplet_from_distance(
  distances: Float[ArrayLike, "queries references"],
  positives: _selection.Selection,
  negatives: _selection.Selection,
  *,
  margin: Real[ArrayLike, ""] = 0.05,
  soft: bool = False,
  mining: Mining = "all",
  fallback: Fallback = "skip",
  average: Average = "nonzero",
  where: Bool[ArrayLike, " queries"] | None = None,
  axis_name: str | None = None,
) -> Float[Array, " queries"]:
  """Triplet loss over all or over the mined triplets of a matrix of distances.

  The matrix form of `triplet`; a pair in neither mask is ignored.

      loss_a = n sum_pq [D_ap - D_aq + margin]+ / #{> 0}      "nonzero"
      loss_a = n sum_pq [D_ap - D_aq + margin]+ / #{p, q}     "all"

  with n the number of kept queries and the counts over all of them.

  Args:
    distances: [queries, references], floating; plain or squared.
    positives: [queries, references], boolean, or weights, not differentiated; a
      triplet then counts as much as the product of its two weights.
    negatives: [queries, references], boolean or weights.
    margin: in units of the distances, may be traced.
    soft: True replaces the hinge by a softplus. Static.
    mining: "all", "violating", "hard", "semihard", "semihard_one" or "batch_hard".
      Static.
    fallback: "skip" or "easiest", for "semihard_one". Static.
    average: "nonzero" or "all". Static.
    where: [queries], boolean, True keeps. None keeps all.
    axis_name: mapped axis over which the queries are spread.

  Returns:
    [queries], dtype of `distances`; 0 for masked rows.

  Raises:
    TypeError: distances are not floating, masks neither boolean nor floating, soft not
      boolean.
    ValueError: shapes do not match, or an unknown `mining`, `fallback` or `average`.

  Differentiable in: distances, margin; with `soft` in reverse mode only, except for
  "batch_hard". Cost: O(queries references log references);
  with `soft`, "semihard_one" or weights O(queries references) for each positive of a
  query.

  Source: DML eq. 2.1.2; Schroff et al. 2015, "FaceNet".

  Example:
    >>> same = jnp.array([[True, False]])
    >>> spherejax.losses.triplet_from_distance(jnp.array([[0.5, 0.25]]), same, ~same)
    Array([0.3], dtype=float32)
  """
  _checks.flag("soft", soft)
  settings = _settings(margin, soft, mining, fallback, average)
  block, dtype = _batch.matrix(distances, positives, negatives, where, "distances")
  if mining == "batch_hard":
    pairs = _hardest(block._replace(values=jax.lax.stop_gradient(block.values)))
    near, far = (
      _selection.sum_over(block.values, _extremes.one_hot(index, block.values.shape[1]))
      for index in (pairs.positive, pairs.negative)
    )
    sums, counts = settings.of_one(near, far, pairs.weight, pairs.valid)
  else:
    sums, counts = settings.soft_sums(block) if soft else settings.sums(block)
  loss = _batch.average_of_active(sums, counts, block.where, axis_name)
  return loss.astype(dtype)
