"""The labelled batch behind the label forms: rows, pairs, counts, devices.

With `axis_name` a batch is spread over devices. Anchors are the rows of this device,
references the rows of all devices in the order of their index along the axis. The
gathered copies are differentiated: the transpose of the gathering adds up what all
devices say about a row as a reference.
"""

from typing import NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from spherejax import _checks, _numerics, distances

NORMALIZATIONS = ("l2", "unit_ball", "none")


class Pairs(NamedTuple):
  """Anchors, what they are compared with, and which pairs belong together."""

  anchors: Array
  """[batch, dim], normalised; masked rows are zero."""
  references: Array
  """[references, dim]."""
  positives: Array
  """[batch, references], boolean: one class, not the example itself."""
  negatives: Array
  """[batch, references], boolean: different classes."""
  where: Array
  """[batch], boolean."""
  reference_where: Array
  """[references], boolean."""
  dtype: jnp.dtype
  """The type of the embeddings as they came."""


class Matrix(NamedTuple):
  """The operands of a matrix form."""

  values: Array
  """[queries, references]; 0 where there is no pair."""
  positives: Array
  """[queries, references], boolean."""
  negatives: Array
  """[queries, references], boolean."""
  where: Array
  """[queries], boolean."""
  reference_where: Array
  """[references], boolean."""
  dtype: jnp.dtype
  """The type of the matrix as it came."""


def gather(array: Array, axis_name: str | None) -> Array:
  """The rows of all devices along the axis; the array itself without one."""
  if axis_name is None:
    return array
  return jax.lax.all_gather(array, axis_name, tiled=True)


def total(count: Array, axis_name: str | None) -> Array:
  """Sum over devices of a number that is not differentiated."""
  count = jax.lax.stop_gradient(count)
  return count if axis_name is None else jax.lax.psum(count, axis_name)


def number(where: Array, axis_name: str | None, dtype: jnp.dtype) -> Array:
  """How many entries are True on all devices.

  Rows are counted as integers and added as floats: the number of pairs of a large
  batch does not fit into 32 bits.
  """
  per_row = jnp.sum(where, axis=-1, dtype=jnp.int32).astype(dtype)
  return total(jnp.sum(per_row), axis_name)


def normalize_rows(rows: Array, normalization: str) -> Array:
  """Rows on the unit sphere, inside the unit ball, or as they are."""
  _checks.one_of("normalize", normalization, NORMALIZATIONS)
  if normalization == "l2":
    return distances.l2_normalize(rows)
  return distances.unit_ball(rows) if normalization == "unit_ball" else rows


def keep_all(where: ArrayLike | None, rows: Array) -> Array:
  """The mask, or one that keeps every row."""
  if where is None:
    return jnp.ones(rows.shape[:1], bool)
  mask = jnp.asarray(where)
  _checks.mask(mask, rows.shape[:1])
  return mask


def rows_and_labels(
  embeddings: ArrayLike, labels: ArrayLike, where: ArrayLike | None, normalize: str
) -> tuple[Array, Array, Array, jnp.dtype]:
  """Checked and normalised rows, their labels and mask, and their original type."""
  embeddings, labels = jnp.asarray(embeddings), jnp.asarray(labels)
  _checks.floating("embeddings", embeddings)
  _checks.rank("embeddings", embeddings, 2)
  _checks.labels(labels, embeddings)
  kept = keep_all(where, embeddings)
  rows = jnp.where(kept[:, None], _numerics.upcast(embeddings), 0)
  return normalize_rows(rows, normalize), labels, kept, embeddings.dtype


def pairs(
  embeddings: ArrayLike,
  labels: ArrayLike,
  where: ArrayLike | None,
  normalize: str,
  axis_name: str | None,
) -> Pairs:
  """All pairs of a labelled batch; an example is never paired with itself."""
  anchors, labels, kept, dtype = rows_and_labels(embeddings, labels, where, normalize)
  batch = anchors.shape[0]
  references, reference_labels, reference_kept = (
    gather(array, axis_name) for array in (anchors, labels, kept)
  )
  first = 0 if axis_name is None else jax.lax.axis_index(axis_name) * batch
  itself = (first + jnp.arange(batch))[:, None] == jnp.arange(len(references))[None]
  same = labels[:, None] == reference_labels[None]
  compared = kept[:, None] & reference_kept[None]
  return Pairs(
    anchors,
    references,
    compared & same & ~itself,
    compared & ~same,
    kept,
    reference_kept,
    dtype,
  )


def matrix(
  values: ArrayLike,
  positives: ArrayLike,
  negatives: ArrayLike,
  where: ArrayLike | None,
  name: str,
) -> Matrix:
  """The checked operands of a matrix form."""
  entries = jnp.asarray(values)
  _checks.floating(name, entries)
  _checks.rank(name, entries, 2)
  positive, negative = jnp.asarray(positives), jnp.asarray(negatives)
  _checks.mask(positive, entries.shape, "positives")
  _checks.mask(negative, entries.shape, "negatives")
  kept = keep_all(where, entries)
  positive, negative = positive & kept[:, None], negative & kept[:, None]
  return Matrix(
    jnp.where(positive | negative, _numerics.upcast(entries), 0),
    positive,
    negative,
    kept,
    jnp.ones(entries.shape[1], bool),
    entries.dtype,
  )


def pair_distances(batch: Pairs, *, squared: bool) -> Array:
  """Distances of the pairs; 0 with derivative 0 where there is no pair."""
  squares = distances.pairwise_squared_euclidean(batch.anchors, batch.references)
  squares = jnp.where(batch.positives | batch.negatives, squares, 0)
  return squares if squared else _numerics.sqrt(squares)


def pair_similarities(batch: Pairs) -> Array:
  """Dot products of the normalised rows; 0 where there is no pair."""
  products = distances.pairwise_dot(batch.anchors, batch.references)
  return jnp.where(batch.positives | batch.negatives, products, 0)


def class_mask(labels: Array, classes: int, where: Array) -> Array:
  """[batch, classes]: True at the class of each kept row.

  Raises for labels outside 0 .. classes - 1 when they are known; traced ones make
  a row of False.
  """
  if not isinstance(labels, jax.core.Tracer) and labels.size:
    known = np.asarray(labels)
    kept = known if isinstance(where, jax.core.Tracer) else known[np.asarray(where)]
    wrong = kept[(kept < 0) | (kept >= classes)]
    if wrong.size:
      raise ValueError(f"labels must be in [0, {classes}), got {wrong[0]}")
  return (labels[:, None] == jnp.arange(classes)[None]) & where[:, None]


def cross_entropy(scores: Array, own: Array, scale: Array) -> Array:
  """Cross-entropy of the logits scale * scores; 0 for a row of no class.

  Written as log(1 + sum over the other classes of exp(their lead over the own one)):
  a difference of two large numbers would lose the digits of a small loss, and the
  rounding of 1 - probability those of its gradient.
  """
  lead = scale * (scores - _numerics.masked_sum(scores, own)[:, None])
  loss = _numerics.softplus(_numerics.logsumexp(lead, ~own))
  return jnp.where(jnp.any(own, axis=1), loss, 0)


def logsumexp_over_rows(values: Array, where: Array, axis_name: str | None) -> Array:
  """[columns]: log sum exp over the kept rows of all devices; -inf over none."""
  local = _numerics.logsumexp(values, where, axis=0)
  if axis_name is None:
    return local
  parts = jax.lax.all_gather(local, axis_name)
  return _numerics.logsumexp(parts, parts != -jnp.inf, axis=0)
