"""Splits, long-tailed parts of image sets, and examples blended in pairs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import data, losses

LABELS = np.array([3, 0, 1, 2, 3, 5, 0, 0, 1, 2, 3, 5, 5, 5, 0])


def assert_covers(parts, count):
  np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(count))
  for part in parts:
    assert (np.diff(part) > 0).all()


def test_first_half_of_the_classes():
  first, second = data.split_classes(LABELS)
  # Five classes occur; half of five, half up, is three.
  assert set(LABELS[first]) == {0, 1, 2}
  assert set(LABELS[second]) == {3, 5}
  assert_covers((first, second), len(LABELS))


def test_class_fractions():
  labels = np.repeat(np.arange(10), 3)
  parts = data.split_classes(labels, fractions=(0.6, 0.2, 0.2))
  assert [set(labels[part]) for part in parts] == [{0, 1, 2, 3, 4, 5}, {6, 7}, {8, 9}]
  assert_covers(parts, 30)


def test_classes_drawn_with_a_key():
  labels = np.tile(np.arange(20), 2)
  drawn = [data.split_classes(labels, key=jax.random.key(seed)) for seed in (0, 0, 1)]
  for first, second in drawn:
    assert len(set(labels[first])) == 10
    assert not set(labels[first]) & set(labels[second])
    assert_covers((first, second), 40)
  np.testing.assert_array_equal(drawn[0][0], drawn[1][0])
  assert set(labels[drawn[0][0]]) != set(labels[drawn[2][0]])
  assert set(labels[drawn[0][0]]) != set(range(10))


def test_given_groups():
  groups = [[5, 1], [0], [2]]
  parts = data.split_classes(LABELS, groups=groups)
  for part, classes in zip(parts, groups, strict=True):
    np.testing.assert_array_equal(part, np.flatnonzero(np.isin(LABELS, classes)))


def test_ordered_within_classes():
  # 4 of class 0, 2 of 1 and 2, 3 of 3, 4 of 5: half, half up, is 2, 1, 1, 2, 2.
  first, second = data.split_within_classes(LABELS)
  np.testing.assert_array_equal(first, [0, 1, 2, 3, 4, 5, 6, 11])
  assert_covers((first, second), len(LABELS))


def test_many_classes_in_any_order_are_split_as_one_by_one():
  random = np.random.default_rng(0)
  labels = random.integers(0, 60, 500) * 7  # with gaps between the labels
  parts = data.split_within_classes(labels, fractions=(0.5, 0.3, 0.2))
  expected = [[], [], []]
  for label in set(labels.tolist()):
    rows = np.flatnonzero(labels == label)
    ends = [int(len(rows) * share + 0.5 + 1e-6) for share in (0.5, 0.8)]
    for part, more in zip(expected, np.split(rows, ends), strict=True):
      part.extend(more)
  for part, wanted in zip(parts, expected, strict=True):
    np.testing.assert_array_equal(part, sorted(wanted))


def test_random_within_classes():
  labels, key = np.arange(300) % 3, jax.random.key(3)
  parts, again, ordered = (
    data.split_within_classes(labels, fractions=(0.7, 0.1, 0.2), key=key)
    for key in (key, key, None)
  )
  for part, size in zip(parts, (70, 10, 20), strict=True):
    np.testing.assert_array_equal(np.bincount(labels[part]), [size] * 3)
  assert_covers(parts, 300)
  np.testing.assert_array_equal(parts[1], again[1])
  assert not np.array_equal(parts[0], ordered[0])
  # Every image is in the first part about seven times in ten.
  drawn = [
    data.split_within_classes(labels, fractions=(0.7, 0.3), key=jax.random.key(seed))[0]
    for seed in range(40)
  ]
  share = np.bincount(np.concatenate(drawn), minlength=300) / 40
  # Standard deviation of a share of 40 is 0.072; 5.5 of them for 300 images.
  assert np.abs(share - 0.7).max() < 0.4


def test_rounding_of_fractions():
  # Sums of these floats miss 0.3 and 1 by a rounding error.
  parts = data.split_within_classes(np.zeros(10, int), fractions=[0.1] * 10)
  assert [len(part) for part in parts] == [1] * 10


def test_classes_of_64_bits_are_split_as_small_ones():
  small = np.array([0, 1, 2, 3, 0, 3, 2])
  large = small + 2**40
  for labels in (large, large.astype(np.uint64) + np.uint64(2**63)):
    for key in (None, jax.random.key(0)):
      parts, wanted = (data.split_classes(x, key=key) for x in (labels, small))
      for part, expected in zip(parts, wanted, strict=True):
        np.testing.assert_array_equal(part, expected)
    groups = [[int(labels[2])], [int(labels[0])]]
    np.testing.assert_array_equal(data.split_classes(labels, groups=groups)[0], [2, 6])


# --- Long tails, and mixup ---


@pytest.mark.parametrize(
  ("classes", "largest", "totals", "last"),
  [
    (10, 5000, {0.005: 11203, 0.01: 12406, 0.02: 13996}, (25, 50, 100)),
    (100, 500, {0.005: 9502, 0.01: 10847, 0.02: 12608}, (2, 5, 10)),
  ],
)
def test_the_counts_of_cifar_lt(classes, largest, totals, last):
  for (imbalance, total), end in zip(totals.items(), last, strict=True):
    counts = data.long_tail_counts(classes, largest, imbalance)
    assert (counts[0], counts[-1], counts.sum()) == (largest, end, total)
    assert (np.diff(counts) <= 0).all()


def test_the_counts_of_stl10_lt_and_counts_that_are_whole():
  expected = [500, 299, 179, 107, 64, 38, 23, 13, 8, 5]
  assert data.long_tail_counts(10, 500, 0.01).tolist() == expected
  # 100 x 0.29 and 1000 x 0.001^(k / 3), in decimal arithmetic.
  assert data.long_tail_counts(10, 100, 0.29)[-1] == 29
  assert data.long_tail_counts(4, 1000, 0.001).tolist() == [1000, 100, 10, 1]


def test_classes_keep_their_first_images_or_drawn_ones():
  labels = np.tile(np.arange(4), 27)  # 27 images of each class
  expected = [27, 9, 3, 1]
  first = data.long_tail(labels, 1 / 27 + 1e-9)
  rows = [np.flatnonzero(labels == c)[:count] for c, count in enumerate(expected)]
  np.testing.assert_array_equal(first, np.sort(np.concatenate(rows)))
  keys = (jax.random.key(seed) for seed in (0, 0, 1))
  drawn, again, other = (data.long_tail(labels, 1 / 27 + 1e-9, key=key) for key in keys)
  assert np.bincount(labels[drawn]).tolist() == expected
  np.testing.assert_array_equal(drawn, again)
  assert set(drawn) != set(first)
  assert set(drawn) != set(other)


def test_a_class_that_has_fewer_keeps_all_and_the_mean_is_the_largest():
  # As in SVHN, whose first class has fewer images than the mean of all.
  labels = np.repeat(np.arange(3), [4, 11, 9])  # mean 8
  kept = data.long_tail(labels, 0.25)
  assert np.bincount(labels[kept]).tolist() == [4, 4, 2]
  kept = data.long_tail(labels, 0.25, largest=18.9)  # 18.9, 9.45, 4.725
  assert np.bincount(labels[kept]).tolist() == [4, 9, 4]


def test_mixup_blends_inputs_and_labels_by_one_share_a_batch():
  rng = np.random.default_rng(0)
  inputs = rng.normal(size=(6, 2, 3)).astype(np.float32)
  cosines = np.tanh(rng.normal(size=(6, 6))).astype(np.float32)

  @jax.jit
  @jax.vmap
  def mix(key, alpha):
    mixed = data.mixup(key, inputs, jnp.eye(6), alpha=alpha)
    return *mixed, losses.pull(cosines, mixed.targets)

  keys = jax.random.split(jax.random.key(0), 80)
  alphas = np.repeat([1.0, 0.01], 40).astype(np.float32)
  shares = np.ones(80)
  blended, targets, pulls = map(np.asarray, mix(keys, alphas))
  together = targets @ inputs.reshape(6, 6)
  np.testing.assert_allclose(blended.reshape(80, 6, 6), together, atol=1e-5)
  by_hand = (targets * (cosines - 1) ** 2).sum(2) / 2
  np.testing.assert_allclose(pulls, by_hand, atol=1e-5)
  for number, soft in enumerate(targets):
    # Labels are the rows' numbers, so the targets are share 1 + (1 - share) p.
    alone = np.isclose(np.diag(soft), 1)
    if not alone.all():
      share = soft[~alone][:, ~alone].diagonal()[0]
      shares[number] = share
      partners = soft - share * np.eye(6)
      np.testing.assert_allclose(np.sort(partners, axis=1)[:, :5], 0, atol=1e-6)
      np.testing.assert_allclose(partners.max(0), 1 - share, atol=1e-6)
      np.testing.assert_allclose(partners.max(1), 1 - share, atol=1e-6)
  uniform, extreme = np.split(shares, 2)
  assert abs(uniform.mean() - 0.5) < 0.15
  assert 0.2 < uniform.std() < 0.38  # 0.289
  assert np.mean(np.abs(extreme - 0.5) > 0.45) > 0.85
