"""Poolings without parameters that weigh or choose, in NumPy."""

import numpy as np

from tests.pooling.cases._frame import Case
from tests.pooling.cases._parts import call, mean, sigmoid


def crow(features, params, soft=False):
  number, channels = features.shape
  order, root = params["norm_order"], params["root"]
  x = np.maximum(features, 0)
  totals = x.sum(axis=1)
  norm = (totals**order).sum() ** (1 / order)
  strengths = (totals / norm) ** (1 / root) if norm > 0 else 0 * totals
  shares, offset = mean(sigmoid(x) if soft else x > 0), 1e-16 if soft else 1e-6
  rarities = np.log((channels * offset + sum(shares)) / (offset + shares))
  return rarities * (strengths @ x) / (number if soft else 1)


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
    values = np.sort(features, axis=0)
    least = reduction(values[:lowest]) if lowest else 0
    return reduction(values[::-1][:highest]) + least

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
