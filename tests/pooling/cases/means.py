"""Means, maxima and powers between them, in NumPy."""

import numpy as np

from tests.pooling.cases._frame import Case
from tests.pooling.cases._parts import call, mean


def generalized(x, params):
  return mean(np.maximum(x, 1e-6) ** params["power"]) ** (1 / params["power"])


POWERS = {"power": np.array([0.5, 1.0, 3.0, 7.0])}
CASES = {
  "gap": Case(call("gap"), lambda x, _: mean(x), degree=1),
  "gmp": Case(call("gmp"), lambda x, _: x.max(axis=0), degree=1),
  "gap_gmp": Case(call("gap_gmp"), lambda x, _: mean(x) + x.max(axis=0), degree=1),
  "gem": Case(call("gem"), generalized, {"power": 2.5}, positive=True, degree=1),
  "gem/channels": Case(call("gem"), generalized, POWERS),
}
