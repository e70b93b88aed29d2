"""Regression of norms on counts, against statsmodels."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats

from spherejax import metrics
from spherejax.metrics import _student

regression = metrics.norm_count_regression
ROWS = 96


def sample(seed, slope=0.3, bend=-0.02, low=1):
  """Norms whose scatter grows with the count; one count occurs once, two never."""
  rng = np.random.default_rng(seed)
  counts = rng.choice([1, 2, 3, 5, 6, 7, 8, 9], ROWS)
  counts[:2] = 1, 11
  noise = (0.2 + 0.05 * counts) * rng.normal(size=ROWS)
  norms = 2 + slope * counts + bend * counts**2 + noise
  return norms, counts + low - 1


def variance(v, counts, c):
  """Variance of one count; pooled where it has one row, or rows without scatter."""
  own = v[counts == c]
  if len(own) > 1 and own.var(ddof=1) > 0:
    return own.var(ddof=1)
  parts = [v[counts == k] for k in np.unique(counts)]
  squares = sum(((p - p.mean()) ** 2).sum() for p in parts)
  return squares / sum(len(p) - 1 for p in parts)


def oracle(norms, counts, covariance="estimated", standardize=True):
  """statsmodels' weighted least squares, and a test of a linear function of b."""
  v = (norms - norms.mean()) / norms.std(ddof=1) if standardize else norms
  weights: Any = 1 / np.array([variance(v, counts, c) for c in counts])  # not a float
  design = np.stack([np.ones(len(v)), counts, counts**2], axis=1).astype(float)
  model = sm.WLS(v, design, weights=weights)
  known = covariance == "known"
  fit = model.fit(use_t=not known)
  exact = np.linalg.inv(design.T @ (weights[:, None] * design))
  cov = exact if known else fit.cov_params()
  points = np.linspace(counts.min(), counts.max(), 5)[1:4]
  rows = np.stack([np.zeros(3), np.ones(3), 2 * points], axis=1)
  tests = [fit.t_test(row, cov_p=cov) for row in rows]
  two_sided = np.array([float(t.pvalue) for t in tests])
  slopes = rows @ fit.params
  return {
    "coefficients": fit.params,
    "covariance": cov,
    "points": points,
    "slopes": slopes,
    "standard_errors": np.array([float(np.squeeze(t.sd)) for t in tests]),
    "p_values": np.where(slopes > 0, two_sided / 2, 1 - two_sided / 2),
  }


@pytest.mark.parametrize("covariance", ["estimated", "known"])
@pytest.mark.parametrize("standardize", [True, False])
def test_statsmodels_finds_the_same(covariance, standardize, x64):
  options = {"covariance": covariance, "standardize": standardize}
  # Rising everywhere, falling at last, hardly rising at all.
  for seed, slope, bend in ((0, 0.3, -0.02), (1, 0.2, -0.02), (2, 0.01, 0.0)):
    norms, counts = sample(seed, slope, bend)
    found = regression(norms, counts, **options)
    expected = oracle(norms, counts, **options)
    assert bool(found.valid)
    for name, value in expected.items():
      result = getattr(found, name)
      np.testing.assert_allclose(result, value, rtol=1e-9, atol=1e-11, err_msg=name)
    log_p = np.log(expected["p_values"])
    np.testing.assert_allclose(found.log_p_values, log_p, rtol=1e-8, atol=1e-10)


def test_groups_have_their_counts_sizes_and_deviations(x64):
  norms, counts = sample(0)
  groups = regression(norms, counts, standardize=False)
  values, sizes = np.unique(counts, return_counts=True)
  deviations = [np.sqrt(variance(norms, counts, c)) for c in values]
  # A group for each row, most of them empty.
  empty = [(0, ROWS - len(values))]
  np.testing.assert_array_equal(groups.counts[: len(values)], values)
  np.testing.assert_array_equal(groups.sizes, np.pad(sizes, empty))
  deviations = np.pad(deviations, empty, constant_values=np.nan)
  np.testing.assert_allclose(groups.deviations, deviations, rtol=1e-12)


def test_single_precision_and_many_at_once():
  drawn = [sample(seed, low=low) for seed, low in ((0, 1), (1, 1001), (2, 1))]
  norms, counts = (np.stack(x) for x in zip(*drawn, strict=True))
  found = jax.jit(jax.vmap(regression))(np.float32(norms), counts)
  assert found.slopes.dtype == jnp.float32
  for row in range(3):
    expected = oracle(norms[row], counts[row] - counts[row].min())
    for name in ("slopes", "standard_errors"):
      np.testing.assert_allclose(getattr(found, name)[row], expected[name], rtol=2e-4)
    log_p = np.log(expected["p_values"])
    np.testing.assert_allclose(found.log_p_values[row], log_p, rtol=2e-3, atol=1e-4)


def test_masked_rows_are_as_if_deleted(x64):
  norms, counts = sample(4)
  kept = np.random.default_rng(0).random(ROWS) < 0.7
  holes, wrong = np.where(kept, norms, np.nan), np.where(kept, counts, -9)
  found = regression(holes, wrong, where=kept)
  expected = oracle(norms[kept], counts[kept])
  for name, value in expected.items():
    np.testing.assert_allclose(getattr(found, name), value, rtol=1e-9, atol=1e-11)
  values = np.unique(counts[kept])
  np.testing.assert_array_equal(found.counts[: len(values)], values)
  assert int(found.sizes.sum()) == kept.sum()
  rho = metrics.norm_count_correlation(holes, wrong, where=kept)
  expected = np.corrcoef(norms[kept], counts[kept])[0, 1]
  np.testing.assert_allclose(rho, expected, rtol=1e-12)


def test_norms_without_noise():
  counts = np.tile(np.arange(1, 17), 6)
  flat = regression(np.full(ROWS, 0.3, np.float32), counts)
  np.testing.assert_array_equal(flat.slopes, 0)
  np.testing.assert_array_equal(flat.standard_errors, 0)
  np.testing.assert_array_equal(flat.p_values, 0.5)
  # A hill with its top at 8.5, the middle.
  hill = (40 - (counts - 8.5) ** 2 / 4).astype(np.float32)
  for covariance in ("estimated", "known"):
    found = regression(hill, counts, standardize=False, covariance=covariance)
    np.testing.assert_allclose(found.slopes, [1.875, 0, -1.875], atol=1e-5)
    assert np.max(found.standard_errors) < 1e-5
    np.testing.assert_array_equal(found.p_values[np.array([0, 2])], [0, 1])
    assert bool(found.valid)


def test_what_is_not_identifiable_is_not_valid():
  norms, counts = sample(5)
  norms, once = norms.astype(np.float32), np.arange(ROWS)
  every = once >= 0
  for label, values, n, where in (
    ("counts that agree", norms, np.full(ROWS, 4), every),
    ("two counts", norms, counts % 2, every),
    ("a norm that is NaN", np.where(once == 3, np.nan, norms), counts, every),
    ("three rows", norms, once, once < 3),
    ("no row", norms, counts, ~every),
  ):
    result = regression(values, n, where=where)
    assert not bool(result.valid), label
    for name in ("coefficients", "slopes", "standard_errors", "p_values"):
      assert np.isnan(getattr(result, name)).all(), (label, name)
  # No count twice: nothing tells the variances.
  assert not bool(regression(norms, once, covariance="known").valid)
  assert bool(regression(norms, once, where=every).valid)
  # What does not vary has no correlation.
  for v, c in ((0 * norms + np.float32(0.1), counts), (norms, 0 * counts + 3)):
    assert np.isnan(metrics.norm_count_correlation(v, c))


def test_tails_of_students_distribution(x64):
  at, freedom = np.meshgrid(
    [-30, -2, -0.4, 0, 0.4, 1.2, 1.8, 2.5, 6, 30], [1, 2, 7, 17, 30, 997, 9997]
  )
  at, freedom = at.ravel().astype(float), freedom.ravel().astype(float)
  survival = jax.jit(_student.log_student_survival)
  expected = stats.t.logsf(at, freedom)
  np.testing.assert_allclose(survival(at, freedom), expected, rtol=1e-10, atol=1e-13)
  # Far out, where scipy's value underflows: the leading term of the tail for one
  # degree of freedom, 1 / (pi t), and infinity itself.
  far = survival(np.array([1e150, np.inf, -np.inf]), np.array([1.0, 5.0, 5.0]))
  np.testing.assert_allclose(far[0], -np.log(np.pi) - 150 * np.log(10), rtol=1e-12)
  np.testing.assert_array_equal(far[1:], [-np.inf, 0])


@pytest.mark.parametrize("norm", [1.7, 0.3, 1e6])
def test_norms_that_are_equal_have_no_slope_as_they_are(norm):
  counts = jnp.arange(40) % 8 + 1
  norms = jnp.full(40, norm).at[3].set(jnp.nan)
  where = jnp.arange(40) != 3
  found = regression(norms, counts, standardize=False, where=where)
  assert found.valid
  np.testing.assert_array_equal(found.slopes, 0)
  np.testing.assert_array_equal(found.p_values, 0.5)
  np.testing.assert_allclose(found.coefficients, [norm, 0, 0], rtol=1e-6)
