"""NormFace against a loop over the rows."""

import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import distances, losses


def oracle(cosines, labels, scale):
  """Values and d value_i / d cosine_ic; a label outside makes a masked row."""
  values, slope = np.zeros(len(cosines)), np.zeros(cosines.shape)
  for i, y in enumerate(labels):
    if 0 <= y < cosines.shape[1]:
      z = [scale * c for c in cosines[i]]
      total = sum(math.exp(u - max(z)) for u in z)
      values[i] = max(z) + math.log(total) - z[y]
      for c, u in enumerate(z):
        slope[i, c] = scale * (math.exp(u - max(z)) / total - (c == y))
  return values, slope


COSINES = np.random.default_rng(0).uniform(-1, 1, (8, 5))
LABELS = np.array([0, 4, 2, 2, 1, 0, 0, 3], np.int32)
KEEP = np.array([1, 0, 1, 1, 1, 1, 0, 1], bool)
COTANGENT = np.random.default_rng(1).uniform(0.2, 2, 8)


@jax.jit
def call(cosines, labels, scale, where, cotangent):
  values, pull = jax.vjp(
    lambda cosines, scale: losses.normface(cosines, labels, scale=scale, where=where),
    cosines,
    scale,
  )
  return values, *pull(cotangent)


def run(cosines, labels, scale, where, dtype=np.float64):
  return call(
    cosines.astype(dtype), labels, dtype(scale), where, COTANGENT.astype(dtype)
  )


@pytest.mark.parametrize("scale", [0.5, 7.0, 64.0, 256.0])
def test_values_and_gradients_equal_the_loop(scale, slopes, x64):
  values, gradient, by_scale = run(COSINES, LABELS, scale, np.ones(8, bool))
  right, slope = oracle(COSINES, LABELS, scale)
  assert values.dtype == jnp.float64
  np.testing.assert_allclose(values, right, rtol=1e-10, atol=1e-14)
  np.testing.assert_allclose(gradient, COTANGENT[:, None] * slope, rtol=1e-9, atol=1e-9)
  right = slopes(lambda s: COTANGENT @ oracle(COSINES, LABELS, float(s))[0], scale)
  np.testing.assert_allclose(by_scale, right, rtol=1e-6, atol=1e-8)
  if scale < 10:
    right = slopes(lambda c: COTANGENT @ oracle(c, LABELS, scale)[0], COSINES)
    np.testing.assert_allclose(gradient, right, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("scale", [0.5, 64.0, 256.0])
def test_float32_equals_the_loop(scale):
  cosines = COSINES.astype(np.float32)
  values, *_ = run(cosines, LABELS, scale, np.ones(8, bool), np.float32)
  assert values.dtype == jnp.float32
  right, _ = oracle(cosines.astype(np.float64), LABELS, scale)
  # exponents reach 2 scale, so the rounding of one is 2 scale * 2**-24
  np.testing.assert_allclose(values, right, rtol=4e-5 if scale > 100 else 2e-5)


def test_masked_rows_and_labels_outside(x64):
  labels = np.where(KEEP, LABELS, [0, 5, 0, 0, 0, 0, -1, 0]).astype(np.int32)
  right, slope = oracle(COSINES, labels, 7.0)
  outside = run(COSINES, labels, 7.0, np.ones(8, bool))
  holed = np.where(KEEP[:, None], COSINES, np.nan)
  for values, gradient, by_scale in (outside, run(holed, LABELS, 7.0, KEEP)):
    np.testing.assert_allclose(values, right, rtol=1e-10)
    np.testing.assert_allclose(gradient, COTANGENT[:, None] * slope, rtol=1e-9)
    np.testing.assert_array_equal(gradient[~KEEP], 0)
    np.testing.assert_allclose(by_scale, outside[2], rtol=1e-12)
  for result in run(np.nan * COSINES, LABELS, 7.0, np.zeros(8, bool)):
    np.testing.assert_array_equal(result, np.zeros(result.shape))


def test_default_scale_is_64(x64):
  right, _ = oracle(COSINES, LABELS, 64.0)
  np.testing.assert_allclose(
    jax.jit(losses.normface)(COSINES, LABELS), right, rtol=1e-10
  )


@pytest.mark.parametrize(("classes", "scale"), [(2, 4.0), (3, 20.0), (6, 0.7)])
def test_lower_bound_is_reached_on_a_regular_simplex(classes, scale, embeddings, x64):
  bound = math.log1p((classes - 1) * math.exp(-scale * classes / (classes - 1)))
  simplex = np.eye(classes) - 1 / classes
  labels = np.arange(classes)

  @jax.jit
  def loss(x, weights):
    return losses.normface(distances.pairwise_cosine(x, weights), labels, scale=scale)

  np.testing.assert_allclose(loss(3 * simplex, simplex), bound, rtol=1e-12)
  random = loss(embeddings(3, classes, classes), embeddings(4, classes, classes))
  assert random.mean() > bound


def test_one_class_has_no_loss():
  values = jax.jit(losses.normface)(jnp.array([[0.3], [-1.0]]), jnp.array([0, 0]))
  np.testing.assert_array_equal(values, [0, 0])


def test_large_scales_in_float32():
  cosines = np.array([[-1.0, 0.0, 0.0]], np.float32)
  loss = jax.jit(
    jax.value_and_grad(lambda c, s: losses.normface(c, np.array([0]), scale=s).sum())
  )
  value, gradient = loss(cosines, 200.0)
  np.testing.assert_allclose(value, 200.69314718, rtol=1e-6)
  np.testing.assert_allclose(gradient, [[-200, 100, 100]], rtol=1e-6)
  value, gradient = loss(np.array([[-39.0, 39.0, -1e4 / 256]], np.float32), 256.0)
  np.testing.assert_allclose(value, 78 * 256, rtol=1e-6)
  np.testing.assert_allclose(gradient, [[-256, 256, 0]], rtol=1e-6)


def test_half_precision_is_float32_cast_back():
  half = jnp.asarray(COSINES, jnp.bfloat16)
  loss = jax.jit(losses.normface)
  values = loss(half, LABELS, scale=8.0)
  assert values.dtype == jnp.bfloat16
  single = loss(half.astype(jnp.float32), LABELS, scale=8.0)
  np.testing.assert_allclose(
    values.astype(jnp.float32), single.astype(jnp.bfloat16).astype(jnp.float32), 2**-7
  )


def test_vmap_over_the_scale_equals_the_loop_and_traces_once():
  @chex.assert_max_traces(n=1)
  def loss(scale):
    return losses.normface(COSINES.astype(np.float32), LABELS, scale=scale, where=KEEP)

  chex.clear_trace_counter()
  traced = jax.jit(loss)
  grid = np.array([1.0, 8.0, 64.0], np.float32)
  rows = np.stack([traced(scale) for scale in grid])
  eager = losses.normface(COSINES.astype(np.float32), LABELS, scale=8.0, where=KEEP)
  np.testing.assert_allclose(rows[1], eager, rtol=1e-5, atol=1e-6)
  chex.clear_trace_counter()
  vmapped = jax.jit(jax.vmap(loss))
  np.testing.assert_allclose(vmapped(grid), rows, rtol=1e-5, atol=1e-6)


def test_small_losses_keep_their_digits_and_gradients():
  """Log-sum-exp minus the target is 0 in float32 as soon as the row is confident."""
  cosines = np.array([[1.0, -0.25, 0.25]], np.float32)
  value, gradient = jax.jit(
    jax.value_and_grad(lambda c: losses.normface(c, np.array([0]), scale=64.0).sum())
  )(cosines)
  first, second = math.exp(-80), math.exp(-48)
  np.testing.assert_allclose(value, first + second, rtol=1e-5)
  right = 64 * np.array([[-first - second, first, second]])
  np.testing.assert_allclose(gradient, right, rtol=1e-5)


def test_a_kept_not_a_number_is_not_repaired():
  cosines = np.array([[np.nan, 0.5], [0.1, 0.2]], np.float32)
  values = jax.jit(losses.normface)(cosines, np.array([1, 1]))
  np.testing.assert_array_equal(np.isnan(values), [True, False])
