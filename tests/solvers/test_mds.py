"""Points of a sphere at given distances, against Adam written out in NumPy."""

import jax
import numpy as np

from spherejax import solvers

RANDOM = np.random.default_rng(0)
SIZE, DIM = 6, 3


def unit(x):
  return x / np.linalg.norm(x, axis=1, keepdims=True)


def chords(w):
  d = np.linalg.norm(w[:, None] - w[None], axis=2)
  return (d + d.T) / 2


POINTS = unit(RANDOM.normal(size=(SIZE, DIM)))
START = RANDOM.normal(size=(SIZE, DIM))


def stress(free, target):
  w = unit(free)
  square = np.maximum(2 - 2 * w @ w.T, 0)
  np.fill_diagonal(square, 0)
  return np.linalg.norm(np.sqrt(square + 1e-12) - target) / np.linalg.norm(target)


def differences(free, target):
  shifts = 1e-6 * np.eye(free.size).reshape(-1, *free.shape)
  rises = [stress(free + s, target) - stress(free - s, target) for s in shifts]
  return np.reshape(rises, free.shape) / 2e-6


def test_steps_are_those_of_adam(x64):
  target = chords(unit(RANDOM.normal(size=(SIZE, SIZE))))
  free = unit(START)
  mean, square = np.zeros_like(free), np.zeros_like(free)
  for count in range(1, 4):
    gradient = differences(free, target)
    mean = 0.9 * mean + 0.1 * gradient
    square = 0.999 * square + 0.001 * gradient**2
    scale = np.sqrt(square / (1 - 0.999**count)) + 1e-8
    free = free - 0.05 * mean / (1 - 0.9**count) / scale
  result = solvers.sphere_mds(target, DIM, initial=START, steps=3, learning_rate=0.05)
  np.testing.assert_allclose(result.points, unit(free), atol=1e-7)
  np.testing.assert_allclose(result.stress, stress(free, target), rtol=1e-7)
  assert result.steps == 3


def test_reaches_points_that_exist_and_says_how_far_it_is():
  target = np.float32(chords(POINTS))
  solve = jax.jit(
    lambda key: solvers.sphere_mds(target, DIM, key=key, learning_rate=3e-3)
  )
  results = [solve(jax.random.key(seed)) for seed in (0, 1, 0)]
  for result in results:
    points = np.float64(result.points)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(result.stress, stress(points, target), rtol=1e-2)
    assert result.points.dtype == np.float32
    slope = np.linalg.norm(differences(points, target)) * SIZE**0.5
    flat = result.stress <= 1e-3 or slope <= 0.1 * result.stress
    assert bool(result.converged) == flat
  assert min(result.stress for result in results) < 5e-4
  np.testing.assert_array_equal(results[0].points, results[2].points)
  assert np.abs(results[0].points - results[1].points).max() > 0.1


def test_few_steps_are_not_convergence_and_nothing_to_do_is_nothing():
  target = np.float32(chords(POINTS))
  assert not solvers.sphere_mds(target, DIM, key=jax.random.key(0), steps=40).converged
  together = solvers.sphere_mds(0 * target, DIM, key=jax.random.key(0), steps=40)
  np.testing.assert_allclose(np.linalg.norm(together.points, axis=1), 1, rtol=1e-6)
  assert together.stress == 0


def test_no_gradient_goes_through():
  square = np.sqrt(2) * (1 - np.eye(3, dtype=np.float32))

  def stress(scale):
    return solvers.sphere_mds(scale * square, 3, key=jax.random.key(0), steps=5).stress

  assert jax.grad(stress)(0.9) == 0
