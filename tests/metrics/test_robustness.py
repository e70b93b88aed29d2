"""Curves of accuracy, separation of classes and the best accuracy, by brute force."""

import itertools

import numpy as np
import pytest

from spherejax import metrics

RANDOM = np.random.default_rng(0)
TOY = np.array(
  [[-1, -1], [-2, 1], [2, -2], [1, 1], [2, -1], [0, 0], [2, 1], [1, -1]], np.float32
)
CLASS = np.array([0, 0, 0, 0, 0, 1, 1, 1])


def test_curve():
  success = np.array([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1]], bool)
  np.testing.assert_allclose(metrics.accuracy_curve(success), [0.75, 0.5, 0.25])
  kept = np.array([True, False, True, True])
  np.testing.assert_allclose(
    metrics.accuracy_curve(success, where=kept), [1, 2 / 3, 1 / 3], rtol=1e-6
  )
  assert np.isnan(metrics.accuracy_curve(success, where=np.zeros(4, bool))).all()


def test_curve_from_distances():
  # The nearest-neighbour classifier of the toy set, whose ties go to the true class.
  minimal = np.float32([0.7071, 1.1180, 0.7071, 0.5, 0.5, 0.7071, 0.5, 0.5])
  curve = metrics.accuracy_curve_from_distances(
    minimal, np.float32([0.4, 0.6, 0.8, 1.2])
  )
  np.testing.assert_allclose(curve, [1, 0.5, 0.125, 0])
  # An infinite budget leaves what nothing breaks.
  ends = np.float32([1, np.inf])
  curve = metrics.accuracy_curve_from_distances(ends, ends)
  np.testing.assert_array_equal(curve, [0.5, 0])
  minimal, budgets = np.float32([0.0, 0.5, np.nan, 2.0, 9.0]), np.float32([0, 0.5, 3])
  where = np.array([True, True, False, True, False])
  masked = metrics.accuracy_curve_from_distances(minimal, budgets, where=where)
  np.testing.assert_allclose(masked, [2 / 3, 1 / 3, 0], rtol=1e-6)
  again = metrics.accuracy_curve_from_distances(minimal[where], budgets)
  np.testing.assert_array_equal(masked, again)
  nobody = metrics.accuracy_curve_from_distances(minimal, budgets, where=where & False)
  assert np.isnan(nobody).all()
  unknown = metrics.accuracy_curve_from_distances(minimal, budgets)
  assert np.isnan(unknown).all()  # one distance is NaN


ORDER = {"l1": 1, "l2": 2, "linf": np.inf}


def apart(x, norm):
  return np.linalg.norm(x[:, None] - x[None], ORDER[norm], axis=2)


@pytest.mark.parametrize("norm", ORDER)
def test_separation(norm):
  x = RANDOM.normal(size=(24, 3)).astype(np.float32)
  y = RANDOM.integers(0, 3, 24)
  d = apart(x, norm)
  np.fill_diagonal(d, np.inf)
  found = metrics.separation(x, y, norm=norm)
  np.testing.assert_allclose(found.nearest, d.min(1), rtol=1e-5)
  d[y[:, None] == y[None]] = np.inf
  np.testing.assert_allclose(found.nearest_other_class, d.min(1), rtol=1e-5)


def best_by_brute_force(x, y, budget, norm):
  clash = (apart(x, norm) <= 2 * budget) & (y[:, None] != y[None])
  sets = (np.flatnonzero(bits) for bits in itertools.product([0, 1], repeat=len(x)))
  return max(len(s) for s in sets if not clash[np.ix_(s, s)].any()) / len(x)


@pytest.mark.parametrize("norm", ORDER)
def test_best_accuracy(norm):
  budgets = np.array([0, 0.2, 0.5, 0.9, 3])
  for _ in range(3):
    x = RANDOM.normal(size=(9, 2)).astype(np.float32)
    y = RANDOM.integers(0, 2, 9)
    y[:2] = 0, 1
    expected = [best_by_brute_force(x.astype(np.float64), y, b, norm) for b in budgets]
    found = metrics.best_accuracy(x, y, budgets, norm=norm, block_size=4)
    np.testing.assert_allclose(found, expected)


def test_best_accuracy_of_the_toy_set():
  found = metrics.best_accuracy(TOY, CLASS, np.array([0.49, 0.5, 0.7, 0.7072, 9]))
  np.testing.assert_allclose(found, [1, 0.75, 0.75, 0.625, 0.625])
  np.testing.assert_allclose(metrics.best_accuracy(TOY, CLASS * 0, np.array([0, 9])), 1)


@pytest.mark.parametrize(
  ("budgets", "error", "message"),
  [
    ([0.1, np.nan], ValueError, "budgets must be at least 0, got nan"),
    ([0.1, -0.2], ValueError, "budgets must be at least 0, got -0.2"),
    ([0.1 + 1j], TypeError, "budgets must be real numbers, got dtype complex"),
    ([True], TypeError, "budgets must be real numbers, got dtype bool"),
  ],
)
def test_a_budget_is_at_least_zero(budgets, error, message, unchecked):
  budgets = np.array(budgets)
  with pytest.raises(error, match=message):
    metrics.accuracy_curve_from_distances(np.ones(2, np.float32), budgets)
