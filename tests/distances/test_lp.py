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


def length(v, norm):
  return {"l1": np.abs(v).sum(), "l2": np.sqrt((v**2).sum()), "linf": np.abs(v).max()}[
    norm
  ]


def table(x, y, norm):
  return np.array([[length(a - b, norm) for b in y] for a in x.astype(np.float64)])


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_distances_and_nearest(norm):
  given = table(X, Y, norm)
  np.testing.assert_allclose(
    jax.jit(lambda x, y: distances.pairwise_lp(x, y, norm=norm))(X, Y), given, rtol=2e-6
  )
  exclude = np.where(np.arange(20) < 4, 36 + np.arange(20), -1)
  for options in ({}, {"exclude": exclude}, {"apart": LABELS}):
    banned = np.zeros(given.shape, bool)
    if "exclude" in options:
      banned[np.arange(4), 36 + np.arange(4)] = True
    if "apart" in options:
      banned = LABELS[0][:, None] == LABELS[1][None]
    kept = np.where(banned, np.inf, given.astype(np.float32))
    order = np.lexsort((np.broadcast_to(np.arange(40), kept.shape), kept))[:, :5]
    found = distances.k_nearest(X, Y, k=5, norm=norm, block_size=8, **options)
    np.testing.assert_array_equal(found.indices, order)
    np.testing.assert_allclose(
      found.distances, np.take_along_axis(kept, order, 1), rtol=2e-6
    )


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
  squares = np.array([((row - y) ** 2).sum(1) for row in x.astype(np.float64)])
  return np.argsort(np.where(np.isnan(squares), np.inf, squares), 1, "stable")[:, :k]


def test_nearest_where_the_product_rounds_all_distances_away():
  u = RANDOM.normal(size=(200, 50))
  u /= np.linalg.norm(u, axis=1, keepdims=True)
  base = 10 * u[0]
  apart = 3 * RANDOM.normal(size=(20, 50))  # of which the product is sure
  sites = [base + 1e-3 * u, apart, -base + 1e-3 * u]
  sites = np.concatenate(sites).astype(np.float32)
  queries = (base + 0.8e-3 * u[:40]).astype(np.float32)
  queries[::3] = apart[:14] + RANDOM.normal(size=(14, 50)) / 10
  for k in (1, 4):
    found = distances.k_nearest(queries, sites, k=k, block_size=16)
    np.testing.assert_array_equal(found.indices, nearest(queries, sites, k))
  # The references left out are not among them.
  own = np.argmin(((queries[:, None].astype(float) - sites[None]) ** 2).sum(2), 1)
  found = distances.k_nearest(queries, sites, k=1, exclude=own, block_size=16)
  expected = [
    row[row != i][0] for row, i in zip(nearest(queries, sites, 2), own, strict=True)
  ]
  np.testing.assert_array_equal(found.indices[:, 0], expected)


def test_more_ties_than_candidates_go_to_the_lowest():
  sites = np.concatenate([np.eye(64), -np.eye(64), np.full((1, 64), 1e3)])
  sites = sites.astype(np.float32)
  found = distances.k_nearest(np.zeros((2, 64), np.float32), sites, k=3)
  np.testing.assert_array_equal(found.indices, [[0, 1, 2]] * 2)
  np.testing.assert_array_equal(found.distances, 1)


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_no_queries_have_no_neighbours(norm):
  found = distances.k_nearest(X[:0], X, k=3, norm=norm)
  assert found.indices.shape == found.distances.shape == (0, 3)


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
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


def test_the_first_of_the_largest_entries_has_the_derivative():
  slope = jax.jit(jax.grad(lambda v: distances.lp_norm(v, norm="linf")))
  for x in ([-2, 2, 1], [2, 2, 2]):
    gradient = slope(np.array(x, np.float32))
    np.testing.assert_array_equal(gradient, [np.sign(x[0]), 0, 0])
  np.testing.assert_array_equal(slope(np.zeros(3, np.float32)), 0)


def test_gradient_of_norms():
  for norm, expected in (
    ("l1", [1, -1, 0]),
    ("l2", [0.6, -0.8, 0]),
    ("linf", [0, -1, 0]),
  ):
    slope = jax.grad(lambda x, norm=norm: distances.lp_norm(x, norm=norm))
    gradient = jax.jit(slope)
    np.testing.assert_allclose(
      gradient(np.array([3, -4, 0], np.float32)), expected, atol=1e-6
    )
