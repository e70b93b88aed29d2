"""Parts of the cases of several families; their formulas are in NumPy and loops."""

import numpy as np

from spherejax import losses
from tests.losses.cases._frame import LABELS, Case
from tests.losses.slopes import values_of


def call(name, *tables, **static):
  """The loss `name` of these tables of the rows, or of all in order of their names."""

  def loss(rows, labels, params, **options):
    data = [rows[table] for table in tables or sorted(rows)]
    data += [] if labels is None else [labels]
    return values_of(name, *data, **static, **params, **options)

  return loss


def project(rows, normalize="l2"):
  """Rows on the unit sphere, or in the unit ball; a zero row stays."""
  lengths = np.sqrt((rows**2).sum(-1, keepdims=True))
  if normalize == "l2":
    return rows / np.where(lengths > 0, lengths, 1)
  return rows / np.maximum(lengths, 1) if normalize == "unit_ball" else rows


def dot(x, y):
  return (x * y).sum(-1)


def squared(x, y):
  return ((x - y) ** 2).sum(-1)


def distance(x, y):
  return np.sqrt(squared(x, y))


def matrix_of(measure, rows, columns, normalize="l2"):
  return measure(project(rows, normalize)[:, None], project(columns, normalize)[None])


def euclidean(x):
  """Distances of all pairs of rows, as they are."""
  return matrix_of(distance, x, x, "none")


def cosines(x):
  return matrix_of(dot, x, x)


def pairs(labels, others=None):
  """Masks of positives and negatives; of the batch itself without others."""
  same = np.equal.outer(labels, labels if others is None else others)
  itself = np.eye(*same.shape, dtype=bool) & (others is None)
  return same & ~itself, ~same


def against_itself(name, measure, formula, params, static, options, **contract):
  """A loss of a batch with itself; of each row with itself, too, with `include_self`.

  `formula` is of a matrix, the masks of its positives and of its negatives, the params,
  and `static`; `options` are further ones of the loss.
  """

  def oracle(rows, labels, params):
    near, far = pairs(labels)
    if "include_self" in options:
      near |= np.eye(len(labels), dtype=bool)
    x, normalize = rows["embeddings"], options.get("normalize", "l2")
    return formula(matrix_of(measure, x, x, normalize), near, far, params, **static)

  loss = call(name, **static, **options)
  return Case(loss, oracle, params=params, blocks=True, devices=True, **contract)


def against_batch(name, kind, formula, params, static, **contract):
  """A loss of a matrix against references that have the labels of the batch."""

  def loss(rows, labels, params, **options):
    same = labels[:, None] == LABELS[None]
    options |= static | params
    return getattr(losses, name)(rows["matrix"], same, ~same, **options)

  def oracle(rows, labels, params):
    return formula(rows["matrix"], *pairs(labels, LABELS), params, **static)

  return Case(loss, oracle, {"matrix": (kind, len(LABELS))}, params, **contract)


def lse(values, among=True):
  """log sum exp over the last axis; -inf of nothing."""
  values = np.where(among, values, -np.inf)
  largest = values.max(axis=-1, keepdims=True, initial=-1e300)
  with np.errstate(divide="ignore"):
    return largest[..., 0] + np.log(np.exp(values - largest).sum(axis=-1))


def entropy(logits, target):
  """-log softmax at the target."""
  return lse(logits) - logits[target]


def softplus(value):
  return np.logaddexp(0, value)


def by_row(value):
  """An oracle from the value of a row's entries of each table, its label, and params.

  The tables are in the order of their names.
  """

  def oracle(rows, labels, params):
    columns = [np.asarray(rows[name]).tolist() for name in sorted(rows)]
    columns += [] if labels is None else [labels.tolist()]
    return [value(*entries, params) for entries in zip(*columns, strict=True)]

  return oracle
