"""Singular values by blocks, re-weighted directions, and ranks, against NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from spherejax import metrics
from tests import programs

RANDOM = np.random.default_rng(0)
DIM = 8
FEATURES = np.float32(RANDOM.normal(size=(60, DIM)) * np.geomspace(1, 1e-4, DIM))


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
    moments = metrics.class_moments_update(start, new, y[:1297])
    return metrics.class_variance(moments).phi

  values = jax.jit(jax.vmap(phi))(np.float32([-0.5, 0, 0.5, 1, 1.25]))
  np.testing.assert_allclose(values, [2.64, 1.6742, 0.8059, 0.2473, 0.0838], atol=2e-4)


RNG = np.random.default_rng(0)
MATRICES = RNG.normal(size=(3, 9, 5)) * np.geomspace(1, 0.01, 5)


def singular_values(matrix):
  """From the eigenvalues of the smaller product, in float64."""
  a = np.asarray(matrix, np.float64)
  gram = a @ a.T if a.shape[0] < a.shape[1] else a.T @ a
  return np.sqrt(np.maximum(np.linalg.eigvalsh(gram)[::-1], 0))


def ranks_by_numpy(matrix, threshold, share):
  s = singular_values(matrix)
  above, relative = (s >= threshold).sum(), (s >= share * s[0]).sum()
  return above, relative, np.exp(stats.entropy(s)), np.log(s)


def ranks(matrix, threshold=0.4, share=0.05, **options):
  return (
    metrics.numerical_rank(matrix, threshold, **options),
    metrics.relative_rank(matrix, threshold=share, **options),
    metrics.effective_rank(matrix, **options),
    metrics.log_singular_values(matrix, **options),
  )


def close(actual, expected, rtol):
  for figure, other in zip(actual, expected, strict=True):
    np.testing.assert_allclose(figure, other, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("wide", [False, True])
def test_ranks_against_numpy(wide):
  matrices = np.swapaxes(MATRICES, 1, 2) if wide else MATRICES
  found = ranks(matrices.astype(np.float32))
  expected = [ranks_by_numpy(matrix, 0.4, 0.05) for matrix in matrices]
  close(found, [np.stack(x) for x in zip(*expected, strict=True)], 2e-5)
  assert found[0].dtype == found[1].dtype == jnp.int32
  assert found[2].dtype == found[3].dtype == jnp.float32


def test_ranks_in_float64_and_half_precision(x64):
  found = ranks(MATRICES[0])
  close(found, ranks_by_numpy(MATRICES[0], 0.4, 0.05), 1e-10)
  assert found[2].dtype == found[3].dtype == jnp.float64
  short = jnp.bfloat16(MATRICES[0])
  found = ranks(short)
  assert found[2].dtype == found[3].dtype == jnp.bfloat16
  expected = ranks_by_numpy(short.astype(np.float32), 0.4, 0.05)
  close([np.asarray(x, np.float64) for x in found], expected, 2e-2)
  assert found[0] == expected[0]


def test_ranks_of_masked_rows_are_as_of_deleted_ones():
  kept = np.array([True, False, True, True, True, False, True, True, True])
  hidden = np.where(kept[:, None], MATRICES[0], np.nan).astype(np.float32)
  deleted = MATRICES[0][kept].astype(np.float32)
  close(ranks(hidden, where=kept), ranks(deleted), 1e-5)
  centred = metrics.log_singular_values(hidden, centre=True, where=kept)
  expected = np.log(singular_values(deleted - deleted.mean(0)))
  np.testing.assert_allclose(centred, expected, rtol=2e-5, atol=2e-5)
  nobody = {"where": np.zeros(9, bool)}
  close(ranks(hidden, **nobody), (0, 0, 0, np.full(5, -np.inf)), 0)
  assert np.isneginf(metrics.log_singular_values(hidden, centre=True, **nobody)).all()


def test_ranks_of_zero_and_of_what_is_not_finite():
  close(ranks(np.zeros((4, 3), np.float32)), (0, 0, 0, np.full(3, -np.inf)), 0)
  for wrong in (np.nan, np.inf):
    matrix = MATRICES[:2].astype(np.float32)
    matrix[0, 2, 1] = wrong
    found = ranks(matrix)
    assert (found[0][0], found[1][0]) == (-1, -1)
    assert np.isnan(found[2][0])
    assert np.isnan(found[3][0]).all()
    close([x[1] for x in found], ranks(matrix[1]), 1e-6)


def test_a_threshold_is_reached_where_it_is_equal():
  matrix = np.diag([2.0, 1.0, 0.5]).astype(np.float32)
  assert metrics.numerical_rank(matrix, 1.0) == 2
  assert metrics.numerical_rank(matrix, 1.0001) == 1
  assert metrics.relative_rank(matrix, threshold=0.25) == 3
  assert metrics.relative_rank(matrix, threshold=1.0) == 1
  # A traced threshold of 0 cannot be refused; what is 0 has no rank all the same.
  zero = jax.jit(metrics.numerical_rank)(np.diag([1.0, 0.0]).astype(np.float32), 0.0)
  assert zero == 1


def test_effective_rank_where_it_is_known(x64):
  outer = np.outer(RNG.normal(size=7), RNG.normal(size=4))
  np.testing.assert_allclose(metrics.effective_rank(outer), 1, rtol=1e-10)
  # k equal singular values of more.
  half = np.diag([3.0, 3, 3, 0, 0])
  np.testing.assert_allclose(metrics.effective_rank(half), 3, rtol=1e-12)


def test_ranks_and_scale():
  matrix = MATRICES[0].astype(np.float32)
  for scale in (1e-30, 1e-3, 1e30):
    scaled = matrix * np.float32(scale)
    effective = [metrics.effective_rank(x) for x in (scaled, matrix)]
    np.testing.assert_allclose(*effective, rtol=1e-5)
    assert metrics.relative_rank(scaled) == metrics.relative_rank(matrix)
  assert metrics.numerical_rank(matrix, 0.1) == ranks_by_numpy(matrix, 0.1, 1)[0] == 3
  assert metrics.numerical_rank(matrix * np.float32(1e-3), 0.1) == 0


def test_small_singular_values_keep_their_digits():
  """One of 1e-5 of the largest, which the product of the matrix with itself loses."""
  left = np.linalg.qr(RNG.normal(size=(400, 3)))[0]
  right = np.linalg.qr(RNG.normal(size=(3, 3)))[0]
  matrix = ((left * [1, 0.1, 1e-5]) @ right).astype(np.float32)
  found = np.exp(metrics.log_singular_values(matrix))
  np.testing.assert_allclose(found[2], 1e-5, rtol=0.05)
  assert metrics.relative_rank(matrix, threshold=1e-6) == 3
  lost = np.linalg.eigvalsh(matrix.T @ matrix)[0]
  assert not np.isclose(np.sqrt(max(lost, 0)), 1e-5, rtol=0.5)


def test_many_rows_need_little_memory():
  rows = jax.ShapeDtypeStruct((50_000, 16), jnp.float32)
  assert programs.temporary_bytes(metrics.effective_rank, rows) < 4 * 50_000 * 16 * 4


def test_ranks_under_vmap():
  matrices = MATRICES.astype(np.float32)
  found = jax.jit(jax.vmap(metrics.effective_rank))(matrices)
  np.testing.assert_allclose(found, metrics.effective_rank(matrices), rtol=1e-6)
  thresholds = np.array([1e-3, 0.4, 100], np.float32)
  found = jax.jit(jax.vmap(metrics.numerical_rank, (None, 0)))(matrices[0], thresholds)
  expected = [ranks_by_numpy(matrices[0], t, 1)[0] for t in thresholds]
  np.testing.assert_array_equal(found, expected)
