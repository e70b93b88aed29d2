"""l_p norms, combined norms and hulls, and nearest points, against NumPy and LPs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

from spherejax import distances

RANDOM = np.random.default_rng(0)
ROWS = 14
CASES = [(2, 1.5, 1.0), (5, 2.0, 1.0), (5, 3.3, 1.0), (8, 1.2, 0.5)]


@functools.partial(jax.jit, static_argnames="hull")
def ours(x, one, top, hull=False):
  radii = {"epsilon_1": one, "epsilon_inf": top}
  if hull:
    functions = "hull_gauge", "hull_direction", "project_hull"
  else:
    functions = "combined_norm", "combined_direction", "project_combined"
  return [getattr(distances, name)(x, **radii) for name in functions]


def points(dim):
  """Random ones, ties, corners, zero, and one inside."""
  x = RANDOM.normal(size=(ROWS, dim)) * RANDOM.choice([0.3, 1, 30], (ROWS, 1))
  x[:5] = np.round(x[:5])
  x[5], x[6], x[7] = 0, 2, np.eye(dim)[1] * 7
  x[8] = 0.1 / dim
  return x.astype(np.float32)


def beta_of(dim, one, top):
  return (one - top) / (top * (dim - 1))


def norm(x, one, top):
  beta = beta_of(x.shape[-1], one, top)
  return beta * np.abs(x).sum(-1) + (1 - beta) * np.abs(x).max(-1)


def hull_by_lp(x, one, top):
  """Least |u|_1 / one + |w|_inf / top with u + w = x, by linear programming."""
  n = len(x)
  # The unknowns: u, sizes of u, size of x - u.
  rows = np.kron([[1, -1], [-1, -1], [-1, 0], [1, 0]], np.eye(n))
  rows = np.column_stack([rows, np.repeat([0, 0, -1, -1], n)])
  limits = np.concatenate([np.zeros(2 * n), -x, x])
  cost = np.concatenate([np.zeros(n), np.full(n, 1 / one), [1 / top]])
  return linprog(cost, rows, limits, bounds=(None, None)).fun


def support_by_lp(g, one, top):
  """Largest <g, s> over beta |s|_1 + (1 - beta) |s|_inf <= 1."""
  n, beta = len(g), beta_of(len(g), one, top)
  eye, column = np.eye(n), np.ones((n, 1))
  a = np.concatenate([np.hstack([eye, -column]), [[beta] * n + [1 - beta]]])
  b = np.concatenate([np.zeros(n), [1]])  # sizes of s, and the largest
  return -linprog(-np.concatenate([np.abs(g), [0]]), a, b, bounds=(0, None)).fun


def reach_of_hull(g, one, top):
  return np.maximum(one * np.abs(g).max(1), top * np.abs(g).sum(1))


@pytest.mark.parametrize(("dim", "one", "top"), CASES)
def test_norms_and_directions(dim, one, top):
  x = points(dim)
  wide = x.astype(np.float64)
  value, step, _ = ours(x, one, top)
  gauge, corner, _ = ours(x, one, top, True)
  np.testing.assert_allclose(value, norm(wide, one, top), rtol=1e-5)
  np.testing.assert_allclose(gauge, [hull_by_lp(v, one, top) for v in wide], rtol=2e-5)
  # Appendix A: the hull lies in the combined ball, and fills it in the plane only.
  inside = np.asarray(value, np.float64) / one
  assert (inside <= np.asarray(gauge) * (1 + 1e-5)).all()
  if dim == 2:
    np.testing.assert_allclose(inside, gauge, rtol=1e-5)
  assert (norm(np.asarray(step, np.float64), one, top) <= 1 + 1e-6).all()
  best = [support_by_lp(v, one, top) for v in wide]
  np.testing.assert_allclose((step * wide).sum(1), best, rtol=1e-5)
  best = reach_of_hull(wide, one, top)
  np.testing.assert_allclose((corner * wide).sum(1), best, rtol=1e-5)


@pytest.mark.parametrize("hull", [False, True])
@pytest.mark.parametrize(("dim", "one", "top"), CASES)
def test_projections_are_optimal(dim, one, top, hull):
  """<x - z, y> is largest at y = z over the set: what defines the projection."""
  x = points(dim)
  value, _, z = ours(x, one, top, hull)
  limit = 1 if hull else one
  after = np.asarray(ours(np.asarray(z), one, top, hull)[0])
  assert (after <= limit * (1 + 1e-6)).all()
  inside = np.asarray(value) <= limit
  np.testing.assert_array_equal(np.asarray(z)[inside], x[inside])
  assert inside.any()
  assert not inside.all()
  z = np.asarray(z, np.float64)
  gap = x - z
  if hull:
    reach = reach_of_hull(gap, one, top)
  else:
    reach = np.array([one * support_by_lp(g, one, top) for g in gap])
  tolerance = 1e-5 * (np.abs(x).max() + 1) * (np.abs(gap).sum(1) + 1e-3)
  assert (reach - (gap * z).sum(1) <= tolerance).all()


def test_the_hull_is_smaller_in_three_dimensions():
  dim, one, top = 5, 3.3, 1.0
  witness = np.zeros((ROWS, dim), np.float32)
  witness[:, :2] = (dim - 1) * one * top / (one + (dim - 2) * top)
  np.testing.assert_allclose(ours(witness, one, top)[0], one, rtol=1e-6)
  assert (np.asarray(ours(witness, one, top, True)[0]) > 1.01).all()


def test_projections_of_many_dimensions():
  x = (RANDOM.normal(size=(8, 784)) * 2).astype(np.float32)
  for hull, limit in ((False, 12.0), (True, 1.0)):
    _, _, z = ours(x, 12.0, 8 / 255, hull)
    after = ours(np.asarray(z), 12.0, 8 / 255, hull)[0]
    np.testing.assert_allclose(after, limit, rtol=1e-5)


@pytest.mark.parametrize(
  ("dim", "one", "top", "hull", "whole"),
  [
    (784, 1, 0.1, 0.3162, 0.9520),
    (3072, 12, 8 / 255, 0.6138, 1.7250),
    (3072, 2, 8 / 255, 0.2509, 1.3239),
  ],
)
def test_inscribed_radii(dim, one, top, hull, whole):
  radii = {"epsilon_1": one, "epsilon_inf": top}
  for of_hull, l2 in ((False, whole), (True, hull)):
    radius = functools.partial(distances.inscribed_radius, dim, hull=of_hull, **radii)
    np.testing.assert_allclose(radius(norm="l2"), l2, atol=6e-5)
    np.testing.assert_allclose(radius(norm="l1"), one, rtol=1e-6)
    np.testing.assert_allclose(radius(norm="linf"), top, rtol=1e-6)
  # The ball touches where the largest entry, or the k largest, stand out.
  x = np.full(dim, beta_of(dim, one, top))
  x[0] = 1
  touching = x * whole / np.linalg.norm(x)
  np.testing.assert_allclose(norm(touching, one, top), one, rtol=1e-4)
  y = np.clip(one / top - np.arange(dim), 0, 1)
  np.testing.assert_allclose(y @ y * hull / np.linalg.norm(y), one, rtol=1e-3)


def test_the_first_of_the_largest_entries_has_their_derivative():
  # beta = (3 - 2) / (2 (3 - 1)) = 1/4 of every entry, 3/4 of the largest.
  slope = jax.grad(lambda x: distances.combined_norm(x, epsilon_1=3.0, epsilon_inf=2.0))
  gradient = jax.jit(slope)(np.array([1, -1, 0], np.float32))
  np.testing.assert_allclose(gradient, [1, -0.25, 0], rtol=1e-6)


@pytest.mark.parametrize("name", ["project_combined", "project_hull"])
def test_no_gradient_goes_through_projections(name):
  def projected(x, l1, top):
    return getattr(distances, name)(x, epsilon_1=l1, epsilon_inf=top).sum()

  slopes = jax.grad(projected, (0, 1, 2))(jnp.array([2, 1.5, 0.3]), 2.0, 1.0)
  for slope in slopes:
    np.testing.assert_array_equal(slope, 0)


DRAWS = np.random.default_rng(0)
X = DRAWS.normal(size=(20, 5)).astype(np.float32)
Y = np.concatenate([DRAWS.normal(size=(36, 5)), X[:4]]).astype(np.float32)
Y[7] = Y[30]  # a tie
LABELS = DRAWS.integers(0, 3, 20), DRAWS.integers(0, 3, 40)
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
  apart = np.zeros(8, int), np.array([0, 1, 0])
  found = distances.k_nearest(X[:8], X[:3], k=3, block_size=8, apart=apart)
  assert (np.asarray(found.indices)[:, 0] == 1).all()
  assert np.isinf(found.distances[:, 1:]).all()
  # Products of vectors of length 2000 round away differences of 1e-2.
  far = (1000 + 1e-2 * np.round(X * 100)).astype(np.float32)
  found = distances.k_nearest(far, far, k=1, exclude=np.arange(20), block_size=8)
  given = table(far, far.astype(np.float64), "l2") + np.diag(np.full(20, np.inf))
  np.testing.assert_array_equal(found.indices[:, 0], given.argmin(1))


def nearest(x, y, k):
  """By differences in float64, ties to the lowest."""
  return np.argsort(table(x, y, "l2"), 1, "stable")[:, :k]


def test_nearest_where_the_product_rounds_all_distances_away():
  u = DRAWS.normal(size=(200, 50))
  u /= np.linalg.norm(u, axis=1, keepdims=True)
  base = 10 * u[0]
  apart = 3 * DRAWS.normal(size=(20, 50))  # of which the product is sure
  sites = np.concatenate([base + 1e-3 * u, apart, -base + 1e-3 * u]).astype(np.float32)
  queries = (base + 0.8e-3 * u[:40]).astype(np.float32)
  queries[::3] = apart[:14] + DRAWS.normal(size=(14, 50)) / 10
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
  found = distances.k_nearest(x, y, k=3)
  np.testing.assert_array_equal(found.indices, nearest(x, y, 3))


def slope(norm):
  return jax.jit(jax.grad(lambda v: distances.lp_norm(v, norm=norm)))


def test_the_first_of_the_largest_entries_has_the_derivative_of_linf():
  of = slope("linf")
  for x in ([-2, 2, 1], [2, 2, 2], [0, 0, 0]):
    np.testing.assert_array_equal(of(np.float32(x)), [np.sign(x[0]), 0, 0])


@pytest.mark.parametrize(
  ("norm", "expected"),
  [("l1", [1, -1, 0]), ("l2", [0.6, -0.8, 0]), ("linf", [0, -1, 0])],
)
def test_gradient_of_norms(norm, expected):
  np.testing.assert_allclose(slope(norm)(np.float32([3, -4, 0])), expected, atol=1e-6)
