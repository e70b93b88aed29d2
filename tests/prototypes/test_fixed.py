"""Greedy k-centre against a NumPy loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax.prototypes import greedy_k_centre
from tests import programs
from tests.metrics.test_split_references import split


def loop(points, k, first=0, initial=None):
  """The definition, written out."""
  chosen, radii = [], []
  centres = [] if initial is None else list(initial)
  for _ in range(k):
    index = first
    if centres:
      best = [min(np.linalg.norm(x - c) for c in centres) for x in points]
      free = [i for i in range(len(points)) if i not in chosen]
      index = max(free, key=lambda i: (best[i], -i))
    chosen.append(index)
    centres.append(points[index])
    radii.append(max(min(np.linalg.norm(x - c) for c in centres) for x in points))
  return chosen, radii


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("first", [0, 5])
def test_equals_the_loop(seed, first, x64):
  points = np.random.default_rng(seed).normal(size=(12, 3))
  points[7] = points[2]
  indices, radii = loop(points, 12, first)
  result = greedy_k_centre(points, 12, first=first)
  np.testing.assert_array_equal(result.indices, indices)
  np.testing.assert_allclose(result.radii, radii, rtol=1e-12, atol=1e-14)


def test_initial_centres_count_and_are_not_returned(x64):
  rng = np.random.default_rng(0)
  points, initial = rng.normal(size=(10, 2)), rng.normal(size=(3, 2))
  indices, radii = loop(points, 4, initial=initial)
  result = greedy_k_centre(points, 4, initial=initial)
  np.testing.assert_array_equal(result.indices, indices)
  np.testing.assert_allclose(result.radii, radii, rtol=1e-12)


def test_points_that_are_split_over_devices_stay_there():
  points = np.random.default_rng(0).normal(size=(4096, 64)).astype(np.float32)
  points[2000] = points[7]
  parts = split(points, 4)
  pairs = zip(greedy_k_centre(parts, 9), greedy_k_centre(points, 9), strict=True)
  for of_parts, alone in pairs:
    np.testing.assert_array_equal(of_parts, alone)
  needed = programs.temporary_bytes(lambda points: greedy_k_centre(points, 9), parts)
  assert needed < points.nbytes // 2  # a copy of its part, twice


def test_a_masked_point_is_as_good_as_deleted():
  points = np.random.default_rng(1).normal(size=(9, 2)).astype(np.float32)
  keep = np.array([0, 1, 1, 0, 1, 1, 1, 0, 1], bool)
  poisoned = np.where(keep[:, None], points, np.nan)
  result = jax.jit(greedy_k_centre, static_argnums=1)(poisoned, 4, where=keep)
  expected = greedy_k_centre(points[keep], 4)
  places = np.flatnonzero(keep)[np.asarray(expected.indices)]
  np.testing.assert_array_equal(result.indices, places)
  np.testing.assert_allclose(result.radii, expected.radii, rtol=1e-6)


def test_more_centres_than_kept_points_and_duplicates_never_repeat_a_row():
  points = jnp.zeros((4, 2))
  result = greedy_k_centre(points, 4)
  np.testing.assert_array_equal(result.indices, [0, 1, 2, 3])
  np.testing.assert_array_equal(result.radii, np.zeros(4))
  keep = jnp.array([False, True, False, True])
  result = greedy_k_centre(points, 3, where=keep)
  np.testing.assert_array_equal(result.indices[:2], [1, 3])
