"""Properties of the triplet loss beyond those of every loss."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import distances, losses, prototypes
from tests.losses.slopes import with_slopes

KINDS = ["all", "violating", "hard", "semihard"]


def sums(d, positives, negatives, margin, mining, weights=1.0):
  """Values and slopes of the sum of hinges of each row, and counts of triplets."""
  d, weights = np.asarray(d, float), np.broadcast_to(weights, d.shape).astype(float)
  gaps = d[:, None] - d[..., None]  # [anchors, positives, negatives]
  mined = (weights * positives)[..., None] * (weights * negatives)[:, None]
  if mining != "all":
    mined = mined * (gaps <= margin)
  if mining in ("hard", "semihard"):
    mined = mined * ((gaps <= 0) == (mining == "hard"))
  active = mined * (gaps < margin)
  values = (active * (margin - gaps)).sum((1, 2))
  return values, active.sum(2) - active.sum(1), active.sum(), mined.sum()


@functools.cache
def compiled(**static):
  def loss(matrix, positives, negatives, where, margin):
    return losses.triplet_from_distance(
      matrix, positives, negatives, margin=margin, where=where, **static
    )

  return with_slopes(loss)


@pytest.mark.parametrize("mining", KINDS)
@pytest.mark.parametrize("average", ["nonzero", "all"])
def test_ties_are_inactive_and_masked_rows_deleted(mining, average, x64):
  """Small integers: many triplets lie exactly on the margin, or on the positive."""
  generator = np.random.default_rng(12)
  keep = np.array([True, True, False, True, True])
  for margin in (1.0, -1.0, 0.0):
    matrix = generator.integers(0, 4, (5, 9)).astype(np.float64)
    role = generator.integers(0, 3, (5, 9))
    role[3] = 2  # no pair
    matrix[2] = np.nan
    values, gradient = compiled(mining=mining, average=average)(
      matrix, role == 0, role == 1, keep, margin
    )
    right, slopes, active, mined = sums(
      matrix[keep], role[keep] == 0, role[keep] == 1, margin, mining
    )
    count = active if average == "nonzero" else mined
    share = 4 / count if count else 0
    np.testing.assert_allclose(values[keep], share * right, rtol=1e-12)
    np.testing.assert_allclose(gradient[keep], share * slopes, rtol=1e-12)
    assert values[2] == 0
    np.testing.assert_array_equal(gradient[2], np.zeros(9))


@pytest.mark.parametrize("mining", KINDS)
def test_sorted_rows_and_weights_equal_the_sum_over_all_triplets(mining):
  """Many positives are counted in sorted rows; weights never are."""
  generator = np.random.default_rng(13)
  matrix = generator.integers(0, 40, (2, 240)).astype(np.float32)
  same = generator.random((2, 240)) < 0.5
  assert same.sum(1).max() > 96
  weights = generator.choice([0.5, 1.0, 3.0], (2, 240)).astype(np.float32)
  call = compiled(mining=mining, average="all")
  weighted = weights, same * weights, ~same * weights
  for factor, *masks in ((1.0, same, ~same), weighted):
    values, gradient = call(matrix, *masks, np.ones(2, bool), 7.0)
    right, slopes, _, mined = sums(matrix, same, ~same, 7.0, mining, factor)
    np.testing.assert_allclose(values, 2 * right / mined, rtol=1e-6)
    np.testing.assert_allclose(gradient, 2 * slopes / mined, rtol=1e-6, atol=1e-9)


def test_weights_multiply_in_every_mining(x64):
  matrix = np.array([[0.3, 0.5, 0.45, 0.6]])
  weights = np.array([[2.0, 3.0, 0.5, 0.25]])
  same = np.array([[True, True, False, False]])
  masks = np.where(same, weights, 0), np.where(same, 0, weights)

  def value(**static):
    return compiled(**static)(matrix, *masks, np.ones(1, bool), 0.2)[0]

  hard = value(mining="batch_hard", average="all")
  np.testing.assert_allclose(hard, 0.25)  # a single triplet: the weight cancels
  gaps, share = np.array([0.05, -0.1, 0.25, 0.1]), np.array([1, 0.5, 1.5, 0.75])
  soft = (share * np.logaddexp(0, gaps)).sum() / share.sum()
  np.testing.assert_allclose(value(soft=True), soft, rtol=1e-12)
  semihard = (1 * 0.05 + 0.75 * 0.1) / 1.75
  np.testing.assert_allclose(value(mining="semihard_one"), semihard, rtol=1e-12)


def test_ignored_pairs_may_hold_anything(x64):
  matrix = np.array([[0.5, np.nan, 0.25, np.inf]])
  positives = np.array([[True, False, False, False]])
  negatives = np.array([[False, False, True, False]])
  for static in ({}, {"mining": "batch_hard"}):
    values, gradient = compiled(**static)(
      matrix, positives, negatives, np.ones(1, bool), 0.1
    )
    np.testing.assert_allclose(values, [0.35], rtol=1e-12)
    np.testing.assert_array_equal(gradient, [[1, 0, -1, 0]])


@pytest.mark.parametrize("mining", ["all", "batch_hard"])
def test_not_a_number_is_not_repaired(mining):
  """A NaN that is not masked reaches the mean, as a positive and as a negative."""
  x = jnp.eye(3).at[0, 0].set(jnp.nan)
  for labels in ([0, 1, 1], [0, 0, 1]):
    assert np.isnan(losses.triplet(x, np.array(labels), mining=mining).mean())


def test_small_hinges_among_large_distances_keep_their_digits():
  """Late in training all distances are alike; steps of 2**-13 are exact in float32."""
  generator = np.random.default_rng(13)
  matrix = (1 + generator.integers(0, 9, (3, 150)) * 2.0**-13).astype(np.float32)
  same = generator.random((3, 150)) < 0.3
  values, _ = compiled(mining="all", average="nonzero")(
    matrix, same, ~same, np.ones(3, bool), 2.0**-12
  )
  right, _, active, _ = sums(matrix, same, ~same, 2.0**-12, "all")
  np.testing.assert_allclose(values, 3 * right / active, rtol=1e-6)


def test_batch_hard_does_not_multiply_backwards():
  """One product of the batch with itself; the gradient is that of 2 batch pairs."""
  x = jax.ShapeDtypeStruct((512, 256), jnp.float32)
  labels = jax.ShapeDtypeStruct((512,), jnp.int32)

  def loss(x, labels):
    return losses.triplet(x, labels, mining="batch_hard").sum()

  flops = jax.jit(jax.grad(loss)).lower(x, labels).compile().cost_analysis()["flops"]
  assert flops < 1.5 * 2 * 512 * 512 * 256


# --- one drawn triplet a row: the hinge of DIST, article I, on the unit sphere ---

NEAR = np.array([[True, False]] * 8)


@with_slopes
def hinges(raw, margin):
  """[batch], of the rows before l2."""
  a, p, n = distances.l2_normalize(raw)
  squares = [distances.squared_euclidean(a, other) for other in (p, n)]
  return losses.triplet_from_distance(
    jnp.stack(squares, 1), NEAR, ~NEAR, margin=margin, average="all"
  )


def test_drawn_hinges_at_the_edges():
  e = np.eye(5)
  rows = [
    (e[0], e[0], e[0]),  # all in one point: the margin, and no way out
    (e[0], e[0], e[1]),  # |a - n|^2 = 2: exactly at a margin of 2
    (0 * e[0], e[0], e[1]),  # a zero embedding is 1 away from every unit vector
    *[(e[0], e[1], e[2])] * 5,
  ]
  values, slopes = hinges(np.float32(rows).transpose(1, 0, 2), 2.0)
  np.testing.assert_allclose(values[:3], [2, 0, 2], atol=1e-6)
  assert (slopes[:, :2] == 0).all()
  assert (slopes[0, 2] == 0).all()
  assert np.isfinite(slopes).all()


def test_collapsed_classes_are_free_of_loss_up_to_the_simplex():
  """2 C / (C - 1) is the largest margin that C classes can have (Rankin)."""
  for classes in (2, 3, 5):
    points = np.asarray(prototypes.simplex(None, classes, 5, rotate=False))
    most = 2 * classes / (classes - 1)
    raw = np.tile(points[[0, 0, 1], None], (1, 8, 1))
    assert (hinges(raw, most - 1e-4)[0] == 0).all()
    np.testing.assert_allclose(hinges(raw, most + 1e-3)[0], 1e-3, atol=2e-5)
