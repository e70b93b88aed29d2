"""Poolings without parameters that weigh or choose, by loops."""

import numpy as np

from tests.pooling.cases._frame import Case
from tests.pooling.cases._parts import call, mean, sigmoid


def crow(features, params, soft=False, frozen=None):
  number, channels = features.shape
  order, root = params["norm_order"], params["root"]
  x = np.maximum(features, 0)
  totals = [sum(row) for row in x]
  norm = sum(total**order for total in totals) ** (1 / order)
  strengths = [(total / norm) ** (1 / root) if norm > 0 else 0 for total in totals]
  shares, offset = mean(sigmoid(x) if soft else x > 0), 1e-16 if soft else 1e-6
  rarities = np.log((channels * offset + sum(shares)) / (offset + shares))
  totals = sum(s * row for s, row in zip(strengths, x, strict=True))
  return rarities * totals / (number if soft else 1)


def gemax(features, params):
  """The normal equations of the smallest squared error, of the other system."""
  number, channels = features.shape
  if number < channels:
    system = features.T @ features + params["ridge"] * np.eye(channels)
    return np.linalg.inv(system) @ features.sum(axis=0)
  system = features @ features.T + params["ridge"] * np.eye(number)
  return features.T @ (np.linalg.inv(system) @ np.ones(number))


def weldon(highest, lowest, reduction=mean):
  def oracle(features, params):
    pooled = []
    for k in range(features.shape[1]):
      values = sorted(float(x[k]) for x in features)
      value = reduction(values[::-1][:highest])
      pooled.append(value + (reduction(values[:lowest]) if lowest else 0))
    return np.array(pooled)

  return oracle


CASES = {
  "crow": Case(
    call("crow"), crow, {"norm_order": 2.0, "root": 2.0}, positive=True, degree=1
  ),
  "crow/soft": Case(
    call("crow", soft=True),
    lambda features, params: crow(features, params, soft=True),
    {"norm_order": 3.0, "root": 1.5},
  ),
  "gemax": Case(call("gemax"), gemax, {"ridge": 0.8}),
  "gemax/wide": Case(call("gemax"), gemax, {"ridge": 0.5}, channels=8),
  "weldon": Case(call("weldon"), weldon(3, 3), degree=1),
  "weldon/sums": Case(
    call("weldon", num_highest=4, num_lowest=0, reduction="sum"),
    weldon(4, 0, sum),
    degree=1,
  ),
}
