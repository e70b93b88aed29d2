"""Losses that compare each positive with a whole list."""

import numpy as np

from tests.losses.cases._frame import Case
from tests.losses.cases._pair_formulas import active
from tests.losses.cases._parts import (
  against_batch,
  against_itself,
  call,
  distance,
  dot,
  lse,
  matrix_of,
  pairs,
  project,
  softplus,
  squared,
)

# --- formulas: of a matrix, the masks of its pairs, and the numbers ---


def tuplet_margin(s, near, far, p):
  square = 1 - s**2
  sine = np.sqrt(np.where(square > 1e-14, square, 0))  # duplicates
  turned = s * np.cos(p["margin"]) + sine * np.sin(p["margin"])
  terms = p["scale"] * (s[:, None] - turned[..., None])  # [anchors, positives, others]
  return (near * softplus(lse(terms, far[:, None]))).sum(1)


def soft_histograms(values, among, nodes):
  """[rows, nodes]: how much of some values of each row lies at each node."""
  gaps = np.abs(np.clip(values, nodes[0], nodes[-1])[..., None] - nodes)
  shares = np.maximum(0, 1 - gaps / (nodes[1] - nodes[0]))
  return (among[..., None] * shares).sum(1)


def over_positives(terms, near):
  return (near * terms).sum(1) / np.maximum(near.sum(1), 1)


def fast_ap(d, near, far, p, bins):
  nodes = 4 * np.arange(bins + 1) / bins
  positives, every = (soft_histograms(d, x, nodes) for x in (near, near | far))
  closer, total = positives.cumsum(1), every.cumsum(1)
  missed = positives * (1 - closer / np.where(total > 0, total, 1))
  return missed.sum(1) / np.maximum(near.sum(1), 1)


def above(s, among, p):
  """[rows, entries]: how many of some entries of the row are more similar, softly."""
  leads = (s[:, None] - s[..., None]) / p["temperature"]
  return (among[:, None] / (1 + np.exp(-np.clip(leads, -500, 500)))).sum(2)


def smooth_ap(s, near, far, p):
  # An entry is half above itself.
  positives, negatives = above(s, near, p) + 0.5, above(s, far, p)
  return over_positives(negatives / (positives + negatives), near)


PENALTIES = {
  "O": lambda r, b, a: r,
  "Iu": lambda r, b, a: (1 + r) * np.log(1 + r),
  "Ib": lambda r, b, a: (b * r - np.log(1 + b * r)) / b**2,
  "Ds": lambda r, b, a: np.log(1 + r),
  "Dq": lambda r, b, a: 1 - 1 / (1 + r) ** a,
}


def pnp(s, near, far, p, penalty):
  penalties = PENALTIES[penalty](above(s, far, p), p["steepness"], p["exponent"])
  return over_positives(penalties, near)


def histogram(s, near, far, p, bins):
  if not near.any() or not far.any():
    return np.zeros(len(s))
  nodes = -1 + 2 * np.arange(bins + 1) / bins
  h_near, h_far = (soft_histograms(s, x, nodes) / x.sum() for x in (near, far))
  below = h_near.cumsum(1)
  return len(s) * (h_far @ below.sum(0) + below @ h_far.sum(0)) / 2


def ranked_list(d, near, far, p):
  def mean(violations, among, temperature):
    weights = active(np.exp(temperature * violations), among & (violations > 0))
    return (weights * violations).sum(1) / (weights.sum(1) + 1e-300)

  inner, share = p["boundary"] - p["margin"], p["balance"]
  pull = mean(d - inner, near, p["positive_temperature"])
  push = mean(p["boundary"] - d, far, p["negative_temperature"])
  return (1 - share) * pull + share * push


def angular(x, labels, p, form="log", normalize="l2"):
  """From the triplets' vectors: this loss has no matrix form."""
  z = project(x, normalize)
  near, far = pairs(labels)
  t, sums = np.tan(p["angle"]) ** 2, z[:, None] + z  # of anchors and positives
  if form == "hinge":
    terms = matrix_of(squared, z, z, "none")[..., None]
    terms = terms - 4 * t * squared(sums[:, :, None] / 2, z)
    return (near[..., None] * active(terms, far[:, None])).sum((1, 2))
  terms = 4 * t * sums @ z.T - 2 * (1 + t) * (z @ z.T)[..., None]
  return (near * softplus(lse(terms, far[:, None]))).sum(1)


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
