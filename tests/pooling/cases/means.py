"""Means, maxima and powers between them, by loops."""

import numpy as np

from tests.pooling.cases._frame import Case
from tests.pooling.cases._parts import call, mean


def channels(of):
  """An oracle that takes the list of one channel's values, and its number."""
  return lambda features, params: np.array(
    [of([float(x[k]) for x in features], k, params) for k in range(features.shape[1])]
  )


def generalized(values, k, params):
  power = params["power"] if np.ndim(params["power"]) == 0 else params["power"][k]
  return mean([max(value, 1e-6) ** power for value in values]) ** (1 / power)


CASES = {
  "gap": Case(call("gap"), channels(lambda v, k, p: mean(v)), degree=1),
  "gmp": Case(call("gmp"), channels(lambda v, k, p: max(v)), degree=1),
  "gap_gmp": Case(
    call("gap_gmp"), channels(lambda v, k, p: mean(v) + max(v)), degree=1
  ),
  "gem": Case(
    call("gem"), channels(generalized), {"power": 2.5}, positive=True, degree=1
  ),
  "gem/channels": Case(
    call("gem"), channels(generalized), {"power": np.array([0.5, 1.0, 3.0, 7.0])}
  ),
}
