"""Labelled batches behind the label forms: rows, pairs, counts, devices.

With `axis_name` a batch is spread over devices. Anchors are the rows of this device;
references are the rows of all devices in the order of their index along the axis.
Gathering is differentiated: its transpose adds up the gradients that all devices have
for a row as a reference.
"""

import inspect
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from spherejax import _checks, _numerics, distances
from spherejax.losses import _blocks, _selection

Normalization = Literal["l2", "unit_ball", "none"]
Measure = Literal["distance", "squared_distance", "similarity"]

Miner = Callable[..., tuple[Array, Array]]
"""Maps a matrix, its positives and its negatives to masks or weights of both.

A miner treats each row by itself. If it takes the keywords `of` or `rows`, it gets the
measure that the matrix holds (a `Measure`), and the indices of its rows in the batch.
"""


class References(NamedTuple):
  """References that a batch is compared with: a memory, proxies or other views.

  Example:
    >>> x, labels = jnp.eye(2), jnp.array([0, 1])
    >>> memory = spherejax.losses.References(jnp.eye(3, 2), jnp.array([0, 0, 1]))
    >>> spherejax.losses.contrastive(x, labels, references=memory).shape
    (2,)
  """

  embeddings: ArrayLike
  """[references, dim], floating."""
  labels: ArrayLike
  """[references], integer."""
  where: ArrayLike | None = None
  """[references], boolean, True keeps. None keeps all."""
  itself: ArrayLike | None = None
  """[batch], integer: index of the reference that is a copy of the row, or -1. A row
  makes no pair with its copy. None: no reference is a copy."""


class Batch(NamedTuple):
  """Anchors, and the references they are compared with."""

  anchors: Array
  """[batch, dim], normalised; masked rows are zero."""
  labels: Array
  """[batch]."""
  itself: Array
  """[batch], index of the reference that is the row itself, or -1."""
  position: Array
  """[batch], index of the row in the batch of all devices."""
  where: Array
  """[batch], boolean."""
  references: Array
  """[references, dim], normalised; masked rows are zero."""
  reference_labels: Array
  """[references]."""
  reference_where: Array
  """[references], boolean."""
  dtype: jnp.dtype
  """The type of the embeddings before they are converted."""


class Block(NamedTuple):
  """A block of anchors against all references; values outside both masks are finite."""

  values: Array
  """[rows, references]."""
  positives: Array
  """[rows, references], boolean, or weights."""
  negatives: Array
  """[rows, references], boolean, or weights."""
  where: Array
  """[rows], boolean."""
  itself: Array | None = None
  """[rows, references], boolean: kept copies of the row; None in a matrix form."""


def gather(array: Array, axis_name: str | None) -> Array:
  """Gathers the rows of all devices along the axis; without one, returns the array."""
  if axis_name is None:
    return array
  return jax.lax.all_gather(array, axis_name, tiled=True)


def first_row(number: int, axis_name: str | None) -> Array | int:
  """Index of this device's first row, where every device holds `number` rows."""
  return 0 if axis_name is None else jax.lax.axis_index(axis_name) * number


@jax.custom_vjp
def take_rows(rows: Array, index: Array) -> Array:
  """Returns `rows[index]`, with a gradient that is added up in a fixed order."""
  return rows[index]


def _take_forward(rows: Array, index: Array) -> tuple[Array, tuple[Array, Array]]:
  return rows[index], (rows, index)


def _take_backward(
  residuals: tuple[Array, Array], cotangent: Array
) -> tuple[Array, None]:
  rows, index = residuals
  order = jnp.argsort(index)
  sums = jax.ops.segment_sum(
    cotangent[order], index[order], len(rows), indices_are_sorted=True
  )
  return sums, None


take_rows.defvjp(_take_forward, _take_backward)


def total(count: Array, axis_name: str | None) -> Array:
  """Sum over devices of a number that is not differentiated."""
  count = jax.lax.stop_gradient(count)
  return count if axis_name is None else jax.lax.psum(count, axis_name)


def number(where: Array, axis_name: str | None, dtype: jnp.dtype) -> Array:
  """Counts the True entries on all devices.

  Rows are counted as integers and added as floats: the number of pairs of a large
  batch does not fit into 32 bits.
  """
  per_row = jnp.sum(where, axis=-1, dtype=jnp.int32).astype(dtype)
  return total(jnp.sum(per_row), axis_name)


def normalize_rows(rows: Array, normalization: Normalization) -> Array:
  """Rows on the unit sphere, inside the unit ball, or as they are."""
  _checks.one_of("normalize", normalization, Normalization)
  if normalization == "l2":
    return distances.l2_normalize(rows)
  return distances.unit_ball(rows) if normalization == "unit_ball" else rows


def keep_all(where: ArrayLike | None, rows: Array, name: str = "where") -> Array:
  """Returns the mask, or a mask that keeps every row."""
  return _checks.where_mask(where, rows.shape[:1], name)


def rows_and_labels(
  embeddings: ArrayLike,
  labels: ArrayLike,
  where: ArrayLike | None,
  normalize: Normalization,
  owner: str = "",
) -> tuple[Array, Array, Array, jnp.dtype]:
  """Checked and normalised rows, their labels and mask, and their original type."""
  embeddings = _checks.array("embeddings", embeddings)
  labels = _checks.integers(f"{owner}labels", labels)
  _checks.expect(f"{owner}embeddings", embeddings, "floating", rank=2, empty=False)
  _checks.labels(labels, embeddings, f"{owner}labels")
  mask = keep_all(where, embeddings, f"{owner}where")
  rows = jnp.where(mask[:, None], _numerics.upcast(embeddings), 0)
  return normalize_rows(rows, normalize), labels, mask, embeddings.dtype


def same_names(
  labels: ArrayLike, references: References | None
) -> tuple[Array, References | None]:
  """Converts the labels of a batch and its references; only their equality matters."""
  if references is None:
    return _checks.names(("labels", labels))[0], None
  _checks.instance("references", references, References)
  shared_labels, others = _checks.names(
    ("labels", labels), ("references.labels", references.labels)
  )
  return shared_labels, references._replace(labels=others)


def batch_of(
  embeddings: ArrayLike,
  labels: ArrayLike,
  where: ArrayLike | None,
  normalize: Normalization,
  references: References | None,
  axis_name: str | None,
) -> Batch:
  """A labelled batch against itself on all devices, or against given references."""
  labels, references = same_names(labels, references)
  anchors, labels, mask, dtype = rows_and_labels(embeddings, labels, where, normalize)
  batch = anchors.shape[0]
  position = first_row(batch, axis_name) + jnp.arange(batch, dtype=jnp.int32)
  if references is None:
    rows, reference_labels, reference_kept = (
      gather(array, axis_name) for array in (anchors, labels, mask)
    )
    anchor_fields = anchors, labels, position, position, mask
    return Batch(*anchor_fields, rows, reference_labels, reference_kept, dtype)
  rows, reference_labels, reference_kept, _ = rows_and_labels(
    references.embeddings, references.labels, references.where, normalize, "references."
  )
  if rows.shape[1] != anchors.shape[1]:
    raise ValueError(
      f"references.embeddings must have rows of length {anchors.shape[1]} to match "
      f"the embeddings, got shape {rows.shape}"
    )
  itself = jnp.full(batch, -1, jnp.int32)
  if references.itself is not None:
    itself = _checks.integers("references.itself", references.itself)
    _checks.labels(itself, anchors, "references.itself")
    _checks.known_labels(itself, len(rows), mask, "references.itself", low=-1)
  rows = rows.astype(anchors.dtype)
  anchor_fields = anchors, labels, itself, position, mask
  return Batch(*anchor_fields, rows, reference_labels, reference_kept, dtype)


def over_pairs(
  terms: Callable[..., Any],
  batch: Batch,
  measure: Callable[[Array, Array], Array],
  miner: Miner | None = None,
  block_size: int | None = None,
  extra: tuple[Array, ...] = (),
  additive: bool = False,
) -> Any:
  """Applies `terms` to every anchor's row of the matrix, in blocks of rows.

  Args:
    terms: maps a block of rows, and the same rows of `extra`, to a pytree of [rows,
      ...] arrays.
    batch: anchors and references.
    measure: maps anchors and references to the matrix: `dot`, `euclidean`, ...
    miner: chooses among the pairs. Not differentiated.
    block_size: static. Rows at a time; None takes all.
    extra: [batch, ...] arrays, differentiated.
    additive: whether the terms are sums over the pairs of a row.
  """
  index = jnp.arange(len(batch.references), dtype=batch.itself.dtype)
  columns = batch.references, batch.reference_labels, batch.reference_where, index
  kinds: dict[Any, str] = {function: name for name, function in MEASURES.items()}
  of = kinds.get(measure, "distance")

  def of_pairs(rows: tuple[Array, ...], columns: tuple[Array, ...]) -> Any:
    anchors, labels, itself, position, mask, *more = rows
    references, reference_labels, reference_kept, index = columns
    compared = mask[:, None] & reference_kept[None]
    same = labels[:, None] == reference_labels[None]
    other = itself[:, None] != index[None]
    block = Block(
      measure(anchors, references),
      compared & same & other,
      compared & ~same & other,
      mask,
      compared & ~other,
    )
    return terms(mined(block, miner, of=of, rows=position), *more)

  rows = batch.anchors, batch.labels, batch.itself, batch.position, batch.where, *extra
  if additive and miner is None:
    return _blocks.sum_rows(of_pairs, rows, columns, block_size)
  return _blocks.map_rows(lambda block: of_pairs(block, columns), rows, block_size)


def mined(block: Block, miner: Miner | None, **known: Any) -> Block:
  """The block with only the pairs that the miner keeps.

  Args:
    block: all pairs.
    miner: chooses among them. Not differentiated.
    known: keywords for a miner that takes them.
  """
  if miner is None:
    return block
  _checks.function("miner", miner)
  known = {name: value for name, value in known.items() if _takes(miner, name)}
  values = jax.lax.stop_gradient(block.values)
  chosen = miner(values, block.positives, block.negatives, **known)
  pair = _checks.pair("what the miner returns", chosen)
  names = "the miner's positives", "the miner's negatives"
  chosen = [_checks.array(name, x) for name, x in zip(names, pair, strict=True)]
  for name, x in zip(names, chosen, strict=True):
    _selection.check(name, x, block.values.shape)
  positives, negatives = map(jax.lax.stop_gradient, chosen)
  return block._replace(positives=positives, negatives=negatives)


def _takes(function: Callable[..., Any], keyword: str) -> bool:
  try:
    return keyword in inspect.signature(function).parameters
  except ValueError:  # some callables have no signature
    return False


def matrix(
  values: ArrayLike,
  positives: ArrayLike,
  negatives: ArrayLike,
  where: ArrayLike | None,
  name: str,
  *,
  weights: bool = True,
) -> tuple[Block, jnp.dtype]:
  """The checked operands of a matrix form, and the type of its matrix.

  Args:
    values: [queries, references].
    positives: [queries, references], boolean, or weights.
    negatives: [queries, references], boolean, or weights.
    where: [queries], boolean. None keeps all.
    name: of the matrix, for messages.
    weights: whether masks may be weights.
  """
  entries = _checks.array(name, values, "floating", rank=2, empty=False)
  rows_kept = keep_all(where, entries)
  masks = []
  for mask_name, mask in (("positives", positives), ("negatives", negatives)):
    mask = jax.lax.stop_gradient(_checks.array(mask_name, mask))
    if not weights:
      _checks.expect(mask_name, mask, "boolean")
    _selection.check(mask_name, mask, entries.shape)
    # NaN in a masked row of weights does not reach the others.
    masks.append(jnp.where(rows_kept[:, None], mask, jnp.zeros((), mask.dtype)))
  used = _selection.chosen(masks[0]) | _selection.chosen(masks[1])
  wide = _numerics.keep(_numerics.upcast(entries), used)
  return Block(wide, masks[0], masks[1], rows_kept), entries.dtype


def average_of_active(
  sums: Array, active: Array, where: Array, axis_name: str | None
) -> Array:
  """Sums of each row as shares of an average over all active terms.

  The mean of these shares over the kept rows is the average over the active terms.
  """
  rows = number(where[:, None], axis_name, sums.dtype)
  return _numerics.divide(rows * sums, total(jnp.sum(active), axis_name))


dot = distances.pairwise_dot  # cosines on the sphere
squared_euclidean = distances.pairwise_squared_euclidean
euclidean = distances.pairwise_euclidean


MEASURES: dict[Measure, Callable[[Array, Array], Array]] = {
  "distance": euclidean,
  "squared_distance": squared_euclidean,
  "similarity": dot,
}
"""Measures that a matrix may hold, with their functions of anchors and references."""


def class_mask(
  labels: Array, classes: int, where: Array, name: str = "labels"
) -> Array:
  """[batch, classes]: True at the class of each kept row.

  Raises for labels outside 0 .. classes - 1 when they are known; traced ones make
  a row of False.
  """
  _checks.known_labels(labels, classes, where, name)
  return (labels[:, None] == jnp.arange(classes)[None]) & where[:, None]


def logsumexp(values: Array, where: Array, axis_name: str | None, axis: int) -> Array:
  """Log-sum-exp of the kept entries along an axis, on all devices; -inf for none."""
  local = _numerics.logsumexp(values, where, axis)
  if axis_name is None:
    return local
  parts = jax.lax.all_gather(local, axis_name)
  return _numerics.logsumexp(parts, parts != -jnp.inf, axis=0)
