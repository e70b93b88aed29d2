"""The norm between l1 and l-infinity and the hull of their balls, against LPs."""

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
  eye, column = np.eye(n), np.ones((n, 1))
  # The unknowns: u, sizes of u, size of x - u.
  rows = [
    [eye, -eye, 0 * column],
    [-eye, -eye, 0 * column],
    [-eye, 0 * eye, -column],
    [eye, 0 * eye, -column],
  ]
  limits = np.concatenate([np.zeros(2 * n), -x, x])
  cost = np.concatenate([np.zeros(n), np.full(n, 1 / one), [1 / top]])
  return linprog(cost, np.block(rows), limits, bounds=(None, None)).fun


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
  def radius(norm, of_hull):
    return distances.inscribed_radius(
      dim, epsilon_1=one, epsilon_inf=top, norm=norm, hull=of_hull
    )

  for of_hull, l2 in ((False, whole), (True, hull)):
    np.testing.assert_allclose(radius("l2", of_hull), l2, atol=6e-5)
    np.testing.assert_allclose(radius("l1", of_hull), one, rtol=1e-6)
    np.testing.assert_allclose(radius("linf", of_hull), top, rtol=1e-6)
  # The ball touches where the largest entry, or the k largest, stand out.
  x = np.full(dim, beta_of(dim, one, top))
  x[0] = 1
  x *= whole / np.linalg.norm(x)
  np.testing.assert_allclose(norm(x, one, top), one, rtol=1e-4)
  y = np.clip(one / top - np.arange(dim), 0, 1)
  touching = y * hull / np.linalg.norm(y)
  np.testing.assert_allclose(np.sort(touching)[::-1] @ y, one, rtol=1e-3)


def test_the_first_of_the_largest_entries_has_their_derivative():
  # beta = (3 - 2) / (2 (3 - 1)) = 1/4 of every entry, 3/4 of the largest.
  slope = jax.grad(lambda x: distances.combined_norm(x, epsilon_1=3.0, epsilon_inf=2.0))
  gradient = jax.jit(slope)(np.array([1, -1, 0], np.float32))
  np.testing.assert_allclose(gradient, [1, -0.25, 0], rtol=1e-6)


@pytest.mark.parametrize(
  "project", [distances.project_combined, distances.project_hull]
)
def test_no_gradient_goes_through_projections(project):
  def projected(x, l1, top):
    return project(x, epsilon_1=l1, epsilon_inf=top).sum()

  slopes = jax.grad(projected, (0, 1, 2))(jnp.array([2, 1.5, 0.3]), 2.0, 1.0)
  for slope in slopes:
    np.testing.assert_array_equal(slope, 0)
