"""Triplets of classes of 1 to 5000 images, and episodes: what is drawn how often."""

import collections
import functools

import jax
import numpy as np
import pytest
from scipy import stats

from spherejax import data
from tests import refusals

SIZES = {0: 5, 3: 1, 4: 5000, 7: 2, 8: 60}
LABELS = np.random.default_rng(0).permutation(np.repeat([*SIZES], [*SIZES.values()]))
NAMES = np.array([*SIZES])


@functools.partial(jax.jit, static_argnames="distinct")
def sample(key, table, distinct):
  return data.sample_triplets(key, table, batch_size=20_000, distinct=distinct)


def is_uniform(counts):
  return stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("distinct", [True, False])
def test_classes_are_uniform_and_images_within_them(distinct):
  table = data.class_table(LABELS, per_class=1)
  drawn = sample(jax.random.key(1), table, distinct)
  anchor, positive, negative, own, other = map(np.asarray, drawn)
  np.testing.assert_array_equal(LABELS[anchor], NAMES[own])
  np.testing.assert_array_equal(LABELS[positive], NAMES[own])
  np.testing.assert_array_equal(LABELS[negative], NAMES[other])
  assert (own != other).all()
  counts = np.bincount(own, minlength=5)
  if distinct:
    assert (anchor != positive).all()
    assert counts[1] == 0  # class 3, which has a single image
    counts = np.delete(counts, 1)
  assert is_uniform(counts)
  for place in range(5):
    others = np.bincount(other[own == place], minlength=5)
    assert others[place] == 0
    if others.any():
      assert is_uniform(np.delete(others, place))
  # Images of the class 0, and the ordered pairs of them.
  five = np.flatnonzero(LABELS == 0)
  for images in (anchor, negative):
    assert is_uniform([(images == i).sum() for i in five])
  pairs = [(i, j) for i in five for j in five if i != j or not distinct]
  assert is_uniform([((anchor == i) & (positive == j)).sum() for i, j in pairs])


def test_steps_differ_and_a_plan_is_a_map_over_them():
  table = data.class_table(np.array([0, 0, 0, 2, 2, 2]), per_class=1)
  key = jax.random.key(0)

  def one(step):
    return data.sample_triplets(jax.random.fold_in(key, step), table, batch_size=4)

  plan = jax.jit(jax.vmap(one))(np.arange(50))
  assert plan.anchor.shape == (50, 4)
  assert len(np.unique(np.asarray(plan.anchor), axis=0)) > 20


# --- Episodes ---

COUNTS = [7, 3, 12, 5, 6, 40]  # class 1 is too small for five images
MIXED = np.random.default_rng(0).permutation(np.repeat(range(6), COUNTS))
TABLE = data.class_table(MIXED.astype(np.int32), per_class=1)
KEYS = jax.random.split(jax.random.key(1), 4000)
draw = functools.partial(data.sample_episode, num_ways=3, num_shots=2, num_queries=3)
EPISODES = np.asarray(jax.jit(jax.vmap(draw, (0, None)))(KEYS, TABLE))


def test_rows_are_different_images_of_different_classes():
  assert EPISODES.shape == (4000, 3, 5)
  classes = MIXED[EPISODES]
  np.testing.assert_array_equal(classes, classes[:, :, :1].repeat(5, 2))
  assert all(len(set(each)) == 3 for each in classes[:, :, 0])
  assert all(len(set(each.ravel())) == 15 for each in EPISODES)
  # A table that is known while tracing gives the same.
  np.testing.assert_array_equal(draw(KEYS[17], TABLE), EPISODES[17])


def test_large_enough_classes_and_their_images_come_equally_often():
  classes = collections.Counter(MIXED[EPISODES[:, :, 0]].ravel().tolist())
  assert set(classes) == {0, 2, 3, 4, 5}
  assert stats.chisquare(list(classes.values())).pvalue > 1e-3
  for label in (0, 5):
    for place in (0, 4):  # a support and a query
      drawn = EPISODES[:, :, place]
      images = np.unique(drawn[MIXED[drawn] == label], return_counts=True)[1]
      assert len(images) == COUNTS[label]
      assert stats.chisquare(images).pvalue > 1e-3


def triplets(*labels):
  table = data.class_table(np.array(labels), per_class=1)
  return functools.partial(data.sample_triplets, KEYS[0], table, batch_size=2)


def episode(ways, shots, queries):
  numbers = {"num_ways": ways, "num_shots": shots, "num_queries": queries}
  return functools.partial(data.sample_episode, KEYS[0], TABLE, **numbers)


REFUSED = [
  (triplets(5, 5), "at least two classes with images, got 1"),
  (triplets(0, 1, 2), "each of the 3 classes has one"),
  (episode(5, 2, 5), "7 images of num_ways = 5 classes, but 3 of the 6"),
  (episode(7, 1, 1), "class 1 of the table has 3"),
]


@refusals.table(REFUSED)
def test_classes_that_give_no_triplets_or_no_episodes(call, message):
  refusals.check(call, message)
