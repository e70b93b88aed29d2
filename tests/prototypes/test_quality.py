"""Reports and bounds of prototypes, and the Gaussian potential, against NumPy."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial import distance

from spherejax import prototypes
from spherejax.prototypes import _potential, rankin_bound, welch_bound
from tests.prototypes.test_optimized import force, unit

QUALITY = jax.jit(prototypes.prototype_quality)


def test_the_report_equals_numpy(x64):
  points = np.random.default_rng(0).normal(size=(5, 3))
  cosines = 1 - distance.cdist(points, points, "cosine")
  others = cosines[~np.eye(5, dtype=bool)].reshape(5, 4)
  expected = others.max(), others.max(1).mean(), others.min(), others.mean()
  np.testing.assert_allclose(QUALITY(points), expected, rtol=1e-10)
  # A single prototype has no quality, and no bound.
  assert np.isnan(QUALITY(points[:1])).all()
  bounds = [rankin_bound(1, 3), welch_bound(1, 3), prototypes.levenshtein_bound(1, 3)]
  assert np.isnan(bounds).all()


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
  for number, dim, largest in (
    (16, 5, 1 / 5), (27, 6, 1 / 4), (5, 2, math.cos(2 * math.pi / 5)),
  ):  # fmt: skip
    bound = prototypes.levenshtein_bound(number, dim)
    np.testing.assert_allclose(bound, largest, rtol=1e-12)
  for dim in (2, 3, 7, 20):
    end = (math.sqrt(dim + 3) - 1) / (dim + 2)
    previous = -1.0
    for number in range(2, dim * (dim + 3) // 2 + 3):
      s = prototypes.levenshtein_bound(number, dim)
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


def by_scipy(points, t):
  """Both functions of t."""
  kernel = np.exp(-t * distance.pdist(unit(points), "sqeuclidean"))  # unordered pairs
  return np.log(kernel.mean()), 1 + np.log(kernel.sum()) / (2 * t)


@jax.jit
def both(points, t):
  """Both functions, the gradient of the first, and the force that descent uses."""
  value, gradient = jax.value_and_grad(prototypes.gaussian_potential)(points, t=t)
  smooth = prototypes.smooth_max_cosine(points, t=t)
  rows = points / jnp.linalg.norm(points, axis=1, keepdims=True)
  return value, smooth, gradient, _potential.repulsion(rows, t)


def test_the_potential_equals_scipy(x64):
  rng = np.random.default_rng(0)
  for t in (0.05, 2.0, 20.0):
    points = rng.normal(size=(6, 3))
    potential, smooth = by_scipy(points, t)
    value, maximum, slope, repulsion = both(points, t)
    np.testing.assert_allclose(value, potential, rtol=1e-10)
    np.testing.assert_allclose(maximum, smooth, rtol=1e-10)
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    expected = force(unit(points), t)
    np.testing.assert_allclose(repulsion, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(slope * norms, 2 * t * expected, rtol=1e-9, atol=1e-12)


def test_bounds_hold_for_random_sets(x64):
  rng = np.random.default_rng(1)
  points = rng.normal(size=(2000, 6, 3))
  t = np.exp(rng.uniform(np.log(0.01), np.log(1000), 2000))

  @jax.jit
  @jax.vmap
  def measure(points, t):
    value = prototypes.gaussian_potential(points, t=t)
    smooth = prototypes.smooth_max_cosine(points, t=t)
    return value, smooth, prototypes.prototype_quality(points)

  value, smooth, quality = jax.tree.map(np.asarray, measure(points, t))
  slack, bound = 1e-12, 1 + (value + np.log(15)) / (2 * t)
  assert (quality.max <= bound + slack).all()
  assert (quality.max >= 1 + value / (2 * t) - slack).all()
  np.testing.assert_allclose(smooth, bound, rtol=1e-12)
  assert (value >= -2 * t * 6 / 5).all()  # of the simplex, in any dimension
  assert (quality.max >= prototypes.rankin_bound(6, 3)).all()
  size = np.maximum(quality.max, -quality.min)
  assert (size >= prototypes.welch_bound(6, 3)).all()
  assert (quality.mean >= -1 / 5 - slack).all()
  assert (quality.max >= quality.mean_of_maxima).all()
  assert (quality.mean_of_maxima > quality.mean).all()


def test_potentials_of_simplex_and_cross_polytope():
  simplex = prototypes.simplex(None, 5, 4, rotate=False)
  cross = prototypes.cross_polytope(None, 8, 4, rotate=False)
  for t in (0.5, 2.0, 50.0):
    expected = np.log((6 * np.exp(-2 * t) + np.exp(-4 * t)) / 7)
    np.testing.assert_allclose(both(simplex, t)[0], -2 * t * 5 / 4, rtol=2e-6)
    np.testing.assert_allclose(both(cross, t)[0], expected, rtol=2e-6)


def test_every_sharpness_is_finite_in_float32():
  points = np.random.default_rng(2).normal(size=(6, 3)).astype(np.float32)
  cosines = (unit(points) @ unit(points).T)[~np.eye(6, dtype=bool)]
  for t in (1e-3, 1.0, 1e3, 1e4):
    assert all(np.isfinite(leaf).all() for leaf in both(points, t))
  value = both(points, 1e-6)[0]
  np.testing.assert_allclose(value / 1e-6, np.mean(2 * cosines - 2), rtol=1e-5)
  np.testing.assert_allclose(both(points, 1e4)[1], cosines.max(), atol=1e-4)


def test_coinciding_prototypes_exert_no_force_on_each_other():
  points = np.array([[0.6, 0.8, 0], [0.6, 0.8, 0], [0, 0, 1], [0, 0, -1]], np.float32)
  points = np.concatenate([points, -points[:2]])
  value, smooth, gradient, repulsion = both(points, 2.0)
  assert np.isfinite(value)
  assert smooth >= 1
  # The others are symmetric about the plane across, and the twin adds nothing.
  np.testing.assert_allclose(gradient[:2], 0, atol=1e-6)
  np.testing.assert_allclose(repulsion[:2], 0, atol=1e-6)
  # A single prototype has no potential.
  assert np.isnan(both(points[:1], 2.0)[:2]).all()
