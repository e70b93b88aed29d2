"""The distance-ratio transform against its formula."""

import math

import jax
import numpy as np

from spherejax import distances

SQUARES = np.random.default_rng(0).uniform(0.2, 4, (2, 3, 4))


def test_log_probabilities(x64):
  classes = np.array([True, True, False, True])
  values = distances.distance_ratio(
    np.where(classes, SQUARES, np.nan), exponent=1.7, offset=0.1, classes=classes
  )
  powers = (SQUARES + 0.1) ** (-1.7 / 2) * classes
  with np.errstate(divide="ignore"):
    right = np.log(powers / powers.sum(-1, keepdims=True))
  np.testing.assert_allclose(values, right, rtol=1e-12)
  each = np.broadcast_to(classes, SQUARES.shape).copy()
  each[0, 0] = False  # no class takes part
  values = distances.distance_ratio(SQUARES, exponent=1.7, offset=0.1, classes=each)
  right[0, 0] = -math.inf
  np.testing.assert_allclose(values, right, rtol=1e-12)


def test_gradient_is_that_of_the_equation(x64):
  """-(exponent / 2) (1[c = k] - p_k) / d_k^2."""
  d2 = SQUARES[0, 0]
  slopes = jax.jit(jax.jacobian(lambda d2: distances.distance_ratio(d2, exponent=3.0)))(
    d2
  )
  p = np.exp(distances.distance_ratio(d2, exponent=3.0))
  np.testing.assert_allclose(slopes, -1.5 * (np.eye(4) - p) / d2, rtol=1e-12)
