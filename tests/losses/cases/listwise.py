"""Losses that compare each positive with a whole list, by loops."""

import math

import numpy as np

from tests.losses.cases._frame import Case
from tests.losses.cases._parts import (
  against_batch,
  against_itself,
  call,
  distance,
  dot,
  lse,
  pairs,
  project,
  softplus,
  squared,
)

# --- formulas: of a matrix, the lists of each row, and the numbers ---


def tuplet_margin(s, near, far, p):
  values = np.zeros(len(s))
  for i in range(len(s)):
    for j in near[i]:
      square = 1 - s[i, j] ** 2
      sine = math.sqrt(square) if square > 1e-14 else 0.0  # duplicates
      turned = s[i, j] * math.cos(p["margin"]) + sine * math.sin(p["margin"])
      values[i] += softplus(lse(p["scale"] * (s[i, far[i]] - turned)))
  return values


def soft_histogram(values, nodes):
  """How much of the values lies at each node."""
  width = nodes[1] - nodes[0]
  clipped = [min(max(v, nodes[0]), nodes[-1]) for v in values]
  return [sum(max(0, 1 - abs(v - node) / width) for v in clipped) for node in nodes]


def fast_ap(d, near, far, p, bins):
  nodes = [4 * k / bins for k in range(bins + 1)]
  values = np.zeros(len(d))
  for i in range(len(d)):
    if near[i]:
      own = soft_histogram(d[i, near[i]], nodes)
      every = soft_histogram(d[i, near[i] + far[i]], nodes)
      found = total = missed = 0.0
      for a, b in zip(own, every, strict=True):
        found, total = found + a, total + b
        missed += a * (1 - found / total) if total else 0
      values[i] = missed / len(near[i])
  return values


def above(difference, temperature):
  return 1 / (1 + math.exp(-max(min(difference / temperature, 500), -500)))


def smooth_ap(s, near, far, p):
  values = np.zeros(len(s))
  for i in range(len(s)):
    for j in near[i]:
      own = 1 + sum(
        above(s[i, k] - s[i, j], p["temperature"]) for k in near[i] if k != j
      )
      other = sum(above(s[i, k] - s[i, j], p["temperature"]) for k in far[i])
      values[i] += other / (own + other) / len(near[i])
  return values


PENALTIES = {
  "O": lambda r, b, a: r,
  "Iu": lambda r, b, a: (1 + r) * math.log(1 + r),
  "Ib": lambda r, b, a: (b * r - math.log(1 + b * r)) / b**2,
  "Ds": lambda r, b, a: math.log(1 + r),
  "Dq": lambda r, b, a: 1 - 1 / (1 + r) ** a,
}


def pnp(s, near, far, p, penalty):
  b, a = p["steepness"], p["exponent"]
  values = np.zeros(len(s))
  for i in range(len(s)):
    for j in near[i]:
      r = sum(above(s[i, k] - s[i, j], p["temperature"]) for k in far[i])
      values[i] += PENALTIES[penalty](r, b, a) / len(near[i])
  return values


def histogram(s, near, far, p, bins):
  nodes = [-1 + 2 * k / bins for k in range(bins + 1)]
  positives, negatives = sum(map(len, near)), sum(map(len, far))
  if not positives or not negatives:
    return np.zeros(len(s))
  h_near, h_far = (
    np.array([soft_histogram(s[i, row], nodes) for i, row in enumerate(side)]) / number
    for side, number in ((near, positives), (far, negatives))
  )
  values = np.zeros(len(s))
  for i in range(len(s)):
    for r in range(bins + 1):
      for q in range(r + 1):
        values[i] += h_far[i, r] * h_near[:, q].sum() + h_far[:, r].sum() * h_near[i, q]
  return len(s) * values / 2


def ranked_list(d, near, far, p):
  inner = p["boundary"] - p["margin"]

  def mean(violations, temperature):
    weights = np.where(violations > 0, np.exp(temperature * violations), 0)
    return sum(weights * violations) / sum(weights, 1e-300)

  share, hot, cold = p["balance"], p["negative_temperature"], p["positive_temperature"]
  return [
    (1 - share) * mean(d[i, near[i]] - inner, cold)
    + share * mean(p["boundary"] - d[i, far[i]], hot)
    for i in range(len(d))
  ]


def angular(x, labels, p, form="log", normalize="l2"):
  """From the triplets' vectors: this loss has no matrix form."""
  z = project(x, normalize)
  near, far = pairs(labels)
  t = math.tan(p["angle"]) ** 2
  values = np.zeros(len(x))
  for i in range(len(x)):
    for j in near[i]:
      if form == "hinge":
        middle = (z[i] + z[j]) / 2
        terms = squared(z[i], z[j]) - 4 * t * squared(z[far[i]], middle)
        values[i] += sum(np.maximum(terms, 0))
      else:
        terms = 4 * t * z[far[i]] @ (z[i] + z[j]) - 2 * (1 + t) * z[i] @ z[j]
        values[i] += softplus(lse(terms))
  return values


# --- cases ---

CASES: dict[str, Case] = {}


def of_batch(key, measure, formula, params, *, itself=False, static=(), **contract):
  name, options = key.split("/")[0], {"include_self": True} if itself else {}
  CASES[key] = against_itself(
    name, measure, formula, params, dict(static), options, **contract
  )


def of_matrix(key, kind, formula, params, *, static=(), **contract):
  name = key.split("/")[0]
  CASES[key] = against_batch(name, kind, formula, params, dict(static), **contract)


def of_triplets(key, angle, **static):
  CASES[key] = Case(
    call("angular", **static),
    lambda rows, labels, params: angular(rows["embeddings"], labels, params, **static),
    params={"angle": angle},
    blocks=True,
    devices=True,
    sharp={"angle": 1.2},
  )


TUPLET = {"scale": 12.0, "margin": 0.1}
PNP = {"temperature": 0.2, "steepness": 2.0, "exponent": 0.7}
SMOOTH = {"temperature": 0.05}
RANKED = {"boundary": 1.2, "margin": 0.4, "balance": 0.4}
RANKED |= {"positive_temperature": 1.0, "negative_temperature": 3.0}
COLD = {"sharp": {"temperature": 0.001}}

of_batch("tuplet_margin", dot, tuplet_margin, TUPLET, sharp={"scale": 256.0})
of_matrix("tuplet_margin_from_similarity", "cosine", tuplet_margin, TUPLET)
of_batch("fast_ap", squared, fast_ap, {}, static={"bins": 7})
of_matrix("fast_ap_from_distance", "distance", fast_ap, {}, static={"bins": 10})
of_batch("smooth_ap", dot, smooth_ap, SMOOTH, **COLD)
of_batch("smooth_ap/include_self", dot, smooth_ap, SMOOTH, itself=True)
of_matrix("smooth_ap_from_similarity", "cosine", smooth_ap, SMOOTH)
of_batch("pnp", dot, pnp, PNP, static={"penalty": "O"}, **COLD)
of_batch("pnp/Iu", dot, pnp, PNP, static={"penalty": "Iu"}, itself=True)
of_matrix("pnp_from_similarity", "cosine", pnp, PNP, static={"penalty": "Ib"})
of_matrix("pnp_from_similarity/Ds", "cosine", pnp, PNP, static={"penalty": "Ds"})
of_matrix("pnp_from_similarity/Dq", "cosine", pnp, PNP, static={"penalty": "Dq"})
of_triplets("angular", 0.7)
of_triplets("angular/hinge, as they are", 0.6, form="hinge", normalize="none")
of_batch("histogram", dot, histogram, {}, static={"bins": 11}, step=1e-4)
of_matrix(
  "histogram_from_similarity", "cosine", histogram, {}, static={"bins": 11},
  devices=True, step=3e-5,
)  # fmt: skip
of_batch("ranked_list", distance, ranked_list, RANKED)
of_matrix("ranked_list_from_distance", "distance", ranked_list, RANKED)
