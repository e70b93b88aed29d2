"""k-means against a loop, and what must hold of every result."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import solvers
from spherejax.solvers import _k_means


def lloyd(points, centres, steps=100):
  """From given centres: nearest ones, then means, then empty clusters, in loops."""
  before = None
  for _ in range(steps):
    own = [
      min(range(len(centres)), key=lambda j: (((x - centres[j]) ** 2).sum(), j))
      for x in points
    ]
    for j in range(len(centres)):
      if j in own:
        continue
      far = [
        ((x - np.mean([y for y, b in zip(points, own, strict=True) if b == a], 0)) ** 2)
        .sum()
        for x, a in zip(points, own, strict=True)
      ]  # fmt: skip
      if max(far) > 0:
        own[int(np.argmax(far))] = j
    centres = [
      np.mean([x for x, a in zip(points, own, strict=True) if a == j], 0)
      if j in own
      else centres[j]
      for j in range(len(centres))
    ]
    if own == before:
      break
    before = own
  return np.array(centres), np.array(own)


def partition(assignment):
  return {frozenset(np.flatnonzero(assignment == a)) for a in set(assignment) - {-1}}


@pytest.mark.parametrize("seed", range(6))
def test_every_result_is_where_the_loop_stays(seed):
  rng = np.random.default_rng(seed)
  points = rng.integers(-8, 9, (40, 2)).astype(np.float32)
  found = solvers.k_means(points, 5, key=jax.random.key(seed))
  assert found.converged
  centres, own = lloyd(np.float64(points), list(np.float64(found.centres)), steps=1)
  np.testing.assert_array_equal(found.assignment, own)
  np.testing.assert_allclose(found.centres, centres, atol=1e-5)
  apart = np.float64(points) - centres[own]
  np.testing.assert_allclose(found.inertia, (apart**2).sum(), rtol=1e-5)


def test_steps_are_those_of_the_loop():
  """With the centres of one step less, one more step of the loop."""
  rng = np.random.default_rng(1)
  points = rng.normal(size=(40, 2)).astype(np.float32)
  key = jax.random.key(2)
  one, two, three = (
    solvers.k_means(points, 4, key=key, max_steps=steps) for steps in (1, 2, 3)
  )
  for before, after in ((one, two), (two, three)):
    centres, own = lloyd(np.float64(points), list(np.float64(before.centres)), steps=1)
    np.testing.assert_array_equal(after.assignment, own)
    np.testing.assert_allclose(after.centres, centres, atol=1e-5)
    assert after.inertia <= before.inertia * (1 + 1e-6)


def test_groups_that_are_apart_are_found_from_every_key():
  rng = np.random.default_rng(0)
  labels = np.arange(40) % 4
  points = 1e3 * np.eye(4)[labels] + rng.normal(size=(40, 4)) + 1e5
  found = jax.vmap(lambda key: solvers.k_means(points.astype(np.float32), 4, key=key))(
    jax.random.split(jax.random.key(0), 8)
  )
  for assignment in np.asarray(found.assignment):
    assert partition(assignment) == partition(labels)


def test_first_centres_are_drawn_by_squared_distances():
  """Points 0, 0, 0, 1 and 3: which pairs of centres occur, and how often."""
  points = jnp.array([[0.0], [0.0], [0.0], [1.0], [3.0]])
  weight = {0: {1: 1, 3: 9}, 1: {0: 3, 3: 4}, 3: {0: 27, 1: 4}}
  first = {0: 3 / 5, 1: 1 / 5, 3: 1 / 5}
  # The second centre is with probability p in the same place as the pair's other one.
  expected = {
    pair: sum(
      first[a] * weight[a][b] / sum(weight[a].values()) for a, b in (pair, pair[::-1])
    )
    for pair in itertools.combinations((0, 1, 3), 2)
  }
  keys = jax.random.split(jax.random.key(1), 4000)
  found = jax.jit(jax.vmap(lambda key: _drawn_pair(points, key)))(keys)
  for pair, share in expected.items():
    seen = np.mean((np.sort(found, axis=1) == pair).all(axis=1))
    assert abs(seen - share) < 4 * np.sqrt(share * (1 - share) / 4000)


def _drawn_pair(points, key):
  return _k_means._drawn(points, jnp.ones(len(points), bool), key, 2)[:, 0]


def test_fewer_points_than_clusters_leave_clusters_empty():
  points = np.float32([[1, 2], [1, 2], [4, 0], [1, 2]])
  found = solvers.k_means(points, 4, key=jax.random.key(3))
  assert partition(np.asarray(found.assignment)) == {
    frozenset({0, 1, 3}),
    frozenset({2}),
  }
  assert found.inertia == 0
  assert found.converged


def test_an_empty_cluster_takes_the_farthest_point():
  points = jnp.array([[0.0], [1.0], [7.0], [20.0], [22.0]])
  assignment = jnp.array([0, 0, 0, 3, 3])
  found = _k_means._without_empty(points, jnp.ones(5, bool), assignment, 4)
  # 7 is farthest from 8 / 3; then 20 of 21, or 22: the lowest.
  np.testing.assert_array_equal(found, [0, 0, 1, 2, 3])


def test_points_that_are_split_over_devices_stay_there():
  points = np.random.default_rng(0).normal(size=(1024, 12)).astype(np.float32)
  mesh = jax.make_mesh((4,), ("parts",), (jax.sharding.AxisType.Auto,))
  split = jax.device_put(points, jax.NamedSharding(mesh, jax.P("parts")))
  key = jax.random.key(0)
  alone, found = (solvers.k_means(x, 7, key=key) for x in (points, split))
  np.testing.assert_array_equal(found.assignment, alone.assignment)
  np.testing.assert_allclose(found.centres, alone.centres, atol=1e-6)
  program = _k_means._cluster.lower(
    split, jnp.ones(1024, bool), key, 7, 100, 512, split.sharding
  )
  text = program.compile().as_text()
  assert "f32[256,12]" in text
  assert "f32[1024,12]" not in text


def test_masked_points_are_not_there():
  rng = np.random.default_rng(0)
  points = rng.normal(size=(12, 3)).astype(np.float32)
  where = np.arange(12) < 9
  hidden = np.where(where[:, None], points, np.nan)
  found = solvers.k_means(hidden, 3, key=jax.random.key(0), where=where)
  np.testing.assert_array_equal(np.asarray(found.assignment) < 0, ~where)
  centres, own = lloyd(np.float64(points[where]), list(np.float64(found.centres)), 1)
  np.testing.assert_array_equal(np.asarray(found.assignment)[where], own)
  np.testing.assert_allclose(found.centres, centres, atol=1e-5)
  assert np.isfinite(found.inertia)


def test_blocks_and_half_precision():
  points = np.random.default_rng(0).integers(-3, 4, (23, 2)).astype(np.float32)
  key = jax.random.key(0)
  whole = solvers.k_means(points, 3, key=key)
  blocks = solvers.k_means(points, 3, key=key, block_size=5)
  half = solvers.k_means(jnp.asarray(points, jnp.bfloat16), 3, key=key)
  np.testing.assert_array_equal(blocks.assignment, whole.assignment)
  np.testing.assert_array_equal(half.assignment, whole.assignment)
  assert half.centres.dtype == jnp.bfloat16


def test_clusters_of_far_groups_are_those_of_differences():
  """Two towns: squares of coordinates would leave nothing of the streets."""
  random = np.random.default_rng(0)
  towns = np.array([[5252.0, 1340.0], [4814.0, 1158.0]])[np.arange(300) % 2]
  x = (towns + 0.01 * random.normal(size=(300, 2))).astype(np.float32)
  found = solvers.k_means(x, 12, key=jax.random.key(0))
  centres = np.asarray(found.centres, np.float64)
  apart = ((x[:, None].astype(np.float64) - centres[None]) ** 2).sum(2)
  own = np.take_along_axis(apart, np.asarray(found.assignment)[:, None], 1)[:, 0]
  # Centres are float32 numbers of this size, in whose steps they may differ.
  step = np.spacing(np.float32(5252))
  assert np.all(np.sqrt(own) <= np.sqrt(apart.min(1)) + 2 * step)
