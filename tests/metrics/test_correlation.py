"""The thesis's table of correlations, exact p-values, and Student's intervals."""

import itertools

import numpy as np
import pytest
from scipy import stats

from spherejax import metrics
from tests.test_errata import CHAPTER_5, columns

CIFAR, SVHN = map(columns, CHAPTER_5)
# Table 5.6, whose values are in `test_errata.py`: p of Pearson's value, p of Spearman's
# by the t distribution, and exact.
TABLE = [
  (CIFAR, "phi", [0.034, 0, 0.0167]),
  (CIFAR, "R2", [0.0009, 0, 0.0167]),
  (CIFAR, "d_DoV", [0.031, 0.188, 0.233]),
  (CIFAR, "rho", [0.143, 0.285, 0.35]),
  (SVHN, "phi", [0.012, 0.0048, 0.0167]),
  (SVHN, "R2", [0.0003, 0.0048, 0.0167]),
  (SVHN, "d_DoV", [0.0065, 0.042, 0.058]),
  (SVHN, "rho", [0.283, 0.468, 0.497]),
]


@pytest.mark.parametrize(("data", "name", "expected"), TABLE)
def test_correlations_of_the_thesis(data, name, expected):
  pair = data["MC, l2"], data[name]
  pearson = metrics.correlation(*pair)
  ranks = metrics.correlation(*pair, method="spearman")
  permuted = metrics.correlation(*pair, method="spearman", exact=True)
  assert permuted.value == ranks.value
  p_values = [each.p_value for each in (pearson, ranks, permuted)]
  np.testing.assert_allclose(p_values, expected, atol=1e-3)


def test_distances_in_two_norms_agree():
  for data, between in ((CIFAR, 0.9892), (SVHN, 0.9952)):
    pair = data["MC, l2"], data["MC, linf"]
    assert abs(metrics.correlation(*pair).value - between) < 1e-4
    assert abs(metrics.correlation(*pair, method="spearman").value - 1) < 1e-12


def test_larger_budgets_do_not_always_change_more():
  """Section 5.2 against its tables: of the standard network's values."""

  def changes(data, name):
    values = np.array(data[name])
    return np.abs(values[1:] - values[0])

  for name in ("D_inter", "d_DoV"):
    # SVHN: l2 of three budgets, then l-infinity of 8/255 and 12/255.
    assert changes(SVHN, name)[4] < changes(SVHN, name)[3]
  assert CIFAR["d_DoV"][2:4].tolist() == [76, 75]
  # In most cases it is so.
  larger = [changes(data, name)[:3] for data in (CIFAR, SVHN) for name in ("phi", "R2")]
  assert all((np.diff(values) > 0).all() for values in larger)


def test_against_scipy_with_ties():
  x = [1.0, 2.0, 2.0, 5.0, 7.0, 7.0, 9.0]
  y = [3.0, 1.0, 4.0, 4.0, 9.0, 6.0, 5.0]
  for method, peer in (("pearson", stats.pearsonr), ("spearman", stats.spearmanr)):
    found = metrics.correlation(x, y, method=method)
    np.testing.assert_allclose(found[:2], tuple(peer(x, y)), rtol=1e-10)
    u, v = (stats.rankdata(x), stats.rankdata(y)) if method == "spearman" else (x, y)
    u, v = u - np.mean(u), v - np.mean(v)
    at_least = [
      abs(u @ np.array(w)) >= abs(u @ v) - 1e-9 for w in itertools.permutations(v)
    ]
    exact = metrics.correlation(x, y, method=method, exact=True)
    np.testing.assert_allclose(exact.p_value, np.mean(at_least), rtol=1e-10)


def test_edges(unchecked):
  assert metrics.correlation([1, 2, 3], [2, 4, 6]).p_value == 0
  assert np.isnan(metrics.correlation([1, 2], [2, 4]).p_value)
  assert np.isnan(metrics.correlation([], [])[:2]).all()


@pytest.mark.parametrize("method", ["pearson", "spearman"])
def test_what_does_not_vary_has_no_correlation(method):
  flat, values = [0.1] * 3, [1, 2, 4]
  for pair in (flat, values), (values, flat), (flat, flat), ([1] * 3, values):
    assert np.isnan(metrics.correlation(*pair, method=method)[:2]).all()


def test_interval_by_hand():
  # s = 1, t_{0.975, 2} = 4.30265: 2 -+ 4.30265 / sqrt(3).
  interval = metrics.mean_interval(np.float32([1, 2, 3]))
  np.testing.assert_allclose(interval, [2, -0.484138, 4.484138, 3], rtol=1e-5)
  assert [type(field) for field in interval] == [float, float, float, int]
  assert metrics.mean_interval([0.3]) == (0.3, -np.inf, np.inf, 1)
  assert metrics.mean_interval([0.5, 0.5]) == (0.5, 0.5, 0.5, 2)
  for values in ([np.nan], [1.0, np.nan, 2.0]):
    assert np.isnan(metrics.mean_interval(values)[:3]).all()


def test_confidence_against_scipy():
  values = np.random.default_rng(0).normal(size=7)
  expected = stats.t.interval(0.8, 6, values.mean(), stats.sem(values))
  interval = metrics.mean_interval(values, confidence=0.8)
  np.testing.assert_allclose(interval[1:3], expected, rtol=1e-12)


def test_pairing_removes_what_runs_share():
  shared = np.array([0.1, 0.5, 0.9, 0.3])
  gain = np.array([0.02, 0.03, 0.025, 0.027])
  interval = metrics.paired_interval(shared + gain, shared)
  np.testing.assert_allclose(interval, metrics.mean_interval(gain), rtol=1e-10)


@pytest.mark.parametrize("confidence", [np.array([0.9, 0.95]), [0.9]])
def test_confidence_is_a_number(confidence, unchecked):
  for interval, samples in ((metrics.mean_interval, 1), (metrics.paired_interval, 2)):
    with pytest.raises(TypeError, match="confidence must be a static number, got"):
      interval(*[[1.0, 2.0, 3.0]] * samples, confidence=confidence)
