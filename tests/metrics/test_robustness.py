"""Accuracy curves, separation, the best accuracy, and hulls, by brute force."""

import functools
import itertools

import numpy as np
import pytest

from spherejax import metrics
from tests import refusals
from tests.balls import NORMS, lengths

RANDOM = np.random.default_rng(0)
# Reconstructed from figures 1 and 2 of article III.
TOY = np.float32([[-1, -1], [-2, 1], [2, -2], [1, 1], [2, -1], [0, 0], [2, 1], [1, -1]])
CLASS = np.array([0, 0, 0, 0, 0, 1, 1, 1])
curve_of = metrics.accuracy_curve_from_distances


def test_curve():
  success = np.array([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1]], bool)
  np.testing.assert_allclose(metrics.accuracy_curve(success), [0.75, 0.5, 0.25])
  kept = np.array([True, False, True, True])
  masked = metrics.accuracy_curve(success, where=kept)
  np.testing.assert_allclose(masked, [1, 2 / 3, 1 / 3], rtol=1e-6)
  assert np.isnan(metrics.accuracy_curve(success, where=np.zeros(4, bool))).all()


def test_curve_from_distances():
  # The nearest-neighbour classifier of the toy set, whose ties go to the true class.
  minimal = np.float32([0.7071, 1.1180, 0.7071, 0.5, 0.5, 0.7071, 0.5, 0.5])
  curve = curve_of(minimal, np.float32([0.4, 0.6, 0.8, 1.2]))
  np.testing.assert_allclose(curve, [1, 0.5, 0.125, 0])
  # An infinite budget leaves what nothing breaks.
  ends = np.float32([1, np.inf])
  np.testing.assert_array_equal(curve_of(ends, ends), [0.5, 0])
  minimal, budgets = np.float32([0.0, 0.5, np.nan, 2.0, 9.0]), np.float32([0, 0.5, 3])
  where = np.array([True, True, False, True, False])
  masked = curve_of(minimal, budgets, where=where)
  np.testing.assert_allclose(masked, [2 / 3, 1 / 3, 0], rtol=1e-6)
  np.testing.assert_array_equal(masked, curve_of(minimal[where], budgets))
  assert np.isnan(curve_of(minimal, budgets, where=where & False)).all()
  assert np.isnan(curve_of(minimal, budgets)).all()  # a distance is NaN


def apart(x, norm):
  return lengths(x[:, None] - x[None], norm)


@pytest.mark.parametrize("norm", NORMS)
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


@pytest.mark.parametrize("norm", NORMS)
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
  ("budgets", "message"),
  [
    ([0.1, np.nan], "budgets must be at least 0, got nan"),
    ([0.1, -0.2], "budgets must be at least 0, got -0.2"),
    ([0.1 + 1j], "TypeError: budgets must be real numbers, got dtype complex"),
    ([True], "TypeError: budgets must be real numbers, got dtype bool"),
  ],
)
def test_a_budget_is_at_least_zero(budgets, message, unchecked):
  given = np.ones(2, np.float32), np.array(budgets)
  refusals.check(functools.partial(curve_of, *given), message)


SQUARE = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_hulls_by_hand(scale):
  def meets(a, b):
    a, b = scale * np.array(a), scale * np.array(b)
    assert metrics.hulls_intersect(a, b) == metrics.hulls_intersect(b, a)
    return metrics.hulls_intersect(a, b)

  assert meets(SQUARE, SQUARE + 0.5)
  assert meets(SQUARE, [[0.5, 0.5]])  # a point inside, no vertex of either shared
  assert meets(SQUARE, [[-1.0, 0.4], [2.0, 0.6]])  # a segment right through
  assert meets(SQUARE, SQUARE + 1)  # one corner in common
  assert not meets(SQUARE, np.add(SQUARE, (1.001, 0)))
  # Boxes overlap, hulls do not: the corner beyond the diagonal.
  assert not meets(SQUARE[:3], [[0.52, 0.52], [1.0, 1.0]])
  for other in (SQUARE, SQUARE[:0]):
    assert not meets(SQUARE[:0], other)  # the hull of no point

  def between(a, b):
    return metrics.hull_distance(scale * np.array(a), scale * np.array(b)) / scale

  assert between(SQUARE, np.add(SQUARE, (3, 0))) == pytest.approx(2)
  assert between(SQUARE, np.add(SQUARE, (4, 5))) == pytest.approx(5)  # two corners
  assert between(SQUARE[:3], [[1.0, 1.0], [3.0, 3.0]]) == pytest.approx(0.5**0.5)
  assert between(SQUARE, SQUARE + 0.5) == pytest.approx(0, abs=1e-9)
  assert between(SQUARE, SQUARE + 1) == pytest.approx(0, abs=1e-9)
  assert between([[0.0, 0.0]], [[0.0, 0.0]]) == 0


def random_sets(seed, rows, farthest):
  """Pairs of sets in the plane, and the gap between them along some direction."""
  rng = np.random.default_rng(seed)
  angles = np.linspace(0, 2 * np.pi, 3601)
  directions = np.stack([np.cos(angles), np.sin(angles)])
  for _ in range(40):
    a, b = rng.normal(size=(2, rows, 2)) + rng.uniform(0, farthest, (2, 1, 2))
    yield a, b, ((a @ directions).min(0) - (b @ directions).max(0)).max()


def test_random_sets_meet_where_no_direction_separates_them():
  """In the plane some edge normal separates two hulls that do not meet."""
  # A grid of directions cannot decide the rest.
  sets = [each for each in random_sets(0, 4, 1.5) if abs(each[2]) > 0.01]
  for a, b, gap in sets:
    assert metrics.hulls_intersect(a, b) == (gap < 0)
  assert {gap < 0 for *_, gap in sets} == {True, False}


def test_distances_are_gaps_between_separating_lines():
  far = set()
  for a, b, gap in random_sets(1, 5, 3):
    distance = metrics.hull_distance(a, b)
    assert gap <= distance + 1e-9
    # A direction off by half a step of the grid loses that share of an edge.
    assert distance <= max(gap, 0) + 5e-3
    assert distance == pytest.approx(metrics.hull_distance(b, a), abs=1e-9)
    far.add(distance > 0.01)
  assert far == {True, False}
