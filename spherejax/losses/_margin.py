"""Margin loss: a learned boundary between near and far."""

from collections.abc import Callable
from typing import Literal

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _numerics
from spherejax.losses import _batch, _selection
from spherejax.losses._batch import Normalization

Form = Literal["pairs", "triplets"]


def margin(
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  *,
  boundary: Real[ArrayLike, ""] = 1.2,
  class_boundaries: Float[ArrayLike, " classes"] | None = None,
  example_boundaries: Float[ArrayLike, " batch"] | None = None,
  margin: Real[ArrayLike, ""] = 0.2,
  boundary_weight: Real[ArrayLike, ""] = 0.0,
  form: Form = "pairs",
  normalize: Normalization = "l2",
  where: Bool[ArrayLike, " batch"] | None = None,
  references: _batch.References | None = None,
  miner: _batch.Miner | None = None,
  block_size: int | None = None,
  axis_name: str | None = None,
) -> Float[Array, " batch"]:
  """Margin loss: positives below a learned boundary, negatives above it.

      l_ij = [D_ij - b_i + margin]+   for y_i = y_j, i != j
      l_ij = [b_i + margin - D_ij]+   for y_i != y_j
      b_i = boundary + class_boundaries[y_i] + example_boundaries[i]
      loss_i = n sum_j l_ij / #{l > 0} + boundary_weight n b_i / #{anchors}     "pairs"

  with n the number of kept examples and the counts over the whole batch; an anchor is a
  row with a pair. In the form "triplets" a pair counts as often as it occurs in
  triplets: a positive pair as often as the row has negatives, and conversely. There an
  anchor is a row with both kinds of pairs.

  Args:
    embeddings: [batch, dim], floating.
    labels: [batch], integer; in [0, classes) where classes have boundaries. A traced
      label out of range then masks its row.
    boundary: in units of a distance, may be traced. The default is the paper's initial
      value.
    class_boundaries: [classes], added for the class of the anchor. None adds nothing.
    example_boundaries: [batch], added for each anchor. None adds nothing.
    margin: in units of a distance, may be traced.
    boundary_weight: weight of the mean boundary, at least 0, may be traced. A positive
      weight shrinks the boundaries, so near negatives are repelled less.
    form: "pairs" or "triplets". Static.
    normalize: "l2", "unit_ball" or "none". Static.
    where: [batch], boolean, True keeps. None keeps all.
    references: rows to compare the batch with; None takes the batch itself.
    miner: chooses the pairs that count, given the distances. None keeps all.
    block_size: static. Rows per block, recomputed for the gradient; memory is
      block_size x batch. None takes all at once.
    axis_name: mapped axis over which the batch is spread (`boundary` and
      `class_boundaries` are the same on all devices); the values are those of the
      local rows in the batch of all devices.

  Returns:
    [batch], dtype of `embeddings`; 0 for masked rows. `loss.mean()` is the paper's
    scalar (over the kept rows).

  Raises:
    TypeError: embeddings or boundaries are not floating, labels not integers.
    ValueError: shapes do not match, a known label outside [0, classes), an unknown
      `form` or `normalize`, or a static weight below 0.

  Differentiable in: embeddings, boundaries, margin, boundary_weight (counts are
  constants). With `boundary_weight` 0 the boundary settles where as many positive as
  negative pairs are active. Cost: O(batch^2 dim) time.

  Source: Wu et al. 2017, "Sampling matters in deep embedding learning", section 4.2;
  DML eq. 2.1.3.

  Example:
    >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> spherejax.losses.margin(x, jnp.array([0, 0, 1]))
    Array([0.45989323, 0.5908791 , 0.6365588 ], dtype=float32)
  """
  batch = _batch.batch_of(embeddings, labels, where, normalize, references, axis_name)
  dtype = batch.anchors.dtype
  centre = _checks.scalar("boundary", boundary, dtype)
  if class_boundaries is not None:
    by_class = _checks.array("class_boundaries", class_boundaries, "floating", rank=1)
    # Not the labels of the batch, which are renumbered if they are large.
    class_labels = _checks.integers("labels", labels)
    class_mask = _batch.class_mask(class_labels, by_class.shape[0], batch.where)
    known = jnp.any(class_mask, axis=1)
    batch = batch._replace(where=batch.where & known)
    if references is None:
      batch = batch._replace(reference_where=_batch.gather(batch.where, axis_name))
    centre += _numerics.masked_sum(by_class.astype(dtype)[None], class_mask)
  if example_boundaries is not None:
    by_example = _checks.array("example_boundaries", example_boundaries, "floating")
    _checks.shape("example_boundaries", by_example, batch.labels.shape, "the labels")
    centre += jnp.where(batch.where, by_example.astype(dtype), 0)
  centre = jnp.broadcast_to(centre, batch.where.shape)

  terms = _margin_terms(margin, form, dtype)
  parts = _batch.over_pairs(
    terms,
    batch,
    _batch.euclidean,
    miner,
    block_size,
    (centre,),
    additive=form == "pairs",
  )
  loss = _average(parts, centre, boundary_weight, batch.where, axis_name)
  return loss.astype(batch.dtype)


def _margin_terms(
  margin: ArrayLike, form: Form, dtype: jnp.dtype
) -> Callable[[_batch.Block, Array], tuple[Array, Array, Array]]:
  """Returns a function: sum of hinges, number of active and of all hinges, per row."""
  _checks.one_of("form", form, Form)
  m = _checks.scalar("margin", margin, dtype)

  def terms(block: _batch.Block, boundary: Array) -> tuple[Array, Array, Array]:
    centre = boundary[:, None]
    pull, pulled = _selection.hinges(block.values - (centre - m), block.positives)
    push, pushed = _selection.hinges(centre + m - block.values, block.negatives)
    positives = _selection.count_over(block.positives, dtype)
    negatives = _selection.count_over(block.negatives, dtype)
    if form == "pairs":
      return pull + push, pulled + pushed, positives + negatives
    sums = negatives * pull + positives * push
    active = negatives * pulled + positives * pushed
    return sums, active, positives * negatives

  return terms


def _average(
  parts: tuple[Array, Array, Array],
  boundary: Array,
  boundary_weight: ArrayLike,
  where: Array,
  axis_name: str | None,
) -> Array:
  sums, active, number = parts
  used = number > 0
  _checks.between("boundary_weight", boundary_weight, 0)
  weight = _checks.scalar("boundary_weight", boundary_weight, sums.dtype)
  small = _batch.average_of_active(
    jnp.where(used, boundary, 0), used.astype(sums.dtype), where, axis_name
  )
  return _batch.average_of_active(sums, active, where, axis_name) + weight * small


def margin_from_distance(
  distances: Float[ArrayLike, "queries references"],
  positives: _selection.Selection,
  negatives: _selection.Selection,
  *,
  boundary: Real[ArrayLike, ""] | Float[ArrayLike, " queries"] = 1.2,
  margin: Real[ArrayLike, ""] = 0.2,
  boundary_weight: Real[ArrayLike, ""] = 0.0,
  form: Form = "pairs",
  where: Bool[ArrayLike, " queries"] | None = None,
  axis_name: str | None = None,
) -> Float[Array, " queries"]:
  """Margin loss from a matrix of distances.

  The matrix form of `margin`; a pair in neither mask is ignored.

      l_ij = [D_ij - b_i + margin]+ for a positive pair, [b_i + margin - D_ij]+ for a
             negative one
      loss_i = n sum_j l_ij / #{l > 0} + boundary_weight n b_i / #{anchors}

  with n the number of kept queries and the counts over all of them.

  Args:
    distances: [queries, references], floating.
    positives: [queries, references], boolean, or weights of the terms, not
      differentiated.
    negatives: [queries, references], boolean or weights.
    boundary: one for all, or [queries]; may be traced (b).
    margin: in units of a distance, may be traced.
    boundary_weight: weight of the mean boundary, at least 0, may be traced.
    form: "pairs" or "triplets". Static.
    where: [queries], boolean, True keeps. None keeps all.
    axis_name: mapped axis over which the queries are spread.

  Returns:
    [queries], dtype of `distances`; 0 for masked rows.

  Raises:
    TypeError: distances are not floating, masks neither boolean nor floating.
    ValueError: shapes do not match, an unknown `form`, or a static weight below 0.

  Differentiable in: distances, boundary, margin, boundary_weight.
  Cost: O(queries references).

  Source: Wu et al. 2017, "Sampling matters in deep embedding learning", section 4.2.

  Example:
    >>> same = jnp.array([[True, False]])
    >>> spherejax.losses.margin_from_distance(jnp.array([[1.5, 1.2]]), same, ~same)
    Array([0.35], dtype=float32)
  """
  block, dtype = _batch.matrix(distances, positives, negatives, where, "distances")
  _checks.known_finite("boundary", boundary if jnp.ndim(boundary) == 0 else 0)
  centre = jnp.asarray(boundary, block.values.dtype)
  if centre.ndim:
    _checks.shape("boundary", centre, block.where.shape, "the queries")
    centre = jnp.where(block.where, centre, 0)
  centre = jnp.broadcast_to(centre, block.where.shape)
  parts = _margin_terms(margin, form, block.values.dtype)(block, centre)
  loss = _average(parts, centre, boundary_weight, block.where, axis_name)
  return loss.astype(dtype)
