"""Properties of softmax, NormFace and P2SGrad beyond those of every loss."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import losses

LOGITS = np.random.default_rng(0).normal(size=(4, 5))
LABELS = np.array([0, 4, 2, 2], np.int32)


@pytest.mark.parametrize("soft", [False, True])
def test_small_losses_keep_their_digits_and_gradients(soft):
  """Log-sum-exp minus the target is 0 in float32 as soon as the row is confident."""
  logits = np.array([[64.0, -16.0, 16.0]], np.float32)
  labels = np.eye(1, 3, dtype=np.float32) if soft else np.array([0])
  loss = jax.jit(jax.value_and_grad(lambda z: losses.softmax(z, labels)[0]))
  value, gradient = loss(logits)
  first, second = math.exp(-80), math.exp(-48)
  np.testing.assert_allclose(value, first + second, rtol=1e-5)
  np.testing.assert_allclose(gradient, [[-first - second, first, second]], rtol=1e-5)


@pytest.mark.parametrize("scale", [0.5, 10.0])
def test_normface_is_a_softmax_of_squares_on_a_sphere_of_its_scale(scale, x64):
  """Squared distances are between points of norm sqrt(scale / 2), not sqrt(5 / 2)."""
  rng = np.random.default_rng(2)
  x, proxies = (
    rows / np.linalg.norm(rows, axis=1, keepdims=True)
    for rows in (rng.normal(size=(4, 3)), rng.normal(size=(5, 3)))
  )
  found = losses.normface(x @ proxies.T, LABELS, scale=scale)

  def of_squares(radius):
    apart = radius * x[:, None] - radius * proxies[None]
    shares = np.exp(-(apart**2).sum(-1))
    return -np.log(shares[np.arange(4), LABELS] / shares.sum(1))

  np.testing.assert_allclose(found, of_squares(math.sqrt(scale / 2)), rtol=1e-12)
  assert np.abs(found - of_squares(math.sqrt(5 / 2))).max() > 0.1


def test_normface_at_large_scales_in_float32():
  loss = jax.jit(
    jax.value_and_grad(lambda c, s: losses.normface(c, np.array([0]), scale=s)[0])
  )
  value, gradient = loss(np.array([[-1.0, 0.0, 0.0]], np.float32), 200.0)
  np.testing.assert_allclose(value, 200.69314718, rtol=1e-6)
  np.testing.assert_allclose(gradient, [[-200, 100, 100]], rtol=1e-6)
  value, gradient = loss(np.array([[-39.0, 39.0, -39.0]], np.float32), 256.0)
  np.testing.assert_allclose(value, 78 * 256, rtol=1e-6)
  np.testing.assert_allclose(gradient, [[-256, 256, 0]], rtol=1e-6)


def test_traced_labels_outside_make_masked_rows(x64):
  outside = np.array([0, 5, 2, -1], np.int32)
  step = jax.jit(jax.value_and_grad(lambda z, y: losses.softmax(z, y).sum()))
  value, gradient = step(np.where(outside[:, None] == 5, np.nan, LOGITS), outside)
  right = losses.softmax(LOGITS[[0, 2]], LABELS[[0, 2]]).sum()
  np.testing.assert_allclose(value, right, rtol=1e-12)
  np.testing.assert_array_equal(gradient[jnp.array([1, 3])], np.zeros((2, 5)))


def test_one_class_has_no_loss_and_not_a_number_is_not_repaired():
  values = losses.normface(jnp.array([[0.3], [-1.0]]), jnp.array([0, 0]))
  np.testing.assert_array_equal(values, [0, 0])
  cosines = np.array([[np.nan, 0.5], [0.1, 0.2]], np.float32)
  values = losses.normface(cosines, np.array([1, 1]))
  np.testing.assert_array_equal(np.isnan(values), [True, False])
