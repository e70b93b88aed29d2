"""Properties of softmax, NormFace and P2SGrad beyond those of every loss."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from spherejax import losses
from tests.losses.cases._parts import matrix_of, project, squared
from tests.losses.slopes import with_slopes

LOGITS = np.random.default_rng(0).normal(size=(4, 5))
LABELS = np.array([0, 4, 2, 2], np.int32)


@pytest.mark.parametrize("soft", [False, True])
def test_small_losses_keep_their_digits_and_gradients(soft):
  """Log-sum-exp minus the target is 0 in float32 as soon as the row is confident."""
  labels = np.eye(1, 3, dtype=np.float32) if soft else np.array([0])
  loss = with_slopes(lambda z: losses.softmax(z, labels))
  values, gradient = loss(np.float32([[64, -16, 16]]))
  first, second = math.exp(-80), math.exp(-48)
  np.testing.assert_allclose(values, [first + second], rtol=1e-5)
  np.testing.assert_allclose(gradient, [[-first - second, first, second]], rtol=1e-5)


@pytest.mark.parametrize("scale", [0.5, 10.0])
def test_normface_is_a_softmax_of_squares_on_a_sphere_of_its_scale(scale, x64):
  """Squared distances are between points of norm sqrt(scale / 2), not sqrt(5 / 2)."""
  x, proxies = np.split(project(np.random.default_rng(2).normal(size=(9, 3))), [4])
  values = losses.normface(x @ proxies.T, LABELS, scale=scale)

  def of_squares(radius):
    logits = -(radius**2) * matrix_of(squared, x, proxies)
    return -special.log_softmax(logits, axis=1)[np.arange(4), LABELS]

  np.testing.assert_allclose(values, of_squares(math.sqrt(scale / 2)), rtol=1e-12)
  assert np.abs(values - of_squares(math.sqrt(5 / 2))).max() > 0.1


def test_normface_at_large_scales_in_float32():
  loss = with_slopes(lambda c, s: losses.normface(c, np.array([0]), scale=s))
  for cosines, scale, value, slopes in (
    ([-1, 0, 0], 200.0, 200.69314718, [-200, 100, 100]),
    ([-39, 39, -39], 256.0, 78 * 256, [-256, 256, 0]),
  ):
    values, gradient = loss(np.float32([cosines]), scale)
    np.testing.assert_allclose(values, [value], rtol=1e-6)
    np.testing.assert_allclose(gradient, [slopes], rtol=1e-6)


def test_traced_labels_outside_make_masked_rows(x64):
  outside = np.array([0, 5, 2, -1], np.int32)
  holed = np.where(outside[:, None] == 5, np.nan, LOGITS)
  values, gradient = with_slopes(losses.softmax)(holed, outside)
  right = losses.softmax(LOGITS[[0, 2]], LABELS[[0, 2]])
  np.testing.assert_allclose(values, [right[0], 0, right[1], 0], rtol=1e-12)
  np.testing.assert_array_equal(gradient[jnp.array([1, 3])], np.zeros((2, 5)))


def test_one_class_has_no_loss_and_not_a_number_is_not_repaired():
  values = losses.normface(jnp.array([[0.3], [-1.0]]), jnp.array([0, 0]))
  np.testing.assert_array_equal(values, [0, 0])
  values = losses.normface(np.float32([[np.nan, 0.5], [0.1, 0.2]]), np.ones(2, int))
  np.testing.assert_array_equal(np.isnan(values), [True, False])
