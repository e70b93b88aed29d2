"""Self-supervised and supervised contrastive losses, spread and statistics."""

import math

import jax.numpy as jnp
import numpy as np

from spherejax import losses
from tests.losses.cases._frame import Case
from tests.losses.cases._parts import project

VIEWS = {"first": ("embedding", 4), "second": ("embedding", 4)}


def unit(rows):
  return [project(row) for row in rows]


def similarities(rows):
  """Similarities of first views to all first, then all second views, in order."""
  first, second = (unit(rows["first"]), unit(rows["second"]))
  return [[float(a @ b) for b in first + second] for a in first]


def exchanged(rows):
  return {"first": rows["second"], "second": rows["first"]}


def info_nce(rows, labels, params):
  t, values = params["temperature"], []
  table = similarities(rows)
  n = len(table)
  for i, similar in enumerate(table):
    others = [math.exp(s / t) for j, s in enumerate(similar) if j % n != i]
    values.append(math.log(sum(others)) - similar[n + i] / t if others else 0)
  return np.array(values)


def symmetric(rows, labels, params):
  return (
    info_nce(rows, labels, params) + info_nce(exchanged(rows), labels, params)
  ) / 2


def nt_xent(rows, labels, params):
  t, total = params["temperature"], 0
  for views in (rows, exchanged(rows)):
    values = []
    table = similarities(views)
    for i, similar in enumerate(table):
      own = math.exp(similar[len(table) + i] / t)
      everything = sum(math.exp(s / t) for j, s in enumerate(similar) if j != i)
      values.append(-math.log(own / everything))
    total = total + np.array(values) / 2
  return total


def repulsion(rows, labels, params):
  values = []
  table = similarities(rows)
  for i, similar in enumerate(table):
    others = [s for j, s in enumerate(similar) if j % len(table) != i]
    values.append(max(others, default=0))
  return np.array(values)


def invariance(rows, labels, params):
  table = similarities(rows)
  return np.array([-similar[len(table) + i] for i, similar in enumerate(table)])


def bound(rows, labels, params):
  n = len(rows["first"])
  if n == 1:
    return np.zeros(1)
  parts = invariance(rows, labels, params) + repulsion(rows, labels, params)
  return parts / params["temperature"] + math.log(2 * (n - 1))


def contrast(similar, weights, everything, t, average):
  """SupCon of one row; `weights` of the positives, the denominator's indices."""
  total = sum(weights.values())
  if not total:
    return 0.0
  bottom = sum(math.exp(similar[j] / t) for j in everything)
  shares = {j: math.exp(similar[j] / t) / bottom for j in weights}
  if average == "in":
    return -math.log(sum(w * shares[j] for j, w in weights.items()) / total)
  return -sum(w * math.log(shares[j]) for j, w in weights.items()) / total


def sup_con(average, views=False):
  def oracle(rows, labels, params):
    tables = [rows["first"], rows["second"]] if views else [rows["embeddings"]]
    points = [unit(table) for table in tables]
    every = [(k, j) for k in range(len(points)) for j in range(len(labels))]
    values = []
    for i, y in enumerate(labels):
      terms = []
      for k in range(len(points)):
        others = [pair for pair in every if pair != (k, i)]
        similar = {(m, j): float(points[k][i] @ points[m][j]) for m, j in others}
        same = {(m, j): 1.0 for m, j in others if labels[j] == y}
        terms.append(contrast(similar, same, others, params["temperature"], average))
      values.append(sum(terms) / len(terms))
    return values

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

  def oracle(rows, labels, params):
    return [
      contrast(
        similar,
        {j: w for j, w in enumerate(TABLE[y]) if w},
        range(6),
        params["temperature"],
        average,
      )
      for similar, y in zip(rows["similar"], labels, strict=True)
    ]

  return Case(
    loss,
    oracle,
    {"similar": ("cosine", 6)},
    {"temperature": 0.5},
    sharp={"temperature": 0.02},
  )


def alignment(rows, labels, params):
  first, second = (unit(rows["first"]), unit(rows["second"]))
  return [
    math.dist(a, b) ** params["exponent"] for a, b in zip(first, second, strict=True)
  ]


def uniformity(rows, labels, params):
  points = unit(rows["embeddings"])
  n = len(points)
  potentials = [
    math.exp(-params["scale"] * math.dist(points[i], points[j]) ** 2)
    for i in range(n)
    for j in range(i)
  ]
  return [math.log(sum(potentials) / len(potentials)) if potentials else 0] * n


def columns(table):
  """The columns of the rows, less their means."""
  n = len(table)
  result = []
  for column in np.asarray(table).T:
    constant = all(value == column[0] for value in column)
    mean = column[0] if constant else math.fsum(column) / n
    result.append([value - mean for value in column])
  return result


def times(a, b):
  return sum(x * y for x, y in zip(a, b, strict=True))


def vicreg(reduction):
  def oracle(rows, labels, params):
    n, dim = rows["first"].shape
    batch = 0.0
    for table in rows.values():
      centred = columns(table)
      moments = [[times(a, b) / max(n - 1, 1) for b in centred] for a in centred]
      variance = sum(
        max(0, 1 - math.sqrt(moments[j][j] + 1e-4)) / dim for j in range(dim)
      )
      covariance = sum(
        moments[j][k] ** 2 / dim for j in range(dim) for k in range(dim) if j != k
      )
      variance /= 2 if reduction == "code" else 1
      batch += params["variance_weight"] * variance
      batch += params["covariance_weight"] * covariance
    share = 1 / dim if reduction == "code" else 1
    return [
      params["invariance_weight"] * share * math.dist(a, b) ** 2 + batch
      for a, b in zip(rows["first"], rows["second"], strict=True)
    ]

  return oracle


def barlow_twins(rows, labels, params):
  n, dim = rows["first"].shape
  standard = []
  for table in rows.values():
    centred = columns(table)
    spreads = [math.sqrt(times(c, c) / n) for c in centred]
    standard.append(
      [
        [value / s if s else 0 for value in c]
        for c, s in zip(centred, spreads, strict=True)
      ]
    )
  value = 0.0
  for j in range(dim):
    for k in range(dim):
      correlation = times(standard[0][j], standard[1][k]) / n
      value += (
        (1 - correlation) ** 2
        if j == k
        else params["redundancy_weight"] * correlation**2
      )
  return [value] * n


def call(name, **static):
  """The loss of that name on the tables of the rows."""

  def loss(rows, labels, params, **options):
    tables = [rows[k] for k in ("first", "second", "embeddings") if k in rows]
    if labels is not None:
      tables.append(labels)
    result = getattr(losses, name)(*tables, **static, **params, **options)
    return result.value if name == "info_nce_bound" else result

  return loss


# At a temperature of 0.005 its own derivative does not fit into float16; the test of
# self-supervised losses goes there without.
def pairs(name, oracle, params, *, rows=VIEWS, labels=False, sharp=None, **static):
  """A case that takes blocks and devices."""
  extreme = {"temperature": 0.02} if sharp is None else sharp
  return Case(
    call(name, **static), oracle, rows, params, labels, True, True, sharp=extreme
  )


ROWS = {"embeddings": ("embedding", 4)}
T = {"temperature": 0.4}
WEIGHTS = {"invariance_weight": 2.0, "variance_weight": 3.0, "covariance_weight": 0.7}

CASES: dict[str, Case] = {
  "info_nce": pairs("info_nce", info_nce, T),
  "info_nce/symmetric": pairs("info_nce", symmetric, T, symmetric=True),
  "nt_xent": pairs("nt_xent", nt_xent, T),
  "info_nce_bound": pairs("info_nce_bound", bound, T),
  "info_nce_repulsion": pairs("info_nce_repulsion", repulsion, {}, sharp={}),
  "info_nce_invariance": Case(
    call("info_nce_invariance"), invariance, VIEWS, labels=False
  ),
  "sup_con": pairs("sup_con", sup_con("out"), T, rows=ROWS, labels=True),
  "sup_con/in": pairs(
    "sup_con", sup_con("in"), T, rows=ROWS, labels=True, average="in"
  ),
  "sup_con/views": Case(
    stacked, sup_con("out", views=True), VIEWS, T, True, True, True
  ),
  "sup_con_from_similarity": weighted("out"),
  "sup_con_from_similarity/in": weighted("in"),
  "alignment": Case(
    call("alignment"), alignment, VIEWS, {"exponent": 1.7}, labels=False
  ),
  "uniformity": pairs(
    "uniformity", uniformity, {"scale": 1.6}, rows=ROWS, sharp={"scale": 300.0}
  ),
  "vicreg": Case(
    call("vicreg"), vicreg("paper"), VIEWS, WEIGHTS, labels=False, devices=True
  ),
  "vicreg/code": Case(
    call("vicreg", reduction="code"),
    vicreg("code"),
    VIEWS,
    WEIGHTS,
    labels=False,
    devices=True,
  ),
  "barlow_twins": Case(
    call("barlow_twins"),
    barlow_twins,
    VIEWS,
    {"redundancy_weight": 0.3},
    labels=False,
    devices=True,
  ),
}
