"""Pull losses: identities, mixed labels, class weights."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize

from spherejax import distances, losses
from tests.losses.slopes import with_slopes

COSINES = np.tanh(np.random.default_rng(0).normal(size=(4, 5)))
LABELS = np.array([0, 4, 2, 2], np.int32)


def test_identities(x64):
  pull = losses.pull(COSINES, LABELS)
  one_hot = losses.pull(COSINES, np.eye(5)[LABELS])
  np.testing.assert_allclose(one_hot, pull, rtol=1e-14)
  np.testing.assert_allclose(losses.hyperspherical(COSINES, LABELS), 2 * pull, 1e-14)
  squared = losses.dot_regression(3 * COSINES, LABELS, target=3.0)
  np.testing.assert_allclose(squared, 3 * pull, rtol=1e-13)
  x, p = (np.random.default_rng(seed).normal(size=(4, 3)) for seed in (1, 2))
  corr = losses.correlation(distances.pairwise_cosine(x, p), np.arange(4))
  np.testing.assert_allclose(corr, distances.chordal(x, p) ** 2 / 2, rtol=1e-12)


def test_gradient_by_the_embedding(x64):
  """-(1 - c)(p - c z)/|u|; none at, opposite to and, for a zero row, anywhere."""
  p = np.array([[1.0, 0.0]])
  angles = np.array([0.0, 0.7, 2 * math.pi / 3, math.pi])
  u = np.zeros((5, 2))
  u[:4] = 2 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
  u[[0, 3], 1] = 0
  values, gradient = with_slopes(
    lambda u: losses.pull(distances.pairwise_cosine(u, p), np.zeros(5, int))
  )(u)
  c = np.array([1, math.cos(0.7), -0.5, -1, 0])
  np.testing.assert_allclose(values, (1 - c) ** 2 / 2, rtol=1e-12, atol=1e-15)
  right = -(1 - c)[:, None] * (p - c[:, None] * u / 2) / 2
  right[4] = 0
  np.testing.assert_allclose(gradient, right, rtol=1e-10, atol=1e-15)
  np.testing.assert_allclose(np.linalg.norm(gradient[2]), 1.299 / 2, atol=1e-3)


def test_other_classes_may_hold_anything():
  cosines = np.float32([[0.5, np.inf], [np.nan, 0.0]])
  loss = with_slopes(lambda c, w: losses.pull(c, np.array([0, 1]), weights=w), (0, 1))
  values, (by_cosines, by_weights) = loss(cosines, np.float32([2, 1]))
  np.testing.assert_allclose(values, [0.25, 0.5])
  np.testing.assert_allclose(by_cosines, [[-1, 0], [0, -1]])
  np.testing.assert_allclose(by_weights, [0.125, 0.5])
  # A share of 0 is a value, no mask: it has a slope.
  slope = jax.grad(lambda q: losses.pull(jnp.array([[0.5, 0.0]]), q).sum())
  np.testing.assert_allclose(slope(jnp.array([[1.0, 0.0]])), [[0.125, 0.5]])


def test_mixed_labels_do_not_pull_to_the_mixed_direction(x64):
  angles = np.radians(np.linspace(0, 90, 9001))
  cosines = np.stack([np.cos(angles), np.sin(angles)], axis=1)
  loss = jax.jit(losses.pull)

  def slope(angle, share):
    c, s = math.cos(angle), math.sin(angle)
    return share * (1 - c) * s - (1 - share) * (1 - s) * c

  for share, printed in ((0.8, 33.6), (0.9, 27.6), (0.5, 45.0)):
    values = loss(cosines, np.tile([share, 1 - share], (9001, 1)))
    angle = math.degrees(optimize.brentq(slope, 0, math.pi / 2, args=share))
    assert abs(np.argmin(values) / 100 - angle) <= 0.01
    assert abs(angle - printed) < 0.06


def test_weights_of_a_long_tail(x64):
  labels = np.array([0, 0, 0, 2, 2, 4], np.int32)
  weights = losses.inverse_frequency_weights(labels, 5)
  np.testing.assert_allclose(weights, [2 / 3, 0, 1, 0, 2], rtol=1e-14)
  none = losses.inverse_frequency_weights(labels, 5, where=np.zeros(6, bool))
  np.testing.assert_array_equal(none, np.zeros(5))
