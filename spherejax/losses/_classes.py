"""Shared parts of the class losses: checked scores, targets, margins, cross-entropy.

With `class_axis_name` the classes are split over devices: each device has all rows and
its own columns, which follow those of the devices before it. Sums over the classes run
over the devices too, and all devices return the same losses.
"""

import functools
import math
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _compiled, _numerics
from spherejax.losses import _batch, _blocks

Targets = Integer[ArrayLike, " batch"] | Float[ArrayLike, "batch classes"]
"""A class for each row, or a distribution over the classes."""

_INNER = (
  "spherejax",
  "jax",
  "jaxtyping",
  "beartype",
  "functools",
)  # packages whose frames lie between us and a caller
# Largest value that rounding may make of a cosine of 1, also in half precision.
_MOST_COSINE = 1.05
# Largest difference of a sum of probabilities from 1.
_SUM_SLACK = 1e-2

Margin = Real[ArrayLike, ""] | Real[ArrayLike, " classes"]
"""One number, or one for each class."""

Chosen = Bool[ArrayLike, " classes"] | Bool[ArrayLike, "batch classes"]
"""Mask of the classes that take part, for all rows or per row."""


class Scores(NamedTuple):
  """Operands of a loss over classes."""

  values: Array
  """[batch, classes] or [batch, classes, per_class]; masked rows are zero."""
  class_mask: Array
  """[batch, classes], boolean: the class of each row; none for a masked row."""
  dtype: jnp.dtype
  """The type of the scores before they are converted."""
  axis_name: str | None = None
  """Axis of the devices that the classes are split over; None: all classes are here."""


def scores(
  name: str,
  values: ArrayLike,
  labels: ArrayLike,
  where: ArrayLike | None,
  axes: int = 2,
  class_axis_name: str | None = None,
) -> Scores:
  """Checks scores and their integer labels."""
  entries = _checks.array(name, values, "floating", rank=axes, empty=False)
  labels = _checks.integers("labels", labels)
  _checks.labels(labels, entries)
  mask, here = _batch.keep_all(where, entries), entries.shape[1]
  number = 1 if class_axis_name is None else jax.lax.axis_size(class_axis_name)
  mask, rows_present = mask & _checks.inside(labels, number * here, mask), mask
  _compiled.known(functools.partial(_check_kind, name), entries, rows_present)
  first = _batch.first_row(here, class_axis_name)
  class_mask = (labels[:, None] == first + jnp.arange(here)[None]) & mask[:, None]
  values = jnp.where(mask.reshape(-1, *[1] * (axes - 1)), _numerics.upcast(entries), 0)
  return Scores(values, class_mask, entries.dtype, class_axis_name)


def _check_kind(name: str, entries: ArrayLike, where: ArrayLike) -> None:
  """Raises for cosines outside [-1, 1]; warns of logits that may be probabilities."""
  rows = np.asarray(entries)[np.asarray(where)]
  rows = rows.reshape(len(rows), math.prod(rows.shape[1:]))
  rows = rows.astype(np.promote_types(rows.dtype, np.float32))
  if name.endswith("cosines"):
    beyond = rows[np.abs(rows) > _MOST_COSINE]
    if beyond.size:
      raise ValueError(
        f"{name} must be in [-1, 1], got {beyond[0]:g}; distances."
        "pairwise_cosine makes them of embeddings and proxies"
      )
  elif name.endswith("logits") and _are_probabilities(rows):
    _warn(
      f"{name} look like probabilities: every row is in [0, 1] with the sum 1; pass"
      " the inputs of the softmax, or their logarithm"
    )


def _warn(message: str) -> None:
  """Warns, at the line that called us."""
  frame, level = sys._getframe(1), 2
  while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in _INNER:
    frame, level = frame.f_back, level + 1
  warnings.warn(message, stacklevel=level)


def _are_probabilities(rows: np.ndarray) -> bool:
  if not rows.size:
    return False
  sums = np.abs(np.sum(rows, axis=1) - 1) < _SUM_SLACK
  mixed = np.max(rows, axis=1) < 1 - _SUM_SLACK  # the rows of a unit matrix are not
  return bool(np.all(sums) & np.all(rows >= 0) & np.any(mixed))


def over_classes(parts: Array, axis_name: str | None) -> Array:
  """Adds up what each device has summed over its classes."""
  if axis_name is None:
    return parts
  # Not psum: a checked shard_map would count its derivative only once.
  return jnp.sum(jax.lax.all_gather(parts, axis_name), axis=0)


def has_class(class_mask: Array, axis_name: str | None) -> Array:
  """[batch], boolean: rows whose class is on this device or on another one."""
  present = jnp.any(class_mask, axis=1)
  if axis_name is None:
    return present
  return jax.lax.psum(present.astype(jnp.int32), axis_name) > 0


def is_distribution(labels: ArrayLike) -> bool:
  """True if `labels` are distributions over the classes, False for integers."""
  return jnp.ndim(labels) == 2 and jnp.issubdtype(jnp.result_type(labels), jnp.floating)


def distributions(
  name: str, values: ArrayLike, targets: ArrayLike, where: ArrayLike | None
) -> tuple[Array, Array, jnp.dtype]:
  """Checked scores and distributions, both zero in masked rows, and the type."""
  entries = _checks.array(name, values, "floating", rank=2, empty=False)
  targets = _checks.array("targets", targets)
  _checks.shape("labels", targets, entries.shape, f"the {name}")
  mask = _batch.keep_all(where, entries)
  _compiled.known(functools.partial(_check_kind, name), entries, mask)
  mask = mask[:, None]
  wide = jnp.where(mask, _numerics.upcast(entries), 0)
  return wide, jnp.where(mask, targets.astype(wide.dtype), 0), entries.dtype


def taking_part(scores: Scores, classes: ArrayLike | None) -> Array:
  """[batch, classes], boolean: the classes that take part; None for all."""
  if classes is None:
    return jnp.ones(scores.class_mask.shape, bool)
  mask = _checks.array("classes", classes)
  shape = scores.class_mask.shape[-1:] if mask.ndim == 1 else scores.class_mask.shape
  _checks.mask(mask, shape, "classes")
  return jnp.broadcast_to(mask.reshape(-1, shape[-1]), scores.class_mask.shape)


def own_score(scores: Scores) -> Array:
  """[batch, 1]: the score of each row's class; 0 for a masked row."""
  score = _numerics.masked_sum(scores.values, scores.class_mask)
  return over_classes(score, scores.axis_name)[:, None]


def own_margin(
  scores: Scores, margin: ArrayLike, low: float = -np.inf, high: float = np.inf
) -> Array:
  """[batch, 1]: margin of each row's class; raises for known margins out of bounds."""
  _checks.between("margin", margin, low, high)
  margins = jnp.asarray(margin, scores.values.dtype)
  if margins.ndim == 0:
    return jnp.broadcast_to(margins, (len(scores.class_mask), 1))
  _checks.shape("margin", margins, scores.class_mask.shape[1:], "the classes")
  margin_of_class = _numerics.masked_sum(margins[None], scores.class_mask)
  return over_classes(margin_of_class, scores.axis_name)[:, None]


def cross_entropy(
  values: Array,
  class_mask: Array,
  scale: Array | float = 1.0,
  *,
  target: Array | None = None,
  others: Array | None = None,
  axis_name: str | None = None,
) -> Array:
  """Cross-entropy of the logits scale * values; 0 for a row without a class.

  Written as log(1 + sum over the other classes of exp(their lead over the true class)).
  A difference of two large numbers would lose the digits of a small loss; the rounding
  of 1 - probability would lose the digits of its gradient.

  Args:
    values: [batch, classes].
    class_mask: [batch, classes], boolean, True at the class of each row.
    scale: multiplies the values.
    target: [batch, 1], replaces the value of the true class.
    others: [batch, classes], boolean, the classes to tell the true class from. None for
      all.
    axis_name: axis of the devices that the classes are split over.
  """
  if target is None:
    target = over_classes(_numerics.masked_sum(values, class_mask), axis_name)[:, None]
  rivals = ~class_mask if others is None else others & ~class_mask
  leads = _batch.logsumexp(scale * (values - target), rivals, axis_name, 1)
  return jnp.where(has_class(class_mask, axis_name), _numerics.softplus(leads), 0)


def log_softmax(values: Array, axis_name: str | None) -> Array:
  """[batch, classes]: log-probabilities among the classes of all devices.

  As accurate as `_numerics.log_softmax`.
  """
  if axis_name is None:
    return _numerics.log_softmax(values)
  tops = jax.lax.all_gather(jax.lax.stop_gradient(jnp.max(values, axis=1)), axis_name)
  mine = jnp.argmax(tops, axis=0) == jax.lax.axis_index(axis_name)
  columns = jnp.arange(values.shape[1])
  largest = (columns[None] == jnp.argmax(values, axis=1)[:, None]) & mine[:, None]
  lead = over_classes(_numerics.masked_sum(values, largest), axis_name)[:, None]
  behind = jnp.where(largest, 0, values - lead)
  rest = _batch.logsumexp(behind, ~largest, axis_name, 1)
  return behind - _numerics.softplus(rest)[:, None]


def over_rows(
  terms: Callable[[Array, Array], Array],
  rows: Array,
  labels: Array,
  where: Array,
  classes: int,
  block_size: int | None,
) -> Array:
  """[batch]: `terms` of rows and the mask of their classes, in blocks of rows.

  Args:
    terms: maps [rows, dim] and [rows, classes] to [rows].
    rows: [batch, dim].
    labels: [batch]; raises for known ones of kept rows outside [0, classes).
    where: [batch], boolean.
    classes: number of classes.
    block_size: static. Rows at a time; None takes all.
  """
  _checks.known_labels(labels, classes, where)

  def of_rows(block: tuple[Array, Array, Array]) -> Array:
    rows, labels, mask = block
    return terms(rows, _batch.class_mask(labels, classes, mask))

  return _blocks.map_rows(of_rows, (rows, labels, where), block_size)


def highest(parts: Sequence[Array]) -> Array:
  """Maximum of arrays; among equal entries the first is differentiated.

  Comparing a few arrays is many times faster than argmax along an axis.
  """

  def larger(best: Array, part: Array) -> Array:
    return jnp.where((part > best) | jnp.isnan(part), part, best)

  return functools.reduce(larger, parts)


def proxies(array: ArrayLike, rows: Array, *ranks: int, name: str = "proxies") -> Array:
  """Checks proxies, of rank 2 by default, and converts them to the rows' type."""
  entries = _checks.array(name, array, "floating", rank=ranks or 2, empty=False)
  if entries.shape[-1] != rows.shape[1]:
    raise ValueError(
      f"{name} must have rows of length {rows.shape[1]} to match the embeddings, "
      f"got shape {entries.shape}"
    )
  return _numerics.upcast(entries).astype(rows.dtype)
