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
  assert not meets(SQUARE, np.zeros((0, 2)))


def test_planes_that_separate_are_found_for_random_sets():
  """In the plane some edge normal separates two hulls that do not meet."""
  rng = np.random.default_rng(0)
  angles = np.linspace(0, 2 * np.pi, 3601)
  directions = np.stack([np.cos(angles), np.sin(angles)])
  seen = set()
  for _ in range(40):
    a, b = rng.normal(size=(2, 4, 2)) + rng.uniform(0, 1.5, (2, 1, 2))
    gap = ((a @ directions).min(0) - (b @ directions).max(0)).max()
    if abs(gap) > 0.01:  # a grid of directions cannot decide the rest
      assert metrics.hulls_intersect(a, b) == (gap < 0)
      seen.add(gap < 0)
  assert seen == {True, False}


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
  rng = np.random.default_rng(1)
  angles = np.linspace(0, 2 * np.pi, 3601)
  directions = np.stack([np.cos(angles), np.sin(angles)])
  found = []
  for _ in range(40):
    a, b = rng.normal(size=(2, 5, 2)) + rng.uniform(0, 3, (2, 1, 2))
    gap = ((a @ directions).min(0) - (b @ directions).max(0)).max()
    distance = metrics.hull_distance(a, b)
    assert gap <= distance + 1e-9
    # A direction off by half a step of the grid loses that share of an edge.
    assert distance <= max(gap, 0) + 5e-3
    assert distance == pytest.approx(metrics.hull_distance(b, a), abs=1e-9)
    found.append(distance > 0.01)
  assert set(found) == {True, False}


def test_the_hull_of_no_point_meets_nothing():
  nothing = SQUARE[:0]
  assert not metrics.hulls_intersect(nothing, SQUARE)
  assert not metrics.hulls_intersect(nothing, nothing)
