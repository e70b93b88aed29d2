"""Zero-shot prediction of each half of a batch from the other, by normal equations."""

import numpy as np

from spherejax import losses
from tests.losses.cases._frame import CLASSES, Case
from tests.losses.cases._parts import entropy


def fit(z, y, ridge):
  """The stationary point of |Z A - Y|^2 + ridge |A|^2."""
  return np.linalg.solve(z.T @ z + ridge * np.eye(z.shape[1]), z.T @ y)


def values(z, labels, other, other_labels, u, ridge, scale):
  """Values of the rows `z`, predicted from the others."""
  predicted = z @ fit(other, u[other_labels], ridge)
  scores = (scale * predicted @ u.T).tolist()
  return [entropy(row, y) for row, y in zip(scores, labels, strict=True)]


def loss(rows, labels, params, where, axis_name=None):
  z = rows["attributes"]
  a, b = losses.split_by_class(labels, where=where, axis_name=axis_name)
  both = losses.zero_shot_prediction(
    z, labels, z, labels, **params, where_a=a, where_b=b, axis_name=axis_name
  )
  return both.reshape(2, -1).sum(axis=0)


def oracle(rows, labels, params):
  """The first half has the classes that come first."""
  z, (u, ridge, scale) = rows["attributes"], params.values()
  order = list(dict.fromkeys(labels.tolist()))
  first = np.isin(labels, order[: (len(order) + 1) // 2])
  found = np.zeros(len(z))
  for half in (first, ~first):
    pair = z[half], labels[half], z[~half], labels[~half]
    found[half] = values(*pair, u, ridge, scale)
  return found


def case(width, ridge, scale):
  table = np.random.default_rng(2).normal(size=(CLASSES, 4))
  params = {"label_embeddings": table, "ridge": ridge, "scale": scale}
  rows = {"attributes": ("distance", width)}
  return Case(loss, oracle, rows, params, devices=True, ordered=True)


CASES = {
  "zero_shot_prediction": case(3, 0.7, 1.7),
  "zero_shot_prediction/wide": case(12, 2.0, 0.8),
}
