"""Histograms on prototypes against NumPy, linear programs and the bound they obey."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog  # by HiGHS

from spherejax import pooling, prototypes
from tests import programs

RNG = np.random.default_rng(0)


def by_numpy(features, vectors, weights):
  """Histogram, combination, error, assignment and radius of one image."""
  costs = np.sqrt(((features[:, None] - vectors[None]) ** 2).sum(2))
  assignment, nearest = costs.argmin(1), costs.min(1)
  histogram = np.bincount(assignment, weights, len(vectors))
  combination = weights @ vectors[assignment]
  return histogram, combination, weights @ nearest, assignment, nearest.max()


def everything(features, vectors, weights, where):
  """All functions of the file on one image, as one program."""
  batch = {"weights": weights[None], "where": where[None]}
  result = prototypes.prototype_histogram(features[None], vectors, **batch)
  pcc = prototypes.prototype_convex_combination(features[None], vectors, **batch)
  radius = prototypes.covering_radius(features, vectors, where=where)
  return *(part[0] for part in (*result, pcc)), radius


both = jax.jit(
  lambda features, vectors: (
    prototypes.prototype_histogram(features, vectors),
    prototypes.prototype_convex_combination(features, vectors),
  )
)
of_many_images = jax.jit(jax.vmap(everything))


def instances(n, m, dim):
  """A hundred images in the unit ball, with ties, duplicates and coincidences."""
  rng = np.random.default_rng(n + 10 * m)
  features, vectors = rng.normal(size=(100, n, dim)), rng.normal(size=(100, m, dim))
  features[20:40] = np.round(features[20:40])
  vectors[20:40] = np.round(vectors[20:40])
  vectors[40:60, m // 2] = vectors[40:60, 0]
  features[60:80, n // 2] = vectors[60:80, m // 2]
  for points in (features, vectors):
    points /= np.maximum(1, np.linalg.norm(points, axis=2, keepdims=True))
  weights = rng.uniform(0.1, 2, size=(100, n))
  weights[:50] = 3
  where = rng.uniform(size=(100, n)) < 0.8
  where[:, 0] = True
  return features, vectors, weights, where


def transport(features, vectors, weights, histogram=None):
  """Least transport cost to a free, or a given, distribution over the prototypes."""
  costs = np.linalg.norm(vectors[:, None] - features[None], axis=2)
  m, n = costs.shape
  rows, right = np.kron(np.ones(m), np.eye(n)), weights
  if histogram is not None:
    rows = np.concatenate([rows, np.kron(np.eye(m), np.ones(n))])
    right = np.concatenate([right, histogram])
  least = linprog(costs.reshape(-1), A_eq=rows, b_eq=right)
  assert least.status == 0
  return least.fun


@pytest.mark.parametrize(
  ("n", "m", "dim"), [(7, 4, 3), (1, 4, 2), (5, 1, 2), (6, 3, 1), (1, 1, 1)]
)
def test_loops_programs_and_the_bound(n, m, dim, x64):
  features, vectors, weights, where = instances(n, m, dim)
  poisoned = np.where(where[..., None], features, np.nan)
  results = map(np.asarray, of_many_images(poisoned, vectors, weights, where))
  for k, parts in enumerate(zip(*results, strict=True)):
    histogram, error, assignment, pcc, radius = parts
    x, shares = features[k][where[k]], weights[k][where[k]]
    shares = shares / shares.sum()
    expected = by_numpy(x, vectors[k], shares)
    np.testing.assert_allclose(histogram, expected[0], atol=1e-14)
    np.testing.assert_allclose(pcc, expected[1], atol=1e-14)
    np.testing.assert_allclose(error, expected[2], atol=1e-14)
    np.testing.assert_array_equal(assignment[where[k]], expected[3])
    np.testing.assert_array_equal(assignment[~where[k]], -1)
    np.testing.assert_allclose(radius, expected[4], atol=1e-14)
    assert np.linalg.norm(pcc - shares @ x) <= error + 1e-14
    assert error <= radius + 1e-14
    if k % 20 == 0:
      for least in (
        transport(x, vectors[k], shares),
        transport(x, vectors[k], shares, histogram),
      ):
        np.testing.assert_allclose(error, least, atol=1e-12)


def test_the_printed_bound_is_false_and_ours_is_attained():
  features, opposite = np.array([[1.0, 0.0]]), np.array([[-1.0, 0.0]])
  whole = np.ones(1), np.ones(1, bool)
  *_, pcc, radius = jax.jit(everything)(features, opposite, *whole)
  assert np.linalg.norm(pcc - features[0]) == radius == 2  # of which 4 is no bound


def test_bounded_functions_see_more_than_transport_does():
  # Two points 0.01 apart: the duality needs 1-Lipschitz functions, bounded are not it.
  bounded = linprog([-1, 1], bounds=(-1, 1))
  lipschitz = linprog([-1, 1], A_ub=[[1, -1]], b_ub=[0.01], bounds=(-1, 1))
  least = transport(np.zeros((1, 1)), np.full((1, 1), 0.01), np.ones(1))
  np.testing.assert_allclose([-bounded.fun, -lipschitz.fun, least], [2, 0.01, 0.01])
  # And without a bound the means differ without a bound.
  assert linprog([-1, 1], bounds=(None, None)).status == 3


def test_features_that_are_prototypes_are_averaged_exactly():
  vectors = RNG.normal(size=(9, 3)).astype(np.float32) * 1e3
  features = vectors[RNG.integers(0, 9, (8, 2, 3))]
  result, pcc = both(features, vectors)
  np.testing.assert_array_equal(result.error, 0)
  np.testing.assert_array_equal(vectors[result.assignment], features)
  np.testing.assert_allclose(pcc, features.mean((1, 2)), rtol=1e-5, atol=1e-3)


def test_combinations_lie_in_the_hull_of_the_prototypes_in_use():
  features, vectors = RNG.normal(size=(8, 2, 3, 3)), RNG.normal(size=(9, 3))
  result, combinations = both(features.astype("f"), vectors.astype("f"))
  active = np.flatnonzero((np.asarray(result.histogram) > 0).any(0))
  assert 0 < len(active) < 9
  hull = np.concatenate([vectors[active].T, np.ones((1, len(active)))])
  for pcc in combinations:
    assert linprog(np.zeros(len(active)), A_eq=hull, b_eq=[*pcc, 1]).status == 0


def test_attributes_of_sum_pooling_tend_to_the_histogram():
  features = 0.5 * RNG.normal(size=(3, 6, 2)).clip(-1, 1)
  vectors = 0.5 * RNG.normal(size=(4, 2)).clip(-1, 1)
  sharp = jax.jit(functools.partial(pooling.gsp, mass=1.0, inverse_temperature=1e5))
  histogram = both(features, vectors)[0].histogram
  np.testing.assert_allclose(sharp(features, vectors).attributes, histogram, atol=1e-5)


def test_nothing_kept_is_zero_and_so_is_its_gradient():
  features, vectors = np.full((2, 3, 2), np.nan, np.float32), np.ones((2, 2), "f")
  nothing = np.zeros((2, 3), bool)

  def total(features, vectors, weights):
    given = {"weights": weights, "where": nothing}
    result = prototypes.prototype_histogram(features, vectors, **given)
    pcc = prototypes.prototype_convex_combination(features, vectors, **given)
    radius = prototypes.covering_radius(features[0], vectors, where=nothing[0])
    return sum(map(jnp.sum, (result.histogram, result.error, pcc, radius)))

  both_of = jax.jit(jax.value_and_grad(total, (0, 1, 2)))
  value, gradients = both_of(features, vectors, np.ones((2, 3), "f"))
  assert value == 0
  for gradient in gradients:
    np.testing.assert_array_equal(gradient, 0)


def test_no_table_of_all_differences_is_made():
  points, vectors = np.ones((20_000, 16), "f"), np.ones((512, 16), "f")
  needed = programs.temporary_bytes(prototypes.covering_radius, points, vectors)
  assert needed < 5 * points.nbytes


def test_the_dual_sums_over_both_samples():
  """Eq. 4.1.5: with the second sum over the first sample nothing is left."""
  x, y = np.array([[0.0], [1.0]]), np.array([[0.5], [2.0]])
  points = np.concatenate([x, y])[:, 0]
  pairs = np.eye(4)[:, None] - np.eye(4)[None]
  lipschitz = {
    "A_ub": pairs.reshape(16, 4),
    "b_ub": np.abs(points[:, None] - points[None]).ravel(),
    "bounds": (-9, 9),
  }
  half = np.full(2, 0.5)
  for second, expected in (((2, 3), transport(x, y, half, half)), ((0, 1), 0)):
    gain = np.zeros(4)
    np.add.at(gain, [0, 1], half)
    np.add.at(gain, list(second), -half)
    np.testing.assert_allclose(-linprog(-gain, **lipschitz).fun, expected, atol=1e-12)
  np.testing.assert_allclose(transport(x, y, half, half), 0.75)


def test_a_feature_between_two_prototypes_has_several_histograms():
  features, vectors = np.zeros((1, 1, 2), "f"), np.array([[0, 1], [0, -1]], "f")
  for histogram in ([1, 0], [0, 1], [0.3, 0.7]):
    cost = transport(features[0], vectors, np.ones(1), np.array(histogram))
    assert cost == transport(features[0], vectors, np.ones(1)) == 1
  result = prototypes.prototype_histogram(features, vectors)
  assert result.histogram.tolist() == [[1, 0]]
