"""Long-tailed parts of image sets, and examples blended in pairs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import data, losses


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
