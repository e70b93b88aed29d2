import jax
import numpy as np

from spherejax import data

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
  parts = data.split_classes(LABELS, groups=[[5, 1], [0], [2]])
  for part, classes in zip(parts, ([5, 1], [0], [2]), strict=True):
    expected = [i for i, label in enumerate(LABELS) if label in classes]
    np.testing.assert_array_equal(part, expected)


def test_ordered_within_classes():
  # 4 of class 0, 2 of 1 and 2, 3 of 3, 4 of 5: half, half up, is 2, 1, 1, 2, 2.
  first, second = data.split_within_classes(LABELS)
  np.testing.assert_array_equal(first, [0, 1, 2, 3, 4, 5, 6, 11])
  assert_covers((first, second), len(LABELS))


def test_many_classes_in_any_order_are_split_as_one_by_one():
  random = np.random.default_rng(0)
  labels = random.integers(0, 60, 500) * 7  # with gaps between the labels
  found = data.split_within_classes(labels, fractions=(0.5, 0.3, 0.2))
  expected = [[], [], []]
  for label in set(labels.tolist()):
    own = [i for i, other in enumerate(labels) if other == label]
    ends = [int(len(own) * share + 0.5 + 1e-6) for share in (0.5, 0.8, 1.0)]
    for part, start, end in zip(expected, [0, *ends], ends, strict=False):
      part += own[start:end]
  for part, wanted in zip(found, expected, strict=True):
    np.testing.assert_array_equal(part, sorted(wanted))


def test_random_within_classes():
  labels = np.arange(300) % 3
  key = jax.random.key(3)
  parts = data.split_within_classes(labels, fractions=(0.7, 0.1, 0.2), key=key)
  for part, size in zip(parts, (70, 10, 20), strict=True):
    np.testing.assert_array_equal(np.bincount(labels[part]), [size] * 3)
  assert_covers(parts, 300)
  again = data.split_within_classes(labels, fractions=(0.7, 0.1, 0.2), key=key)
  np.testing.assert_array_equal(parts[1], again[1])
  ordered = data.split_within_classes(labels, fractions=(0.7, 0.1, 0.2))
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
  key = jax.random.key(0)
  for labels in (large, large.astype(np.uint64) + np.uint64(2**63)):
    for keys in (None, key):
      found = data.split_classes(labels, key=keys)
      wanted = data.split_classes(small, key=keys)
      for part, expected in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(part, expected)
    groups = [[int(labels[2])], [int(labels[0])]]
    np.testing.assert_array_equal(data.split_classes(labels, groups=groups)[0], [2, 6])
