"""k-means against a loop, and what must hold of every result."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import solvers
from spherejax.solvers import _k_means


def assert_step(points, before, after):
  """A step of Lloyd: nearest centres, then points for empty clusters, then means."""
  points, centres = np.float64(points), np.array(before, np.float64)
  chosen = ((points[:, None] - centres) ** 2).sum(2).argmin(1)  # the first of ties
  for j in range(len(centres)):
    if j not in chosen:
      means = np.stack([points[chosen == a].mean(0) for a in chosen])
      far = ((points - means) ** 2).sum(1)
      if far.max() > 0:
        chosen[far.argmax()] = j
  for j in set(chosen.tolist()):
    centres[j] = points[chosen == j].mean(0)
  np.testing.assert_array_equal(after.assignment, chosen)
  np.testing.assert_allclose(after.centres, centres, atol=1e-5)
  inertia = ((points - centres[chosen]) ** 2).sum()
  np.testing.assert_allclose(after.inertia, inertia, rtol=1e-5)


def partition(assignment):
  return {frozenset(np.flatnonzero(assignment == a)) for a in set(assignment) - {-1}}


@pytest.mark.parametrize("seed", range(6))
def test_every_result_is_where_the_loop_stays(seed):
  points = np.random.default_rng(seed).integers(-8, 9, (40, 2)).astype(np.float32)
  result = solvers.k_means(points, 5, key=jax.random.key(seed))
  assert result.converged
  assert_step(points, result.centres, result)


def test_steps_are_those_of_the_loop():
  """With the centres of one step less, one more step of the loop."""
  points = np.random.default_rng(1).normal(size=(40, 2)).astype(np.float32)
  key = jax.random.key(2)
  results = [solvers.k_means(points, 4, key=key, max_steps=n) for n in (1, 2, 3)]
  for before, after in itertools.pairwise(results):
    assert_step(points, before.centres, after)
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

  def pair_of(key):
    return _k_means._drawn(points, jnp.ones(5, bool), key, 2)[:, 0]

  pairs = np.sort(jax.jit(jax.vmap(pair_of))(keys), axis=1)
  for pair, share in expected.items():
    drawn = np.mean((pairs == pair).all(axis=1))
    assert abs(drawn - share) < 4 * np.sqrt(share * (1 - share) / 4000)


def test_fewer_points_than_clusters_leave_clusters_empty():
  points = np.float32([[1, 2], [1, 2], [4, 0], [1, 2]])
  found = solvers.k_means(points, 4, key=jax.random.key(3))
  groups = {frozenset({0, 1, 3}), frozenset({2})}
  assert partition(np.asarray(found.assignment)) == groups
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
  points = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
  where = np.arange(12) < 9
  hidden = np.where(where[:, None], points, np.nan)
  result = solvers.k_means(hidden, 3, key=jax.random.key(0), where=where)
  np.testing.assert_array_equal(result.assignment < 0, ~where)
  visible = result._replace(assignment=result.assignment[where])
  assert_step(points[where], result.centres, visible)


def test_blocks_and_half_precision():
  points = np.random.default_rng(0).integers(-3, 4, (23, 2)).astype(np.float32)
  key = jax.random.key(0)
  whole = solvers.k_means(points, 3, key=key)
  blocks = solvers.k_means(points, 3, key=key, block_size=5)
  half = solvers.k_means(jnp.asarray(points, jnp.bfloat16), 3, key=key)
  for other in (blocks, half):
    np.testing.assert_array_equal(other.assignment, whole.assignment)
  assert half.centres.dtype == jnp.bfloat16


def test_clusters_of_far_groups_are_those_of_differences():
  """Two towns: squares of coordinates would leave nothing of the streets."""
  random = np.random.default_rng(0)
  towns = np.array([[5252.0, 1340.0], [4814.0, 1158.0]])[np.arange(300) % 2]
  x = (towns + 0.01 * random.normal(size=(300, 2))).astype(np.float32)
  found = solvers.k_means(x, 12, key=jax.random.key(0))
  gaps = np.linalg.norm(np.float64(x)[:, None] - np.float64(found.centres), axis=2)
  chosen = gaps[np.arange(300), np.asarray(found.assignment)]
  # Centres are float32 numbers of this size, in whose steps they may differ.
  assert np.all(chosen <= gaps.min(1) + 2 * np.spacing(np.float32(5252)))
