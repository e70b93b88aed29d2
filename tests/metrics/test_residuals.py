"""Deviations from class means: their sums, their variance, and features with more."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import metrics

RANDOM = np.random.default_rng(0)
CLASSES, DIM = 4, 6
LABELS = np.repeat(np.arange(CLASSES), 50)
FEATURES = (
  RANDOM.normal(size=(200, DIM)) * np.geomspace(2, 0.1, DIM)
  + 5 * RANDOM.normal(size=(CLASSES, DIM))[LABELS]
).astype(np.float32)
KEY = jax.random.key(0)


def moments_of(features, labels):
  start = metrics.class_moments_init(CLASSES, DIM)
  return metrics.class_moments_update(start, features, labels)


def residuals_by_loop(features, labels):
  wide = features.astype(np.float64)
  means = {c: wide[labels == c].mean(0) for c in set(labels.tolist())}
  return np.array([f - means[c] for f, c in zip(wide, labels.tolist(), strict=True)])


@functools.partial(jax.jit, static_argnames="kind")
def augment(features, residuals, labels, scale, kind):
  return metrics.augment_within_classes(
    KEY, features, residuals, labels, num_classes=CLASSES, scale=scale, kind=kind
  )


def test_residuals_sum_to_nothing_and_have_the_variance_within():
  moments = moments_of(FEATURES, LABELS)
  residuals = np.asarray(metrics.class_residuals(FEATURES, LABELS, moments))
  np.testing.assert_allclose(residuals, residuals_by_loop(FEATURES, LABELS), atol=5e-6)
  by_class = residuals.astype(np.float64).reshape(CLASSES, 50, DIM)
  assert np.abs(by_class.mean(1)).max() < 1e-5
  # All classes have 50 rows.
  mean_square = (by_class**2).sum(2).mean()
  np.testing.assert_allclose(
    mean_square, metrics.class_variance(moments).intra, rtol=1e-5
  )


@pytest.mark.parametrize("scale", [0.5, 1.0])
@pytest.mark.parametrize("kind", ["residual", "normal"])
def test_augmented_features_have_more_variance_and_the_same_means(kind, scale):
  """Doubled at scale 1, within a tenth."""
  before = moments_of(FEATURES, LABELS)
  residuals = metrics.class_residuals(FEATURES, LABELS, before)
  many = np.tile(FEATURES, (20, 1))
  moved = augment(many, residuals, LABELS, scale, kind)
  after = moments_of(moved, np.tile(LABELS, 20))
  grown = metrics.class_variance(after).intra / metrics.class_variance(before).intra
  np.testing.assert_allclose(grown, 1 + scale**2, rtol=0.1)
  np.testing.assert_allclose(after.means, before.means, atol=0.2 * scale)
  if kind == "residual":
    steps = (np.asarray(moved) - many) / scale
    apart = np.abs(steps[:50, None] - np.asarray(residuals)[None]).max(2)
    assert apart.min(1).max() < 1e-4


def test_normal_moves_weigh_the_classes_alike():
  """The covariance of the formula, of classes of 5 and 150."""
  labels = np.where(np.arange(155) < 5, 0, 2)
  features = RANDOM.normal(size=(155, DIM)).astype(np.float32)
  features[:5] *= 3
  residuals = residuals_by_loop(features, labels)
  sigma = sum(r.T @ r / len(r) / 2 for r in (residuals[:5], residuals[5:]))
  zeros = np.zeros((20_000, DIM), np.float32)
  moves = np.asarray(augment(zeros, np.float32(residuals), labels, 2.0, "normal"))
  covariance = moves.T.astype(np.float64) @ moves / len(moves)
  np.testing.assert_allclose(covariance, 4 * sigma, atol=0.02 * np.trace(4 * sigma))
  np.testing.assert_allclose(np.trace(covariance), 4 * np.trace(sigma), rtol=0.03)


def test_bfloat16_stays():
  short = jnp.asarray(FEATURES, jnp.bfloat16)
  residuals = metrics.class_residuals(short, LABELS, moments_of(FEATURES, LABELS))
  assert residuals.dtype == jnp.bfloat16
  assert augment(short, residuals, LABELS, 1.0, "residual").dtype == jnp.bfloat16
