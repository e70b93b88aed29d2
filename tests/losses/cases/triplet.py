"""Triplet loss: every mining, hinge and softplus, label and matrix form."""

import numpy as np

from spherejax import losses
from tests.losses.cases._frame import LABELS, Case
from tests.losses.cases._parts import call, distance, matrix_of, pairs, squared


def mined(d, near, far, m, mining, fallback):
  """The triplets (p, q) of one anchor with distances `d`."""
  if mining == "batch_hard":
    if not (near and far):
      return []
    return [(max(near, key=lambda j: d[j]), min(far, key=lambda j: d[j]))]
  if mining == "semihard_one":
    chosen = []
    for p in near:
      farther = [q for q in far if d[q] > d[p]]
      if farther:
        chosen.append((p, min(farther, key=lambda j: d[j])))
      elif far and fallback == "easiest":
        chosen.append((p, max(far, key=lambda j: d[j])))
    return chosen
  every = [(p, q) for p in near for q in far]
  if mining == "all":
    return every
  violating = [(p, q) for p, q in every if d[q] - d[p] <= m]
  if mining == "violating":
    return violating
  if mining == "hard":
    return [(p, q) for p, q in violating if d[q] <= d[p]]
  return [(p, q) for p, q in violating if d[q] > d[p]]


def values(d, near, far, m, mining, fallback, soft, average):
  sums, count = np.zeros(len(d)), 0
  for a in range(len(d)):
    for p, q in mined(d[a], near[a], far[a], m, mining, fallback):
      term = d[a, p] - d[a, q] + m
      sums[a] += np.logaddexp(0, term) if soft else max(0, term)
      if soft or average == "all" or term > 0:
        count += 1
  return len(d) * sums / count if count else sums


DEFAULTS = {"mining": "all", "fallback": "skip", "soft": False, "average": "nonzero"}
MARGIN = {"margin": 0.37}


def label_case(mining="all", normalize="l2", square=False, **static):
  static = DEFAULTS | {"mining": mining} | static

  def oracle(rows, labels, params):
    x, measure = rows["embeddings"], squared if square else distance
    d = matrix_of(measure, x, x, normalize)
    return values(d, *pairs(labels), params["margin"], **static)

  loss = call("triplet", squared=square, normalize=normalize, **static)
  return Case(loss, oracle, params=MARGIN, blocks=True, devices=True)


def matrix_case(**static):
  static = DEFAULTS | static

  def loss(rows, labels, params, **options):
    same = labels[:, None] == LABELS[None]
    options |= static | params
    return losses.triplet_from_distance(rows["distances"], same, ~same, **options)

  def oracle(rows, labels, params):
    near, far = pairs(labels, LABELS)
    return values(rows["distances"], near, far, params["margin"], **static)

  return Case(loss, oracle, {"distances": ("distance", 10)}, MARGIN, devices=True)


# Mining compares distances: "none" makes those to zero rows equal in every arithmetic.
CASES = {
  "triplet": label_case(),
  "triplet/squared": label_case("all", "unit_ball", square=True, average="all"),
  "triplet/soft": label_case(soft=True),
  "triplet/violating": label_case("violating", "none", soft=True),
  "triplet/hard": label_case("hard", "none"),
  "triplet/semihard": label_case("semihard", "none", average="all"),
  "triplet/semihard_one": label_case("semihard_one", "none"),
  "triplet/semihard_one/easiest": label_case(
    "semihard_one", "none", fallback="easiest", soft=True
  ),
  "triplet/batch_hard": label_case("batch_hard", average="all"),
  "triplet/batch_hard/squared": label_case("batch_hard", square=True),
  "triplet_from_distance": matrix_case()._replace(step=1e-4),
  "triplet_from_distance/batch_hard": matrix_case(mining="batch_hard", soft=True),
}
