"""Means, maxima and powers between them, by loops."""

import numpy as np

from spherejax import pooling
from tests.pooling.cases._frame import Case


def channels(of):
  """An oracle that takes the list of one channel's values, and its number."""
  return lambda features, params: np.array(
    [of([float(x[k]) for x in features], k, params) for k in range(features.shape[1])]
  )


def simple(name):
  return lambda features, params, where: getattr(pooling, name)(
    features, **params, where=where
  )


def mean(values):
  return sum(values) / len(values)


def generalized(values, k, params):
  power = params["power"] if np.ndim(params["power"]) == 0 else params["power"][k]
  return mean([max(value, 1e-6) ** power for value in values]) ** (1 / power)


CASES = {
  "gap": Case(simple("gap"), channels(lambda v, k, p: mean(v)), degree=1),
  "gmp": Case(simple("gmp"), channels(lambda v, k, p: max(v)), degree=1),
  "gap_gmp": Case(
    simple("gap_gmp"), channels(lambda v, k, p: mean(v) + max(v)), degree=1
  ),
  "gem": Case(
    simple("gem"), channels(generalized), {"power": 2.5}, positive=True, degree=1
  ),
  "gem/channels": Case(
    simple("gem"), channels(generalized), {"power": np.array([0.5, 1.0, 3.0, 7.0])}
  ),
}
