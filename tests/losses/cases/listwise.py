"""Losses that compare each positive with a whole list, by loops."""

import math

import jax.numpy as jnp
import numpy as np

from spherejax import losses
from tests.losses.cases._frame import LABELS, Case
from tests.losses.cases._parts import (
  dot,
  lse,
  matrix_of,
  pairs,
  project,
  softplus,
  squared,
)


def cosines(x):
  return matrix_of(dot, x, x)


def squares(x):
  return matrix_of(squared, x, x)


# --- formulas: of a matrix, the lists of each row, and the numbers ---


def tuplet_margin(s, near, far, p):
  values = np.zeros(len(s))
  for i in range(len(s)):
    for j in near[i]:
      square = 1 - s[i, j] ** 2
      sine = math.sqrt(square) if square > 1e-14 else 0.0  # duplicates
      own = s[i, j] * math.cos(p["margin"]) + sine * math.sin(p["margin"])
      values[i] += softplus(lse([p["scale"] * (s[i, n] - own) for n in far[i]]))
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


def pnp(s, near, far, p, penalty):
  b, a = p["steepness"], p["exponent"]
  functions = {
    "O": lambda r: r,
    "Iu": lambda r: (1 + r) * math.log(1 + r),
    "Ib": lambda r: (b * r - math.log(1 + b * r)) / b**2,
    "Ds": lambda r: math.log(1 + r),
    "Dq": lambda r: 1 - 1 / (1 + r) ** a,
  }
  values = np.zeros(len(s))
  for i in range(len(s)):
    for j in near[i]:
      r = sum(above(s[i, k] - s[i, j], p["temperature"]) for k in far[i])
      values[i] += functions[penalty](r) / len(near[i])
  return values


def histogram(s, near, far, p, bins):
  nodes = [-1 + 2 * k / bins for k in range(bins + 1)]
  positives, negatives = sum(map(len, near)), sum(map(len, far))
  if not positives or not negatives:
    return np.zeros(len(s))
  h_near = np.array([soft_histogram(s[i, near[i]], nodes) for i in range(len(s))])
  h_far = np.array([soft_histogram(s[i, far[i]], nodes) for i in range(len(s))])
  h_near, h_far = h_near / positives, h_far / negatives
  values = np.zeros(len(s))
  for i in range(len(s)):
    for r in range(bins + 1):
      for q in range(r + 1):
        values[i] += h_far[i, r] * h_near[:, q].sum() + h_far[:, r].sum() * h_near[i, q]
  return len(s) * values / 2


def ranked_list(d, near, far, p):
  inner = p["boundary"] - p["margin"]

  def mean(violations, temperature):
    kept = [v for v in violations if v > 0]
    weights = [math.exp(temperature * v) for v in kept]
    return sum(w * v for w, v in zip(weights, kept, strict=True)) / sum(weights, 1e-300)

  share, hot, cold = p["balance"], p["negative_temperature"], p["positive_temperature"]
  return [
    (1 - share) * mean([d[i, j] - inner for j in near[i]], cold)
    + share * mean([p["boundary"] - d[i, j] for j in far[i]], hot)
    for i in range(len(d))
  ]


def angular(x, labels, p, form="log", normalize="l2"):
  """From the triplets' vectors: this loss has no matrix form."""
  z = [project(row, normalize) for row in x]
  near, far = pairs(labels)
  t = math.tan(p["angle"]) ** 2
  values = np.zeros(len(x))
  for i in range(len(x)):
    for j in near[i]:
      if form == "hinge":
        middle = (z[i] + z[j]) / 2
        values[i] += sum(
          max(sum((z[i] - z[j]) ** 2) - 4 * t * sum((z[n] - middle) ** 2), 0)
          for n in far[i]
        )
        continue
      terms = [4 * t * (z[i] + z[j]) @ z[n] - 2 * (1 + t) * z[i] @ z[j] for n in far[i]]
      values[i] += softplus(lse(terms))
  return values


# --- cases ---


def label_case(loss, matrix, formula, params, include_self=False, sharp=(), **static):
  options = {"include_self": True} if include_self else {}

  def call(rows, labels, params, **more):
    return loss(rows["embeddings"], labels, **params, **static, **options, **more)

  def oracle(rows, labels, params):
    near, far = pairs(labels)
    if include_self:
      near = [[*row, i] for i, row in enumerate(near)]
    return formula(matrix(rows["embeddings"]), near, far, params, **static)

  return Case(call, oracle, params=params, blocks=True, devices=True, sharp=dict(sharp))


def matrix_case(loss, kind, formula, params, devices=False, **static):
  def call(rows, labels, params, **more):
    same = labels[:, None] == jnp.asarray(LABELS)[None]
    return loss(rows["matrix"], same, ~same, **params, **static, **more)

  def oracle(rows, labels, params):
    return formula(rows["matrix"], *pairs(labels, LABELS), params, **static)

  return Case(call, oracle, rows={"matrix": (kind, 10)}, params=params, devices=devices)


def angular_case(angle=0.7, **static):
  return Case(
    lambda rows, labels, params, **options: losses.angular(
      rows["embeddings"], labels, **params, **static, **options
    ),
    lambda rows, labels, params: angular(rows["embeddings"], labels, params, **static),
    params={"angle": angle},
    blocks=True,
    devices=True,
    sharp={"angle": 1.2},
  )


def euclidean(x):
  return np.sqrt(squares(x))


TUPLET = {"scale": 12.0, "margin": 0.1}
PNP = {"temperature": 0.2, "steepness": 2.0, "exponent": 0.7}
RANKED = {
  "boundary": 1.2,
  "margin": 0.4,
  "positive_temperature": 1.0,
  "negative_temperature": 3.0,
  "balance": 0.4,
}
SHARP = {"temperature": 0.001}

CASES = {
  "tuplet_margin": label_case(
    losses.tuplet_margin, cosines, tuplet_margin, TUPLET, sharp={"scale": 256.0}
  ),
  "tuplet_margin_from_similarity": matrix_case(
    losses.tuplet_margin_from_similarity, "cosine", tuplet_margin, TUPLET
  ),
  "fast_ap": label_case(losses.fast_ap, squares, fast_ap, {}, bins=7),
  "fast_ap_from_distance": matrix_case(
    losses.fast_ap_from_distance, "distance", fast_ap, {}, bins=10
  ),
  "smooth_ap": label_case(
    losses.smooth_ap, cosines, smooth_ap, {"temperature": 0.05}, sharp=SHARP
  ),
  "smooth_ap/include_self": label_case(
    losses.smooth_ap, cosines, smooth_ap, {"temperature": 0.05}, include_self=True
  ),
  "smooth_ap_from_similarity": matrix_case(
    losses.smooth_ap_from_similarity, "cosine", smooth_ap, {"temperature": 0.05}
  ),
  "pnp": label_case(losses.pnp, cosines, pnp, PNP, sharp=SHARP, penalty="O"),
  "pnp/Iu": label_case(losses.pnp, cosines, pnp, PNP, penalty="Iu", include_self=True),
  "pnp_from_similarity": matrix_case(
    losses.pnp_from_similarity, "cosine", pnp, PNP, penalty="Ib"
  ),
  "pnp_from_similarity/Ds": matrix_case(
    losses.pnp_from_similarity, "cosine", pnp, PNP, penalty="Ds"
  ),
  "pnp_from_similarity/Dq": matrix_case(
    losses.pnp_from_similarity, "cosine", pnp, PNP, penalty="Dq"
  ),
  "angular": angular_case(),
  "angular/hinge, as they are": angular_case(0.6, form="hinge", normalize="none"),
  "histogram": label_case(losses.histogram, cosines, histogram, {}, bins=11)._replace(
    step=1e-4
  ),
  "histogram_from_similarity": matrix_case(
    losses.histogram_from_similarity, "cosine", histogram, {}, devices=True, bins=11
  )._replace(step=3e-5),
  "ranked_list": label_case(losses.ranked_list, euclidean, ranked_list, RANKED),
  "ranked_list_from_distance": matrix_case(
    losses.ranked_list_from_distance, "distance", ranked_list, RANKED
  ),
}
