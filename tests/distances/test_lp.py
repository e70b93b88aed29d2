"""Norms, their pairwise distances and nearest points, against loops in NumPy."""

import jax
import numpy as np
import pytest

from spherejax import distances

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(20, 5)).astype(np.float32)
Y = np.concatenate([RANDOM.normal(size=(36, 5)), X[:4]]).astype(np.float32)
Y[7] = Y[30]  # a tie
LABELS = RANDOM.integers(0, 3, 20), RANDOM.integers(0, 3, 40)


EACH_NORM = pytest.mark.parametrize("norm", ["l1", "l2", "linf"])


def table(x, y, norm):
  steps = np.abs(x.astype(np.float64)[:, None] - y)
  sums = {"l1": steps.sum(2), "l2": np.sqrt((steps**2).sum(2)), "linf": steps.max(2)}
  return sums[norm]


@EACH_NORM
def test_distances_and_nearest(norm):
  given = table(X, Y, norm)
  matrix = jax.jit(lambda x, y: distances.pairwise_lp(x, y, norm=norm))(X, Y)
  np.testing.assert_allclose(matrix, given, rtol=2e-6)
  exclude = np.where(np.arange(20) < 4, 36 + np.arange(20), -1)
  for options, banned in (
    ({}, np.zeros(given.shape, bool)),
    ({"exclude": exclude}, exclude[:, None] == np.arange(40)),
    ({"apart": LABELS}, LABELS[0][:, None] == LABELS[1]),
  ):
    allowed = np.where(banned, np.inf, given.astype(np.float32))
    order = np.argsort(allowed, axis=1, kind="stable")[:, :5]
    near = distances.k_nearest(X, Y, k=5, norm=norm, block_size=8, **options)
    np.testing.assert_array_equal(near.indices, order)
    expected = np.take_along_axis(allowed, order, 1)
    np.testing.assert_allclose(near.distances, expected, rtol=2e-6)
  none = distances.k_nearest(X[:0], X, k=3, norm=norm)
  assert none.indices.shape == none.distances.shape == (0, 3)


def test_nearest_when_few_or_far_from_the_origin():
  found = distances.k_nearest(
    X[:8], X[:3], k=3, block_size=8, apart=(np.zeros(8, int), np.array([0, 1, 0]))
  )
  assert (np.asarray(found.indices)[:, 0] == 1).all()
  assert np.isinf(found.distances[:, 1:]).all()
  # Products of vectors of length 2000 round away differences of 1e-2.
  far = (1000 + 1e-2 * np.round(X * 100)).astype(np.float32)
  found = distances.k_nearest(far, far, k=1, exclude=np.arange(20), block_size=8)
  given = table(far, far.astype(np.float64), "l2") + np.diag(np.full(20, np.inf))
  np.testing.assert_array_equal(found.indices[:, 0], given.argmin(1))


def nearest(x, y, k):
  """Squared distances by differences in float64; NaN last, ties to the lowest."""
  squares = ((x.astype(np.float64)[:, None] - y) ** 2).sum(2)
  return np.argsort(np.where(np.isnan(squares), np.inf, squares), 1, "stable")[:, :k]


def test_nearest_where_the_product_rounds_all_distances_away():
  u = RANDOM.normal(size=(200, 50))
  u /= np.linalg.norm(u, axis=1, keepdims=True)
  base = 10 * u[0]
  apart = 3 * RANDOM.normal(size=(20, 50))  # of which the product is sure
  sites = np.concatenate([base + 1e-3 * u, apart, -base + 1e-3 * u]).astype(np.float32)
  queries = (base + 0.8e-3 * u[:40]).astype(np.float32)
  queries[::3] = apart[:14] + RANDOM.normal(size=(14, 50)) / 10
  for k in (1, 4):
    found = distances.k_nearest(queries, sites, k=k, block_size=16)
    np.testing.assert_array_equal(found.indices, nearest(queries, sites, k))
  # The references left out are not among them.
  first, second = nearest(queries, sites, 2).T
  others = distances.k_nearest(queries, sites, k=1, exclude=first, block_size=16)
  np.testing.assert_array_equal(others.indices[:, 0], second)


def test_more_ties_than_candidates_go_to_the_lowest():
  sites = np.float32([*np.eye(64), *-np.eye(64), np.full(64, 1e3)])
  found = distances.k_nearest(np.zeros((2, 64), np.float32), sites, k=3)
  np.testing.assert_array_equal(found.indices, [[0, 1, 2]] * 2)
  np.testing.assert_array_equal(found.distances, 1)


@EACH_NORM
def test_references_that_are_not_finite_rank_last(norm):
  y = np.concatenate([Y, np.zeros((3, 5), np.float32)])
  y[40:43, 1] = np.nan, np.inf, -np.inf
  y[[5, 40]] = y[[40, 5]]
  kept = np.delete(np.arange(43), [5, 41, 42])
  sound = distances.k_nearest(X, y[kept], k=4, norm=norm)
  found = distances.k_nearest(X, y, k=4, norm=norm)
  np.testing.assert_array_equal(found.indices, kept[np.asarray(sound.indices)])
  np.testing.assert_allclose(found.distances, sound.distances, rtol=1e-6)
  every = distances.k_nearest(X, y, k=43, norm=norm)
  np.testing.assert_array_equal(every.indices[:, 40:], [[5, 41, 42]] * 20)
  assert np.isinf(every.distances[:, 40:]).all()


@pytest.mark.parametrize("scale", [1e-22, 1e25])
def test_nearest_where_squares_leave_the_range(scale):
  x, y = (np.float32(scale) * v for v in (X, Y))
  np.testing.assert_array_equal(
    distances.k_nearest(x, y, k=3).indices, nearest(x, y, 3)
  )


def slope(norm):
  return jax.jit(jax.grad(lambda v: distances.lp_norm(v, norm=norm)))


def test_the_first_of_the_largest_entries_has_the_derivative():
  of = slope("linf")
  for x in ([-2, 2, 1], [2, 2, 2], [0, 0, 0]):
    np.testing.assert_array_equal(of(np.float32(x)), [np.sign(x[0]), 0, 0])


@pytest.mark.parametrize(
  ("norm", "expected"),
  [("l1", [1, -1, 0]), ("l2", [0.6, -0.8, 0]), ("linf", [0, -1, 0])],
)
def test_gradient_of_norms(norm, expected):
  np.testing.assert_allclose(slope(norm)(np.float32([3, -4, 0])), expected, atol=1e-6)
