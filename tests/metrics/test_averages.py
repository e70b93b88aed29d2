"""Averages over what counts."""

import jax
import jax.numpy as jnp
import numpy as np

from spherejax import metrics


def test_mean_ignores_what_is_masked_and_sums_half_types_in_float32():
  values = jnp.array([1.0, jnp.nan, 4.0, -2.0])
  where = jnp.array([True, False, True, False])
  assert metrics.mean_where(values, where) == 2.5
  gradient = jax.grad(metrics.mean_where)(values, where)
  np.testing.assert_array_equal(gradient, [0.5, 0, 0.5, 0])
  matrix = jnp.arange(6.0).reshape(2, 3)
  assert metrics.mean_where(matrix, matrix > 1) == 3.5
  ones = jnp.ones(3000, jnp.bfloat16)  # a running bfloat16 sum stops at 256
  mean = metrics.mean_where(ones, ones > 0)
  assert (mean, mean.dtype) == (1, jnp.bfloat16)


def test_mean_of_nothing_is_nan_without_a_warning_in_the_gradient():
  none = jnp.zeros(3, bool)
  assert np.isnan(metrics.mean_where(jnp.ones(3), none))
  np.testing.assert_array_equal(jax.grad(metrics.mean_where)(jnp.ones(3), none), 0)
  assert np.isnan(metrics.class_balanced_mean(jnp.ones(3), jnp.arange(3), where=none))
  assert np.isnan(metrics.class_balanced_mean(jnp.ones(0), jnp.ones(0, int)))


def test_class_balanced_mean_against_a_loop():
  rng = np.random.default_rng(0)
  for _ in range(20):
    values = rng.normal(size=15)
    labels = rng.integers(-3, 3, 15)
    where = rng.random(15) < 0.6
    means = [values[(labels == c) & where].mean() for c in np.unique(labels[where])]
    values[~where] = np.nan
    mean = metrics.class_balanced_mean(np.float32(values), labels, where=where)
    np.testing.assert_allclose(mean, np.mean(means), rtol=2e-5, atol=1e-6)
