"""Triplet loss: every mining, hinge and softplus, label and matrix form."""

import numpy as np

from tests.losses.cases._parts import against_batch, against_itself, distance, squared


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
  rules = {
    "all": lambda gap: True,
    "violating": lambda gap: gap <= m,
    "hard": lambda gap: gap <= min(m, 0),
    "semihard": lambda gap: 0 < gap <= m,
  }
  return [(p, q) for p, q in every if rules[mining](d[q] - d[p])]


def values(d, near, far, params, mining, fallback, soft, average):
  sums, count = np.zeros(len(d)), 0
  for a in range(len(d)):
    columns = (np.flatnonzero(mask[a]).tolist() for mask in (near, far))
    for p, q in mined(d[a], *columns, params["margin"], mining, fallback):
      term = d[a, p] - d[a, q] + params["margin"]
      sums[a] += np.logaddexp(0, term) if soft else max(0, term)
      if soft or average == "all" or term > 0:
        count += 1
  return len(d) * sums / count if count else sums


DEFAULTS = {"mining": "all", "fallback": "skip", "soft": False, "average": "nonzero"}
MARGIN = {"margin": 0.37}


def label_case(mining="all", normalize="l2", square=False, **static):
  static = DEFAULTS | {"mining": mining} | static
  measure = squared if square else distance
  options = {"squared": square, "normalize": normalize}
  return against_itself("triplet", measure, values, MARGIN, static, options)


def matrix_case(step=2e-4, **static):
  name, static = "triplet_from_distance", DEFAULTS | static
  contract = {"devices": True, "step": step}
  return against_batch(name, "distance", values, MARGIN, static, **contract)


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
  "triplet_from_distance": matrix_case(step=1e-4),
  "triplet_from_distance/batch_hard": matrix_case(mining="batch_hard", soft=True),
}
