import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import _versions, data

KEY = jax.random.key(5)
# Labels 1 and 6 do not occur; classes of 3 to 40 images, in mixed order.
SIZES = {0: 5, 2: 3, 3: 40, 4: 9, 5: 3, 7: 12}
LABELS = np.random.default_rng(0).permutation(np.repeat([*SIZES], [*SIZES.values()]))
TABLE = data.class_table(LABELS, per_class=3)
BALANCED = {"num_classes": 4, "per_class": 3}


@functools.partial(jax.jit, static_argnums=(3, 4))
def balanced(key, table, steps, num_classes=4, per_class=3):
  options = {"num_classes": num_classes, "per_class": per_class}
  draw = functools.partial(data.class_balanced_indices, key, table, **options)
  return jax.vmap(draw)(steps)


@functools.partial(jax.jit, static_argnums=(1, 3))
def shuffled(key, count, steps, batch_size):
  draw = functools.partial(data.shuffled_indices, key, count, batch_size=batch_size)
  return jax.vmap(draw)(steps)


def chi_square(counts, expected):
  return ((counts - expected) ** 2 / expected).sum()


@pytest.fixture(scope="module")
def plan():
  return np.asarray(balanced(KEY, TABLE, jnp.arange(6000)))


def test_the_table_lists_the_images_of_each_class():
  assert TABLE.counts.tolist() == [*SIZES.values()]
  for label, start, count in zip(SIZES, TABLE.starts, TABLE.counts, strict=True):
    members = TABLE.order[start : start + count]
    np.testing.assert_array_equal(members, np.flatnonzero(label == LABELS))


def test_batches_are_balanced_and_class_by_class(plan):
  assert plan.shape == (6000, 12)
  assert plan.dtype == jnp.int32
  labels = LABELS[plan[:200]].reshape(200, 4, 3)
  assert (labels == labels[:, :, :1]).all()
  assert (np.diff(np.sort(labels[:, :, 0], 1)) > 0).all()
  # Two classes have three images, all of which are taken.
  assert (np.diff(np.sort(plan[:200], 1)) > 0).all()


def test_a_batch_depends_on_its_step_alone(plan):
  later = balanced(KEY, TABLE, jnp.arange(1500, 7500))
  np.testing.assert_array_equal(later[:4500], plan[1500:])
  # A single step, the table known while tracing: as in a training loop.
  draw = jax.jit(lambda step: data.class_balanced_indices(KEY, TABLE, step, **BALANCED))
  np.testing.assert_array_equal(draw(17), plan[17])
  assert len(np.unique(plan[:200], axis=0)) == 200
  other = np.asarray(balanced(jax.random.key(6), TABLE, jnp.arange(6000)))
  assert (other != plan).any(1).all()


def test_classes_and_images_are_drawn_evenly(plan):
  # 24,000 draws over 6 classes; upper 1e-6 quantile of chi-square, 5 d.o.f.: 35.9.
  # Draws without replacement within a batch make the counts even more alike.
  counts = np.bincount(LABELS[plan[:, ::3]].ravel(), minlength=8)[[*SIZES]]
  assert counts.sum() == 24_000
  assert chi_square(counts, 4000.0) < 35.9
  # Within the largest class; 39 d.o.f.: 98.
  images = np.bincount(plan.ravel(), minlength=len(LABELS))[LABELS == 3]
  assert chi_square(images, images.sum() / 40) < 98


def test_draws_without_replacement_are_uniform_over_orders():
  table = data.class_table(np.arange(4), per_class=1)
  plan = np.asarray(balanced(KEY, table, jnp.arange(4800), 4, 1))
  orders = np.array(list(itertools.permutations(range(4))))
  counts = (plan == orders[:, None]).all(2).sum(1)
  assert counts.sum() == 4800
  # Upper 1e-6 quantile of chi-square at 23 degrees of freedom.
  assert chi_square(counts, 200) < 70.5


def test_classes_with_too_few_images_are_named():
  message = r"at least per_class=4 images, but class 2 \(fox\) has 3, 5 has 3$"
  with pytest.raises(ValueError, match=message):
    data.class_table(LABELS, per_class=4, label_names=["", "", "fox"])
  with pytest.raises(ValueError, match=r"7 has 1, 8 has 1 and 5 more classes"):
    data.class_table(np.arange(4, 14), per_class=2)
  with pytest.raises(ValueError, match=r"the 3 images of the smallest class, got 4"):
    data.class_balanced_indices(KEY, TABLE, 0, num_classes=2, per_class=4)


@pytest.mark.parametrize("count", [1, 3, 7, 1000])
def test_an_epoch_is_a_permutation(count):
  epochs = np.asarray(shuffled(KEY, count, jnp.arange(3 * count), 1)).reshape(3, count)
  np.testing.assert_array_equal(np.sort(epochs, axis=1), [np.arange(count)] * 3)
  if count >= 64:
    assert (epochs[0] != epochs[1]).mean() > 0.9
    # Neighbours in the data are not neighbours in the shuffle.
    assert (np.abs(np.diff(epochs[0])) == 1).mean() < 0.1


def test_shuffled_batches_leave_the_remainder_out():
  plan = np.asarray(shuffled(KEY, 10, jnp.arange(400), 4))
  assert plan.shape == (400, 4)
  assert (np.diff(np.sort(plan.reshape(200, 8), 1)) > 0).all()
  # Which two are left out changes: all images occur about equally often.
  counts = np.bincount(plan.ravel(), minlength=10)
  # Standard deviation of a count: sqrt(200 x 0.8 x 0.2) = 5.7; five of them.
  assert np.abs(counts - 160).max() < 29


def test_shuffles_are_even():
  # Where each image stands in the epoch, over 4000 epochs: 36 d.o.f. or fewer.
  plan = np.asarray(shuffled(KEY, 7, jnp.arange(4000), 7))
  counts = np.stack([np.bincount(place, minlength=7) for place in plan.T])
  assert chi_square(counts, 4000 / 7) < 88  # 1e-6 quantile at 36
  # And which image follows which.
  pairs = np.bincount((plan[:, :-1] * 7 + plan[:, 1:]).ravel(), minlength=49)
  pairs = np.delete(pairs, np.arange(0, 49, 8))
  assert chi_square(pairs, 24_000 / 42) < 97  # 1e-6 quantile at 41


def test_shuffled_batches_depend_on_their_step_alone():
  plan = np.asarray(shuffled(KEY, 50, jnp.arange(30), 8))
  later = shuffled(KEY, 50, jnp.arange(20, 50), 8)
  np.testing.assert_array_equal(later[:10], plan[20:])
  draw = jax.jit(lambda step: data.shuffled_indices(KEY, 50, step, batch_size=8))
  np.testing.assert_array_equal(draw(23), plan[23])
  assert (shuffled(jax.random.key(1), 50, jnp.arange(30), 8) != plan).any()


@pytest.mark.usefixtures("x64")
def test_float64_draws_the_same_images(plan):
  wide = balanced(KEY, data.class_table(LABELS, per_class=3), jnp.arange(4))
  assert wide.dtype == jnp.int32
  np.testing.assert_array_equal(wide, plan[:4])
  wide = shuffled(KEY, 10, jnp.arange(3), 4)
  assert wide.dtype == jnp.int32
  with _versions.enable_x64(False):
    np.testing.assert_array_equal(wide, shuffled(KEY, 10, jnp.arange(3), 4))


def test_ordered_plans_hold_all_images_in_order():
  plan = data.ordered_plan(11, batch_size=4)
  np.testing.assert_array_equal(plan.ravel(), [*range(11), 0])
  assert data.ordered_plan(3, batch_size=8).tolist() == [[0, 1, 2, 0, 1, 2, 0, 1]]


def test_pools_take_all_images_of_a_class_before_one_of_them_again():
  labels = np.array([3, 0, 0, 3, 3, 3, 5, 3, 3, 3])
  table = data.class_table(labels, per_class=1)
  draw = jax.jit(jax.vmap(lambda key: data.class_pools(key, table, size=5)))
  pools = np.asarray(draw(jax.random.split(KEY, 400)))
  assert pools.shape == (400, 3, 5)
  assert (labels[pools] == [[0], [3], [5]]).all()
  pairs = np.sort(pools[:, 0, :4].reshape(400, 2, 2))
  assert (pairs == [1, 2]).all()
  assert (np.diff(np.sort(pools[:, 1])) > 0).all()  # five of seven
  assert (pools[:, 2] == 6).all()
  # Uniform: 2000 draws over seven images, chi-square with 6 degrees of freedom.
  counts = np.bincount(pools[:, 1].ravel(), minlength=10)[labels == 3]
  assert chi_square(counts, 2000 / 7) < 22.5
  assert 140 < (pools[:, 0, 4] == 1).sum() < 260


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg"])
def test_keys_whose_draws_depend_on_vmap(impl):
  key = jax.random.key(0, impl=impl)
  assert sorted(np.ravel(shuffled(key, 12, jnp.arange(6), 2))) == list(range(12))
  for step, row in enumerate(balanced(key, TABLE, jnp.arange(4))):
    alone = data.class_balanced_indices(key, TABLE, step, **BALANCED)
    np.testing.assert_array_equal(row, alone)
  pools = [data.class_pools(k, TABLE, size=3) for k in (key, jax.random.key(0))]
  np.testing.assert_array_equal(*pools)
