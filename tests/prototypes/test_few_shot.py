"""Few supports: distances and decisions against NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from spherejax import prototypes

squared = prototypes.support_squared_distances
RNG = np.random.default_rng(0)
SUPPORTS = RNG.normal(size=(4, 3, 5))
QUERIES = RNG.normal(size=(7, 5))


def squares(queries, supports, representative):
  """[queries, classes], with NumPy."""
  if representative == "mean":
    supports = supports.mean(1, keepdims=True)
  return ((queries[:, None, None] - supports[None]) ** 2).sum(3).min(2)


def transformed(features, transform, centre):
  if transform == "none":
    return features
  rows = features - (centre if transform == "centred_l2" else 0)
  norms = np.sqrt((rows**2).sum(-1, keepdims=True))
  return np.where(norms > 0, rows / np.where(norms > 0, norms, 1), 0)


@pytest.mark.parametrize("representative", ["mean", "nearest"])
def test_squared_distances_and_gradients(representative, x64):
  distances = jax.jit(functools.partial(squared, representative=representative))
  expected = squares(QUERIES, SUPPORTS, representative)
  np.testing.assert_allclose(distances(QUERIES, SUPPORTS), expected, rtol=1e-12)
  options = {"rtol": 1e-6, "atol": 1e-6, "eps": 1e-6}
  check_grads(distances, (QUERIES, SUPPORTS), 1, ["rev"], **options)


def test_the_first_of_equally_near_supports_has_the_gradient():
  query, supports = jnp.zeros((1, 1)), jnp.array([[[1.0], [1.0]]])
  slopes = jax.grad(lambda s: squared(query, s, representative="nearest").sum())
  np.testing.assert_array_equal(slopes(supports), [[[2.0], [0.0]]])


def test_small_distances_keep_their_digits():
  query = np.full((1, 3), 100, np.float32)
  near = query[None] + np.array([0, 0, 2.0**-10], np.float32)
  np.testing.assert_array_equal(squared(query, near), [[2.0**-20]])


@pytest.mark.parametrize("transform", ["none", "l2", "centred_l2"])
@pytest.mark.parametrize("representative", ["mean", "nearest"])
def test_simple_shot_takes_the_nearest_class(transform, representative):
  base = np.array([0.5, -0.3, 0.2, 0.0, 0.1])
  for far in (1.0, 1000.0):  # from the origin
    supports, queries = ((a + far).astype(np.float32) for a in (SUPPORTS, QUERIES))
    centre = np.float32(base + far) if transform == "centred_l2" else None
    supports[0, 0] = queries[0] = 0 if centre is None else centre
    kind = {"transform": transform, "representative": representative}
    found = prototypes.simple_shot(queries, supports, centre=centre, **kind)
    wide = (np.float64(a) for a in (queries, supports))
    x, s = (transformed(a, transform, centre) for a in wide)
    expected = squares(x, s, representative)
    best = np.sort(expected, axis=1)
    clear = best[:, 1] - best[:, 0] > 1e-5 * far * best[:, 1]
    np.testing.assert_array_equal(found[clear], expected.argmin(1)[clear])
    assert clear.sum() > 4


def test_with_several_supports_it_is_no_cosine_classifier():
  spread = np.array([[[1.0, 3.0], [1.0, -3.0]], [[0.5, 1.0], [0.5, 1.0]]])
  query = np.array([[2.0, 0.9]])
  assert prototypes.simple_shot(query, spread, transform="l2")[0] == 1
  cosine = transformed(transformed(spread, "l2", None).mean(1), "l2", None)
  assert np.argmax(cosine @ query[0]) == 0


def test_features_far_from_the_origin_keep_their_digits():
  random = np.random.default_rng(1)
  far = random.normal(size=64) * 100
  supports = (far + random.normal(size=(5, 1, 64)) * 1e-2).astype(np.float32)
  queries = supports[:, 0] + random.normal(size=(5, 64)).astype(np.float32) * 1e-2
  expected = squares(queries.astype(float), supports.astype(float), "mean").argmin(1)
  for representative in ("mean", "nearest"):
    found = prototypes.simple_shot(queries, supports, representative=representative)
    np.testing.assert_array_equal(found, expected)


def test_equals_go_to_the_lowest_class():
  supports = np.array([[[1.0, 0.0]], [[-1.0, 0.0]], [[1.0, 0.0]]])
  found = prototypes.simple_shot(np.array([[0.0, 3.0], [2.0, 1.0]]), supports)
  np.testing.assert_array_equal(found, [0, 0])


@pytest.mark.parametrize("representative", ["mean", "nearest"])
def test_accuracies_of_many_episodes_are_those_of_each(representative):
  features = RNG.normal(size=(40, 6)) + np.repeat(np.eye(4, 6), 10, 0)
  episodes = np.int32(
    [
      [10 * c + RNG.permutation(10)[:5] for c in RNG.permutation(4)[:3]]
      for _ in range(21)
    ]
  )
  kind = {"transform": "centred_l2", "centre": features.mean(0)}
  kind |= {"representative": representative, "block_size": 4}
  found = prototypes.episode_accuracies(features, episodes, num_shots=2, **kind)
  rows = transformed(features, "centred_l2", features.mean(0))
  expected = []
  for episode in episodes:
    right = []
    for y, own in enumerate(episode):
      near = squares(rows[own[2:]], rows[episode[:, :2]], representative)
      right += list(near.argmin(1) == y)
    expected.append(np.mean(right))
  np.testing.assert_allclose(found, expected, rtol=1e-6)
  assert len(set(expected)) > 3


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("representative", ["mean", "nearest"])
def test_a_class_without_a_finite_centre_is_never_chosen(representative, value):
  supports, queries = SUPPORTS.copy(), np.concatenate([QUERIES, SUPPORTS[:, 1]])
  supports[2, :, 0], supports[1, 0, 3] = value, value
  expected = squares(queries, supports, representative)
  if representative == "nearest":  # the other supports of class 1 count
    pairs = ((queries[:, None, None] - supports[None]) ** 2).sum(3)
    expected = np.where(np.isfinite(pairs), pairs, np.inf).min(2)
  expected = np.where(np.isfinite(expected), expected, np.inf).argmin(1)
  assert set(expected) == {0, 3} | ({1} if representative == "nearest" else set())
  kind = {"representative": representative}
  found = prototypes.simple_shot(queries, supports, **kind)
  np.testing.assert_array_equal(found, expected)
  none = prototypes.simple_shot(queries, np.full((2, 1, 5), value), **kind)
  np.testing.assert_array_equal(none, -1)
  features = np.array([[0], [10], [value], [0], [10], [5]])
  episodes = np.array([[[0, 3], [1, 4], [2, 5]]])
  found = prototypes.episode_accuracies(features, episodes, num_shots=1, **kind)
  np.testing.assert_allclose(found, [2 / 3], rtol=1e-6)
