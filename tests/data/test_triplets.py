"""Triplets of classes of 1 to 5000 images: who is drawn how often."""

import functools

import jax
import numpy as np
import pytest
from scipy import stats

from spherejax import data

SIZES = {0: 5, 3: 1, 4: 5000, 7: 2, 8: 60}
LABELS = np.random.default_rng(0).permutation(np.repeat([*SIZES], [*SIZES.values()]))
NAMES = np.array([*SIZES])
BATCH = 20_000


@functools.partial(jax.jit, static_argnames="distinct")
def sample(key, table, distinct):
  return data.sample_triplets(key, table, batch_size=BATCH, distinct=distinct)


def is_uniform(counts):
  return stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("distinct", [True, False])
def test_classes_are_uniform_and_images_within_them(distinct):
  table = data.class_table(LABELS, per_class=1)
  drawn, again = (sample(jax.random.key(1), table, distinct) for _ in range(2))
  jax.tree.map(np.testing.assert_array_equal, drawn, again)
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


def test_what_gives_no_triplets():
  for labels, message in (
    ([5, 5], "at least two classes with images, got 1"),
    ([0, 1, 2], "each of the 3 classes has one"),
  ):
    table = data.class_table(np.array(labels), per_class=1)
    with pytest.raises(ValueError, match=message):
      data.sample_triplets(jax.random.key(0), table, batch_size=2)
