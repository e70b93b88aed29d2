"""Singular values by blocks against NumPy, and re-weighted directions."""

import functools

import jax
import numpy as np
import pytest

from spherejax import metrics

RANDOM = np.random.default_rng(0)
DIM = 8
FEATURES = (RANDOM.normal(size=(60, DIM)) * np.geomspace(1, 1e-4, DIM)).astype(
  np.float32
)


@functools.partial(jax.jit, static_argnames=("components", "power"))
def measure(features, where, components=None, power=1):
  state = metrics.triangle_init(DIM)
  for rows in np.split(np.arange(60), 5):
    state = metrics.triangle_update(state, features[rows], where=where[rows])
  return metrics.spectrum(state, components=components, power=power)


def by_numpy(features, m, power=1):
  s = np.linalg.svd(features.astype(np.float64), compute_uv=False)[:m]
  shares = s / s.sum()
  powers = s**power / (s**power).sum()
  return shares, -np.log(m) - np.log(shares).mean(), (powers * m > 1 + 1e-6).sum()


ALL = np.ones(60, bool)


@pytest.mark.parametrize(("components", "power"), [(None, 1), (8, 1), (None, 2)])
def test_spectrum(components, power):
  kept = RANDOM.random(60) < 0.8
  found = measure(np.where(kept[:, None], FEATURES, np.nan), kept, components, power)
  m = components or DIM - 1
  shares, rho, density = by_numpy(FEATURES[kept], m, power)
  # The smallest is a ten-thousandth of the largest: F^T F would lose it in float32.
  np.testing.assert_allclose(found.values, shares, rtol=2e-3)
  np.testing.assert_allclose(found.values[:4], shares[:4], rtol=1e-5)
  np.testing.assert_allclose(found.rho, rho, rtol=2e-4)
  assert found.density == density


def test_rho_of_all_components_is_the_printed_one():
  shares = np.linalg.svd(FEATURES.astype(np.float64), compute_uv=False)
  shares /= shares.sum()
  printed = (np.log(1 / DIM / shares) / DIM).sum()
  np.testing.assert_allclose(measure(FEATURES, ALL, DIM).rho, printed, rtol=2e-4)
  assert measure(FEATURES, ALL).rho < printed - 0.1


def test_spectrum_of_few_rows_of_flat_and_of_collapsed_features():
  few = np.arange(60) < 5
  found = measure(FEATURES, few)
  np.testing.assert_allclose(found.rho, by_numpy(FEATURES[few], 5)[1], rtol=1e-3)
  assert (np.asarray(found.values[5:]) == 0).all()
  # As flat as re-weighting in float32 makes it.
  nearly = np.diag(np.linspace(1 - 2e-5, 1 + 2e-5, DIM))
  found = measure(np.concatenate([nearly, np.zeros((52, DIM))]).astype(np.float32), ALL)
  np.testing.assert_allclose(found.rho, 0, atol=1e-6)
  assert found.density == 0
  found = measure(FEATURES[:1].repeat(60, 0), ALL)
  assert np.isposinf(found.rho)
  assert found.density == 1


@jax.jit
def apply(features, principal, exponent, weights):
  return metrics.reweight(features, principal, exponent=exponent, weights=weights)


def test_reweighting():
  x = FEATURES + np.float32(1)
  x[:, -1] = x[:, 0]  # rank DIM - 1
  principal = metrics.principal_axes(x)
  ones = np.ones(DIM, np.float32)
  centred = x - x.mean(0)
  np.testing.assert_allclose(apply(x, principal, 0.0, ones), centred, atol=2e-6)
  flat = np.asarray(apply(x, principal, 1.0, ones), np.float64)
  # The smallest true direction carries rounding of the features around 1.
  s = np.linalg.svd(flat, compute_uv=False)
  np.testing.assert_allclose(s[:5] / s[0], 1, rtol=1e-2)
  assert s[-1] < 1e-4 * s[0]
  first = np.float32(np.arange(DIM) < 2)
  once = apply(x, principal, 0.0, first)
  u = np.linalg.svd(centred.astype(np.float64))[2][:2]
  np.testing.assert_allclose(once, centred @ u.T @ u, atol=1e-5)
  again = apply(np.asarray(once) + principal.mean[None], principal, 0.0, first)
  np.testing.assert_allclose(again, once, atol=2e-6)
  same = metrics.reweight(x, principal, keep_mean=True)
  np.testing.assert_allclose(same, x, atol=2e-6)


def test_figures_of_digits():
  """Down-weighting the leading directions of pixels lowers phi."""
  x, y = pytest.importorskip("sklearn.datasets").load_digits(return_X_y=True)
  x = (x[:1297] / 16).astype(np.float32)
  principal = metrics.principal_axes(x)

  def phi(exponent):
    new = metrics.reweight(x, principal, exponent=exponent)
    start = metrics.class_moments_init(10, 64)
    return metrics.class_variance(
      metrics.class_moments_update(start, new, y[:1297])
    ).phi

  values = jax.jit(jax.vmap(phi))(np.float32([-0.5, 0, 0.5, 1, 1.25]))
  np.testing.assert_allclose(values, [2.64, 1.6742, 0.8059, 0.2473, 0.0838], atol=2e-4)
