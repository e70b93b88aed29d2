"""Generalized mean: limits, large powers, the floor."""

import jax
import jax.numpy as jnp
import numpy as np

from spherejax import pooling
from tests.losses.slopes import with_slopes

RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.normal(size=(2, 6, 3)).astype(np.float32)


def test_limits():
  clamped = np.maximum(FEATURES, 1e-6)
  powers = jnp.array([0.5, 1.0, 2.0, 4.0, 100.0, 1000.0])
  by_power = jax.jit(jax.vmap(lambda power: pooling.gem(FEATURES, power=power)))(powers)
  np.testing.assert_allclose(by_power[1], clamped.mean(1), rtol=1e-6)
  np.testing.assert_allclose(by_power[-1], clamped.max(1) * (1 / 6) ** 1e-3, rtol=1e-6)
  assert (jnp.diff(by_power, axis=0) > 0).all()


def test_large_powers_of_large_and_small_values_stay_finite():
  """x^100 overflows float32 at 2.4 and underflows at 0.4."""
  pool = with_slopes(lambda x: pooling.gem(x, power=100.0))
  for scale in (1e-4, 1e4):
    pooled, gradient = pool(scale * np.float32([[[1], [0.5]]]))
    expected = scale * ((1 + 0.5**100) / 2) ** 0.01
    np.testing.assert_allclose(pooled, expected, rtol=1e-6)
    np.testing.assert_allclose(gradient.ravel()[0], 0.5**0.01, rtol=1e-5)


def test_gradient_at_the_floor_the_mask_and_nothing_kept():
  features = jnp.array([[[-1.0], [0.0], [2.0]], [[1.0], [1.0], [1.0]]])
  where = jnp.array([[True, True, True], [False, False, False]])
  pool = lambda x, p: pooling.gem(x, power=p, where=where)  # noqa: E731
  assert pool(features, 3.0)[1] == 0
  gradient = jax.jit(jax.grad(lambda x, p: pool(x, p).sum(), (0, 1)))
  by_feature, by_power = gradient(features, 3.0)
  assert np.flatnonzero(by_feature).tolist() == [2]
  np.testing.assert_allclose(by_feature[0, 2, 0], (1 / 3) ** (1 / 3), rtol=1e-6)
  # d/dp of 2 (1/3)^(1/p)
  np.testing.assert_allclose(by_power, 2 * 3 ** (-1 / 3) * np.log(3) / 9, rtol=1e-5)


def test_features_that_are_not_numbers_stay_so():
  features = jnp.asarray(FEATURES).at[0, 2, 1].set(jnp.nan)
  expected = [[False, True, False], [False] * 3]
  np.testing.assert_array_equal(jnp.isnan(pooling.gem(features)), expected)
  zero = jnp.zeros((3, 3))
  attended = pooling.solar(features, zero, zero, zero, zero)
  assert jnp.isnan(attended[0]).all()  # all have attended to the position
  assert jnp.isfinite(attended[1]).all()
