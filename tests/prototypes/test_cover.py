"""Covers of classes: loops in NumPy, brute force over all choices, bad input."""

import itertools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spherejax import prototypes
from tests.prototypes.test_fixed import loop

RANDOM = np.random.default_rng(0)
RENEW = jax.jit(prototypes.renew_proxies, static_argnames=("num_proxies", "space"))
CURVE = jax.jit(prototypes.covering_curve)
class_radii = prototypes.class_covering_radii


def normal(*shape):
  return RANDOM.normal(size=shape).astype(np.float32)


def distances(points):
  return np.linalg.norm(points[:, None] - points[None], axis=-1)


def oracle_picks(pool, old, number):
  """DML Algorithm 2 for one class; ties to the lowest index."""
  return pool[loop(pool, number, initial=old)[0]]


@given(st.integers(0, 2**31))
@settings(derandomize=True, deadline=None, max_examples=40)
def test_new_proxies_are_those_of_the_algorithm(seed):
  # Whole numbers: many equal distances, and no rounding.
  random = np.random.default_rng(seed)
  pools = random.integers(-2, 3, (3, 7, 2)).astype(np.float32)
  old = random.integers(-2, 3, (3, 4, 2)).astype(np.float32)
  found = RENEW(pools, old)
  wanted = [oracle_picks(u, v, 4) for u, v in zip(pools, old, strict=True)]
  np.testing.assert_array_equal(found, wanted)


def test_new_proxies_of_special_pools():
  pools = normal(2, 5, 3)
  same = np.repeat(pools[:, :1], 5, 1)
  cases = (same, same[:, :3]), (pools, pools[:, :5]), (pools, 0 * pools[:, :1])
  renew = jax.jit(lambda cases: [prototypes.renew_proxies(*case) for case in cases])
  firsts, whole, longest = renew(cases)
  # All as near to the old ones: the first of the pool, one after another.
  np.testing.assert_array_equal(firsts, same[:, :3])
  np.testing.assert_array_equal(np.sort(whole, 1), np.sort(pools, 1))
  # From the origin the longest embedding comes first.
  norms = np.linalg.norm(pools, axis=-1)
  np.testing.assert_array_equal(longest[:, 0], pools[[0, 1], norms.argmax(1)])


def test_directions_may_be_covered_instead_of_points():
  pools = normal(3, 7, 2) * np.array([0.3, 5, 1, 9, 2, 0.1, 4])[:, None]
  old = 3 * RANDOM.normal(size=(3, 2, 2))
  found = RENEW(pools, old, space="unit_ball")

  def ball(points):
    return points / np.maximum(np.linalg.norm(points, axis=-1, keepdims=True), 1)

  for own, before, new in zip(pools, old, found, strict=True):
    rows = [int(np.abs(own - x[None]).max(1).argmin()) for x in np.asarray(new)]
    np.testing.assert_allclose(own[rows], new, rtol=1e-6)  # raw
    picks = oracle_picks(ball(own), ball(before), 2)
    np.testing.assert_allclose(ball(own)[rows], picks, rtol=1e-6)
  assert not np.allclose(found, RENEW(pools, old))


def test_masked_points_of_a_pool_come_last():
  pools = normal(1, 6, 2)
  where = np.array([[True, False, True, True, False, True]])
  hidden = np.where(where[..., None], pools, np.nan)
  old = np.zeros((1, 1, 2), np.float32)
  found = RENEW(hidden, old, num_proxies=4, where=where)
  kept = RENEW(pools[:, where[0]], old, num_proxies=4)
  np.testing.assert_array_equal(found, kept)


def test_class_radii_against_loops_and_the_plain_covering_radius():
  points, centres = normal(20, 3), normal(4, 2, 3)
  labels = RANDOM.integers(0, 3, 20).astype(np.int32)
  where = labels == 1
  hidden = np.where(where[:, None], points, np.float32(np.nan))
  radii = np.asarray(class_radii(points, labels, centres))
  masked = class_radii(hidden, labels, centres, where=where)
  gradient = jax.grad(lambda c: class_radii(points, labels, c).sum())(centres)
  for c in range(3):
    x = points[labels == c]
    wanted = max(min(np.linalg.norm(row - s) for s in centres[c]) for row in x)
    plain = prototypes.covering_radius(x, centres[c])
    np.testing.assert_allclose([radii[c], radii[c]], [wanted, plain], rtol=1e-5)
  assert radii[3] == 0  # no point
  np.testing.assert_allclose(masked, [0, radii[1], 0, 0], rtol=1e-6)
  assert np.count_nonzero(np.abs(gradient).sum(-1)) == 3  # a centre of each class
  # Labels that are masked may be anything.
  points, where = np.float32([[1], [3], [np.nan]]), np.array([True, True, False])
  given = points, np.array([0, 1, -1]), np.zeros((2, 1, 1), np.float32)
  np.testing.assert_array_equal(class_radii(*given, where=where), [1, 3])


def test_the_first_of_equals_has_the_derivative():
  points = np.array([[1.0], [-1.0], [3.0]], np.float32)
  labels = np.array([0, 0, 1])
  centres = np.array([[[0.0], [0.0]], [[5.0], [1.0]]], np.float32)

  @jax.jit
  def slopes(points, centres, two):
    of_classes = jax.grad(lambda p, c: class_radii(p, labels, c).sum(), argnums=(0, 1))
    of_all = jax.grad(lambda p: prototypes.covering_radius(p, np.zeros((1, 1), "f")))
    return *of_classes(points, centres), of_all(two)

  by_point, by_centre, by_either = map(np.ravel, slopes(points, centres, points[:2]))
  np.testing.assert_array_equal(by_point, [1, 0, -1])
  np.testing.assert_array_equal(by_centre, [-1, 0, 1, 0])
  np.testing.assert_array_equal(by_either, [1, 0])


def test_radii_of_choices_are_constants():
  def radii(points):
    return prototypes.greedy_k_centre(points, 4)[1], prototypes.covering_curve(points)

  for slopes in jax.jit(jax.jacrev(radii))(normal(4, 2)):
    np.testing.assert_array_equal(slopes, 0)


def test_covering_curves_against_loops_and_brute_force():
  for number in (1, 2, 6):
    points = RANDOM.normal(size=(number, 2))
    between = distances(points)
    wanted = loop(points, number, first=int(np.argmin(between.max(1))))[1]
    found = np.asarray(CURVE(points))
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-6)
    assert found[-1] == 0
    assert (np.diff(found) <= 0).all()
    for k in range(1, number + 1):
      choices = map(list, itertools.combinations(range(number), k))
      best = min(between[:, choice].min(1).max() for choice in choices)
      assert best - 1e-6 <= found[k - 1] <= 2 * best + 1e-6


def test_masked_curves_and_their_mean():
  points, labels = normal(9, 3), np.array([4, 1, 4, 4, 7, 1, 4, 4, 1])
  hidden = np.where((labels == 4)[:, None], points, np.float32(np.nan))

  @jax.jit
  def every(points, hidden):
    return (
      [prototypes.covering_curve(points[labels == c]) for c in (1, 4, 7)],
      prototypes.covering_curve(hidden, where=labels == 4),
      prototypes.mean_covering_radius(points, labels),
    )

  curves, masked, jitted = jax.tree.map(np.asarray, every(points, hidden))
  np.testing.assert_allclose(masked[:5], curves[1], rtol=1e-5, atol=1e-6)
  np.testing.assert_array_equal(masked[5:], 0)
  wanted = np.mean([np.mean(curve) for curve in curves])
  for mean in (prototypes.mean_covering_radius(points, labels), jitted):
    np.testing.assert_allclose(mean, wanted, rtol=1e-5)


def test_the_spread_of_proxies():
  proxies = normal(3, 4, 2)
  each = [distances(p)[np.triu_indices(4, 1)].mean() for p in proxies]
  assert prototypes.proxy_spread(proxies) == pytest.approx(np.mean(each), rel=1e-5)
  assert prototypes.proxy_spread(np.ones((2, 3, 2), np.float32)) == 0
