"""Episodes: what is drawn, and how often."""

import collections
import functools

import jax
import numpy as np
import pytest
from scipy import stats

from spherejax import data

COUNTS = [7, 3, 12, 5, 6, 40]  # class 1 is too small for five images
LABELS = np.random.default_rng(0).permutation(np.repeat(range(6), COUNTS))
TABLE = data.class_table(LABELS.astype(np.int32), per_class=1)
KEYS = jax.random.split(jax.random.key(1), 4000)
draw = functools.partial(data.sample_episode, num_ways=3, num_shots=2, num_queries=3)
EPISODES = np.asarray(jax.jit(jax.vmap(draw, (0, None)))(KEYS, TABLE))


def test_rows_are_different_images_of_different_classes():
  assert EPISODES.shape == (4000, 3, 5)
  classes = LABELS[EPISODES]
  np.testing.assert_array_equal(classes, classes[:, :, :1].repeat(5, 2))
  assert all(len(set(each)) == 3 for each in classes[:, :, 0])
  assert all(len(set(each.ravel())) == 15 for each in EPISODES)
  # A table that is known while tracing gives the same.
  np.testing.assert_array_equal(draw(KEYS[17], TABLE), EPISODES[17])


def test_large_enough_classes_and_their_images_come_equally_often():
  classes = collections.Counter(LABELS[EPISODES[:, :, 0]].ravel().tolist())
  assert set(classes) == {0, 2, 3, 4, 5}
  assert stats.chisquare(list(classes.values())).pvalue > 1e-3
  for label in (0, 5):
    for place in (0, 4):  # a support and a query
      drawn = EPISODES[:, :, place]
      images = np.unique(drawn[LABELS[drawn] == label], return_counts=True)[1]
      assert len(images) == COUNTS[label]
      assert stats.chisquare(images).pvalue > 1e-3


@pytest.mark.parametrize(
  ("ways", "shots", "queries", "message"),
  [
    (5, 2, 5, "7 images of num_ways = 5 classes, but 3 of the 6"),
    (7, 1, 1, "class 1 of the table has 3"),
  ],
)
def test_too_few_classes_with_enough_images(ways, shots, queries, message):
  numbers = {"num_ways": ways, "num_shots": shots, "num_queries": queries}
  with pytest.raises(ValueError, match=message):
    data.sample_episode(jax.random.key(0), TABLE, **numbers)
