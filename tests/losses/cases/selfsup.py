"""Self-supervised and supervised contrastive losses, spread and statistics."""

import math

import jax.numpy as jnp
import numpy as np
from scipy import special

from spherejax import losses
from tests.losses.cases._frame import Case
from tests.losses.cases._parts import (
  by_row,
  call,
  distance,
  dot,
  lse,
  matrix_of,
  project,
)

VIEWS = {"first": ("embedding", 4), "second": ("embedding", 4)}


def similarities(rows):
  """Similarities of first views to all first, then all second views, in order."""
  return matrix_of(dot, rows["first"], np.concatenate([rows["first"], rows["second"]]))


def exchanged(rows):
  return {"first": rows["second"], "second": rows["first"]}


def info_nce(rows, labels, params, itself=False):
  """With `itself` the other view of an example is among what it competes with."""
  table = similarities(rows) / params["temperature"]
  n = len(table)
  alone = np.eye(n, dtype=bool)
  others = ~np.concatenate([alone, alone & (not itself)], axis=1)
  return lse(table, others) - np.diagonal(table, n)


def symmetric(rows, labels, params, itself=False):
  views = rows, exchanged(rows)
  return sum(info_nce(view, labels, params, itself) for view in views) / 2


def nt_xent(rows, labels, params):
  return symmetric(rows, labels, params, itself=True)


def repulsion(rows, labels, params):
  table = similarities(rows)
  return np.where(np.tile(np.eye(len(table)), 2), -2, table).max(axis=1)


def invariance(rows, labels, params):
  return -dot(project(rows["first"]), project(rows["second"]))


def bound(rows, labels, params):
  parts = invariance(rows, labels, params) + repulsion(rows, labels, params)
  return parts / params["temperature"] + math.log(2 * (len(parts) - 1))


def contrast(similar, weights, t, average):
  """SupCon of a row: similarities to all others, and the weights of positives."""
  total = sum(weights)
  if not total:
    return 0.0
  shares = special.softmax(np.divide(similar, t))
  if average == "in":
    return -math.log(sum(weights * shares) / total)
  return -sum(weights * np.log(shares)) / total


def sup_con(average):
  def oracle(rows, labels, params):
    points = project(np.concatenate(list(rows.values())))  # first and second views
    classes, terms = np.tile(labels, len(rows)), []
    for i, point in enumerate(points):
      similar, same = points @ point, classes == classes[i]
      row = (np.delete(x, i) for x in (similar, same.astype(float)))
      terms.append(contrast(*row, params["temperature"], average))
    return np.reshape(terms, (len(rows), -1)).mean(axis=0)

  return oracle


def stacked(rows, labels, params, **options):
  both = jnp.stack([rows["first"], rows["second"]], axis=1)
  return losses.sup_con(both, labels, **params, **options)


TABLE = np.random.default_rng(5).uniform(0, 1, (10, 6))  # by class: of 6 references
TABLE[:, 2] = 0


def weighted(average):
  def loss(rows, labels, params, where):
    weights = jnp.asarray(TABLE, rows["similar"].dtype)[labels]
    return losses.sup_con_from_similarity(
      rows["similar"], weights, weights == 0, average=average, where=where, **params
    )

  def value(similar, y, params):
    return contrast(similar, TABLE[y], params["temperature"], average)

  rows, params = {"similar": ("cosine", 6)}, {"temperature": 0.5}
  return Case(loss, by_row(value), rows, params, sharp={"temperature": 0.02})


def alignment(rows, labels, params):
  apart = distance(project(rows["first"]), project(rows["second"]))
  return apart ** params["exponent"]


def uniformity(rows, labels, params):
  apart = matrix_of(distance, rows["embeddings"], rows["embeddings"])
  potentials = np.exp(-params["scale"] * apart[np.triu_indices(len(apart), 1)] ** 2)
  return np.full(len(apart), math.log(potentials.mean()))


def columns(table):
  """The columns of the rows, less their means; exactly 0 where all rows are equal."""
  means = np.where((table == table[0]).all(axis=0), table[0], table.mean(axis=0))
  return (table - means).T


def vicreg(reduction):
  def oracle(rows, labels, params):
    n, dim = rows["first"].shape
    batch = 0.0
    for table in rows.values():
      centred = columns(table)
      moments = centred @ centred.T / (n - 1)
      variance = np.maximum(0, 1 - np.sqrt(np.diag(moments) + 1e-4)).sum() / dim
      covariance = (moments[~np.eye(dim, dtype=bool)] ** 2).sum() / dim
      variance /= 2 if reduction == "code" else 1
      batch += params["variance_weight"] * variance
      batch += params["covariance_weight"] * covariance
    share = 1 / dim if reduction == "code" else 1
    apart = ((rows["first"] - rows["second"]) ** 2).sum(axis=1)
    return params["invariance_weight"] * share * apart + batch

  return oracle


def barlow_twins(rows, labels, params):
  n, dim = rows["first"].shape
  standard = []
  for table in rows.values():
    centred = columns(table)
    spreads = np.sqrt((centred**2).mean(axis=1, keepdims=True))
    standard.append(centred / np.where(spreads > 0, spreads, 1))
  correlations, own = standard[0] @ standard[1].T / n, np.eye(dim, dtype=bool)
  value = ((1 - correlations[own]) ** 2).sum()
  value += params["redundancy_weight"] * (correlations[~own] ** 2).sum()
  return np.full(n, value)


# At a temperature of 0.005 its own derivative does not fit into float16; the test of
# self-supervised losses goes there without.
def pairs(name, oracle, params, *, rows=VIEWS, labels=False, sharp=None, **static):
  """A case that takes blocks and devices."""
  extreme = {"temperature": 0.02} if sharp is None else sharp
  return Case(
    call(name, **static), oracle, rows, params, labels, True, True, sharp=extreme
  )


def of_views(name, oracle, params, devices=True, **static):
  """A case of the batch without blocks."""
  loss = call(name, **static)
  return Case(loss, oracle, VIEWS, params, labels=False, devices=devices)


ROWS = {"rows": {"embeddings": ("embedding", 4)}}
T = {"temperature": 0.4}
WEIGHTS = {"invariance_weight": 2.0, "variance_weight": 3.0, "covariance_weight": 0.7}

CASES: dict[str, Case] = {
  "info_nce": pairs("info_nce", info_nce, T),
  "info_nce/symmetric": pairs("info_nce", symmetric, T, symmetric=True),
  "nt_xent": pairs("nt_xent", nt_xent, T),
  "info_nce_bound": pairs("info_nce_bound", bound, T),
  "info_nce_repulsion": pairs("info_nce_repulsion", repulsion, {}, sharp={}),
  "info_nce_invariance": of_views("info_nce_invariance", invariance, {}, devices=False),
  "sup_con": pairs("sup_con", sup_con("out"), T, **ROWS, labels=True),
  "sup_con/in": pairs("sup_con", sup_con("in"), T, **ROWS, labels=True, average="in"),
  "sup_con/views": Case(stacked, sup_con("out"), VIEWS, T, True, True, True),
  "sup_con_from_similarity": weighted("out"),
  "sup_con_from_similarity/in": weighted("in"),
  "alignment": of_views("alignment", alignment, {"exponent": 1.7}, devices=False),
  "uniformity": pairs(
    "uniformity", uniformity, {"scale": 1.6}, **ROWS, sharp={"scale": 300.0}
  ),
  "vicreg": of_views("vicreg", vicreg("paper"), WEIGHTS),
  "vicreg/code": of_views("vicreg", vicreg("code"), WEIGHTS, reduction="code"),
  "barlow_twins": of_views("barlow_twins", barlow_twins, {"redundancy_weight": 0.3}),
}
