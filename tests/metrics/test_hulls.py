"""Hulls: cases by hand, and random ones against a search over directions."""

import numpy as np
import pytest

from spherejax import metrics

SQUARE = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_cases_by_hand(scale):
  def meets(a, b):
    a, b = scale * np.array(a), scale * np.array(b)
    assert metrics.hulls_intersect(a, b) == metrics.hulls_intersect(b, a)
    return metrics.hulls_intersect(a, b)

  assert meets(SQUARE, SQUARE + 0.5)
  assert meets(SQUARE, [[0.5, 0.5]])  # a point inside, no vertex of either shared
  assert meets(SQUARE, [[-1.0, 0.4], [2.0, 0.6]])  # a segment right through
  assert meets(SQUARE, np.add(SQUARE, 1))  # one corner in common
  assert not meets(SQUARE, np.add(SQUARE, (1.001, 0)))
  # Boxes overlap, hulls do not: the corner beyond the diagonal.
  assert not meets(SQUARE[:3], [[0.52, 0.52], [1.0, 1.0]])
  for other in (SQUARE, SQUARE[:0]):
    assert not meets(SQUARE[:0], other)  # the hull of no point


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


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_distances_by_hand(scale):
  def apart(a, b):
    a, b = scale * np.array(a), scale * np.array(b)
    return metrics.hull_distance(a, b) / scale

  assert apart(SQUARE, np.add(SQUARE, (3, 0))) == pytest.approx(2)
  assert apart(SQUARE, np.add(SQUARE, (4, 5))) == pytest.approx(5)  # two corners
  assert apart(SQUARE[:3], [[1.0, 1.0], [3.0, 3.0]]) == pytest.approx(0.5**0.5)
  assert apart(SQUARE, SQUARE + 0.5) == pytest.approx(0, abs=1e-9)
  assert apart(SQUARE, np.add(SQUARE, 1)) == pytest.approx(0, abs=1e-9)
  assert apart([[0.0, 0.0]], [[0.0, 0.0]]) == 0


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
