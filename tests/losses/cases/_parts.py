"""Parts of the oracles of several families, by loops in Python's own numbers."""

import math

import numpy as np


def project(row, normalize="l2"):
  """A row on the unit sphere, or in the unit ball; a zero row stays."""
  length = math.sqrt(sum(entry * entry for entry in row))
  if normalize == "l2":
    return row / length if length > 0 else row
  return row / max(length, 1.0) if normalize == "unit_ball" else row


def dot(x, y):
  return sum(a * b for a, b in zip(x, y, strict=True))


def squared(x, y):
  return sum((a - b) ** 2 for a, b in zip(x, y, strict=True))


def matrix_of(measure, rows, columns, normalize="l2"):
  left = [project(row, normalize) for row in rows]
  right = [project(row, normalize) for row in columns]
  return np.array([[measure(x, y) for y in right] for x in left])


def pairs(labels, others=None):
  """Positive and negative columns of each row; the batch itself without others."""
  columns = labels if others is None else others
  positives, negatives = [], []
  for i, label in enumerate(labels):
    kept = [j for j in range(len(columns)) if others is not None or j != i]
    positives.append([j for j in kept if columns[j] == label])
    negatives.append([j for j in kept if columns[j] != label])
  return positives, negatives


def lse(values):
  """log sum exp; -inf of nothing."""
  largest = max(values, default=-math.inf)
  if largest == -math.inf:
    return -math.inf
  return largest + math.log(sum(math.exp(value - largest) for value in values))


def softplus(value):
  return 0.0 if value == -math.inf else np.logaddexp(0, value)


def softened(logits):
  terms = [math.exp(z - max(logits)) for z in logits]
  return [term / sum(terms) for term in terms]
