"""The report against NumPy, and the bounds against sets that attain them."""

import math

import jax
import numpy as np
import pytest
from scipy.spatial import distance

from spherejax import prototypes
from spherejax.prototypes import levenshtein_bound, rankin_bound, welch_bound

QUALITY = jax.jit(prototypes.prototype_quality)


def test_equals_numpy(x64):
  points = np.random.default_rng(0).normal(size=(5, 3))
  cosines = 1 - distance.cdist(points, points, "cosine")
  others = cosines[~np.eye(5, dtype=bool)].reshape(5, 4)
  expected = others.max(), others.max(1).mean(), others.min(), others.mean()
  np.testing.assert_allclose(QUALITY(points), expected, rtol=1e-10)
  # A single prototype has no quality, and no bound.
  assert np.isnan(QUALITY(points[:1])).all()
  assert np.isnan(
    [rankin_bound(1, 3), welch_bound(1, 3), levenshtein_bound(1, 3)]
  ).all()


def test_the_first_of_equal_pairs_has_the_derivative():
  """At right angles a cosine changes by its own two rows alone."""
  square = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]], np.float32)
  gradients = jax.jit(jax.jacrev(prototypes.prototype_quality))(square)
  of_max = [[0, 1], [1, 0], [0, 0], [0, 0]]
  np.testing.assert_allclose(gradients.max, of_max, atol=1e-6)
  # The closest to each row: 1 to 0, 0 to 1, 1 to 2, 0 to 3.
  expected = np.array([[0, 1 + 1 - 1], [1 + 1 - 1, 0], [0, 1], [1, 0]]) / 4
  np.testing.assert_allclose(gradients.mean_of_maxima, expected, atol=1e-6)


def test_rankin_and_welch():
  assert rankin_bound(4, 3) == -1 / 3
  assert rankin_bound(5, 3) == rankin_bound(1000, 3) == 0
  assert welch_bound(3, 3) == welch_bound(2, 3) == 0
  # The simplex attains it; equiangular lines of the icosahedron do, too.
  np.testing.assert_allclose(welch_bound(5, 4), 1 / 4)
  np.testing.assert_allclose(welch_bound(6, 3), 1 / math.sqrt(5))


def test_levenshtein_is_attained_and_inverts_its_formula():
  for sizes, largest in (
    ((16, 5), 1 / 5),
    ((27, 6), 1 / 4),
    ((5, 2), math.cos(2 * math.pi / 5)),
  ):
    np.testing.assert_allclose(levenshtein_bound(*sizes), largest, rtol=1e-12)
  for dim in (2, 3, 7, 20):
    end = (math.sqrt(dim + 3) - 1) / (dim + 2)
    previous = -1.0
    for number in range(2, dim * (dim + 3) // 2 + 3):
      s = levenshtein_bound(number, dim)
      assert s >= previous
      previous = s
      if number <= 2 * dim:
        assert s == rankin_bound(number, dim)
      elif number <= dim * (dim + 3) // 2:
        room = dim * (1 - s) * (2 + (dim + 1) * s) / (1 - dim * s**2)
        np.testing.assert_allclose(room, number, rtol=1e-9)
        assert 0 < s <= end + 1e-12
      else:
        np.testing.assert_allclose(s, end)


def test_largest_cosines_of_dl2p_table_7():
  # At most 21 vectors have no larger cosine than -0.05, a hundred in 50 dimensions 0.
  assert rankin_bound(21, 50) == pytest.approx(-0.05)
  assert rankin_bound(22, 50) > -0.05 + 1e-3
  assert rankin_bound(100, 50) == 0
  # Of the simplex of 100 -1/99; 0 if the diagonal took part as 0.
  largest = QUALITY(np.eye(100, dtype=np.float32) - np.float32(0.01)).max
  np.testing.assert_allclose(largest, -1 / 99, atol=1e-6)
