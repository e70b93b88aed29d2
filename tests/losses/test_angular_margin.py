"""Margins on angles: identities, monotony, tails."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import losses
from spherejax.losses import _turned

COSINES = np.tanh(np.random.default_rng(0).normal(size=(6, 5)))
LABELS = np.array([0, 4, 2, 2, 1, 3], np.int32)


def test_of_equal_centres_the_lowest_is_nearest(x64):
  tied = np.stack([COSINES - 0.5, COSINES, COSINES], axis=2)
  loss = jax.grad(lambda c: losses.subcentre_arcface(c, LABELS, scale=9.0).sum())
  gradient = np.asarray(jax.jit(loss)(tied))
  np.testing.assert_array_equal(gradient[..., [0, 2]], np.zeros((6, 5, 2)))
  assert np.abs(gradient[..., 1]).max() > 0.1


@functools.partial(jax.jit, static_argnames="tail")
def logit_of_class(cosines, margin, tail):
  """The logit of the own class of each cosine: one rival at cosine 0, scale 1."""
  table, labels = jnp.stack([cosines, 0 * cosines], 1), np.zeros(len(cosines), int)
  values = losses.arcface(table, labels, scale=1.0, margin=margin, tail=tail)
  return -jnp.log(jnp.expm1(values))


@pytest.mark.parametrize("tail", ["linear", "continuous"])
def test_own_logit_falls_with_the_angle_for_every_margin(tail, x64):
  angles = np.linspace(0, np.pi, 1001)
  for margin in (-math.pi / 2, -1.0, -0.5, 0.0, 0.5, 1.0, math.pi / 2):
    steps = np.diff(logit_of_class(np.cos(angles), margin, tail))
    assert (steps < 0).all(), margin
    if tail == "linear" and margin == 0.5:
      np.testing.assert_allclose(-steps.min(), 0.117, atol=2e-3)
    if tail == "continuous":
      assert -steps.min() < 5e-3
  assert (np.diff(np.cos(angles + 0.5)) > 0).any()


def test_margins_of_a_right_angle_are_taken(x64):
  """Known to the function, at both ends of what is not refused."""
  for margin in (-math.pi / 2, math.pi / 2):
    values = losses.arcface(COSINES, LABELS, scale=3.0, margin=margin)
    traced = jax.jit(losses.arcface)(COSINES, LABELS, scale=3.0, margin=margin)
    np.testing.assert_allclose(values, traced, rtol=1e-12)
    assert (values < losses.normface(COSINES, LABELS, scale=3.0)).all() == (margin < 0)


def test_small_angles_keep_their_digits():
  """In float32, where 1 - cos^2 of these angles has two or three digits."""
  angles = np.array([1e-3, 3e-3, 0.1, 1.0, 3.0])
  cosines = np.cos(angles).astype(np.float32)
  exact = np.arccos(cosines.astype(np.float64))
  for by in (0.5, -0.5, np.pi / 2):
    turned = _turned.turned(jnp.asarray(cosines), jnp.float32(by))
    np.testing.assert_allclose(turned, np.cos(exact + by), atol=2e-7)
  cut = _turned.turned(jnp.asarray(cosines), jnp.float32(0.5), noise=1e-5)
  np.testing.assert_allclose(cut[:2], cosines[:2] * np.cos(0.5), rtol=1e-6)


def test_derivatives_at_the_ends_are_finite():
  """Parallel and opposite to the weight, and beyond by rounding."""
  cosines = np.array([[1.0, 0.2], [-1.0, 0.2], [1.0000001, 0.2]], np.float32)

  @jax.jit
  @functools.partial(jax.grad, argnums=(0, 1))
  def slopes(c, margin):
    return losses.arcface(c, np.zeros(3, int), scale=2.0, margin=margin).sum()

  # p is the probability of the rival; the slope of the own logit is 2 cos(margin)
  gradient, slope = slopes(cosines, 0.5)[0], 2 * math.cos(0.5)
  p = 1 / (1 + np.exp(slope - 0.4))
  np.testing.assert_allclose(gradient[0], [-p * slope, 2 * p], rtol=1e-5)
  np.testing.assert_allclose(gradient[2], gradient[0], rtol=1e-5)
  for margin in (0.5, 0.0, -0.5):
    assert all(np.isfinite(slope).all() for slope in slopes(cosines, margin))


def test_sphereface_steps(x64):
  """Continuous, falling from 1 to 1 - 2 M with the angle."""
  angles = np.linspace(0, np.pi, 401)
  table = np.stack([np.cos(angles), 0 * angles], axis=1)
  for factor in (2, 3, 4):
    loss = jax.jit(functools.partial(losses.sphereface, margin=factor))
    logits = -np.log(np.expm1(loss(table, np.zeros(401, int), np.ones(401))))
    assert (np.diff(logits) < 1e-12).all()
    assert -np.diff(logits).min() < 0.02 * factor
    np.testing.assert_allclose(logits[[0, -1]], [1, 1 - 2 * factor], atol=1e-12)
