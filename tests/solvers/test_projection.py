"""Projections onto ball and box, moves to a half-space: against LP and duals."""

import functools

import jax
import numpy as np
import pytest
from jax.test_util import check_grads

from spherejax import solvers
from tests import balls
from tests.balls import NORMS, ORDER

COUNT, SIZE = 100, 6
RANDOM = np.random.default_rng(0)
LOW, HIGH = -1.0, 1.5


def instances(seed):
  """Centres inside and on faces of the box, points with ties, many radii."""
  random = np.random.default_rng(seed)
  center = random.uniform(LOW, HIGH, (COUNT, SIZE))
  for face in (HIGH, LOW):
    center[random.random(center.shape) < 0.2] = face
  delta = random.normal(size=(COUNT, SIZE)) * random.choice([0.1, 1, 5], (COUNT, 1))
  delta = np.where(random.random(delta.shape) < 0.3, np.round(delta), delta)
  return center, delta, random.uniform(0.05, 3, COUNT)


def projected(norm, **box):
  def project(point, center, epsilon):
    return solvers.project_ball(point, center, epsilon, norm=norm, **box)

  return jax.jit(jax.vmap(project))


@pytest.mark.parametrize("norm", NORMS)
def test_projection_is_the_optimum(norm, x64):
  center, delta, epsilon = instances(1)
  point = center + delta
  found = np.asarray(projected(norm, low=LOW, high=HIGH)(point, center, epsilon))
  expected = balls.projected(point, center, epsilon, norm, LOW, HIGH)
  np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
  assert np.all(balls.sizes(found - center, norm) <= epsilon * (1 + 1e-12))
  assert np.all((found >= LOW) & (found <= HIGH))


def by_duals_without_box(delta, epsilon, norm):
  size = np.abs(delta)
  if norm == "l2":
    return delta * min(1, epsilon / max(np.linalg.norm(delta), 1e-300))
  if size.sum() <= epsilon or epsilon == 0:
    return delta * (epsilon > 0)
  ordered = np.sort(size)[::-1]
  shrink = (np.cumsum(ordered) - epsilon) / np.arange(1, SIZE + 1)
  last = np.nonzero(ordered > shrink)[0][-1]
  return np.sign(delta) * np.maximum(size - shrink[last], 0)


@pytest.mark.parametrize("norm", NORMS)
def test_float32_projection_is_idempotent_and_nonexpansive(norm):
  project = projected(norm, low=np.float32(LOW), high=np.float32(HIGH))
  center, delta, epsilon = (x.astype(np.float32) for x in instances(2))
  first = center + delta
  second = first + np.float32(0.3) * RANDOM.normal(size=first.shape).astype(np.float32)
  near, other = (np.asarray(project(x, center, epsilon)) for x in (first, second))
  np.testing.assert_allclose(project(near, center, epsilon), near, rtol=0, atol=2e-6)
  before, after = (
    np.linalg.norm(a - b, axis=1) for a, b in ((first, second), (near, other))
  )
  assert np.all(after <= before * (1 + 1e-5) + 1e-6)
  assert np.all(balls.sizes(np.float64(near) - center, norm) <= epsilon * (1 + 2e-6))
  wide = (np.float64(x) for x in (first, center, epsilon))
  expected = balls.projected(*wide, norm, LOW, HIGH)
  np.testing.assert_allclose(near, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_projection_without_a_box_and_with_no_radius(norm, x64):
  _, delta, epsilon = instances(3)
  epsilon[:10] = 0
  delta[5:15] = 0
  delta[20] *= 1e-30
  delta[21] *= 1e4
  points = projected(norm)(delta, np.zeros_like(delta), epsilon)
  expected = [
    by_duals_without_box(*row, norm) for row in zip(delta, epsilon, strict=True)
  ]
  np.testing.assert_allclose(points, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_derivatives_of_a_projection(norm, x64):
  """Some entries free, some at the box, some at zero."""
  center = np.array([0.0, 1.2, -0.9, 0.3])
  point = np.array([2.0, 3.0, -3.5, 0.35])

  @jax.jit
  def project(point, center, epsilon, low, high):
    return solvers.project_ball(point, center, epsilon, norm=norm, low=low, high=high)

  arguments = (point, center, *map(np.float64, (1.1, LOW, HIGH)))
  found = np.asarray(project(*arguments))
  assert np.sum(np.isclose(found, HIGH)) == 1
  np.testing.assert_allclose(np.linalg.norm(found - center, ORDER[norm]), 1.1)
  check_grads(project, arguments, 1, modes=("fwd", "rev"))
  unbounded = jax.jit(lambda p: solvers.project_ball(p, center, 1.1, norm=norm))
  check_grads(unbounded, (point,), 1, modes=("fwd", "rev"))


@pytest.mark.parametrize("norm", NORMS)
def test_derivatives_where_entries_equal_the_centres(norm, x64):
  """Shrinking moves such an entry as it moves the others; inside nothing is moved."""

  project = functools.partial(solvers.project_ball, norm=norm)

  def slopes(point, epsilon=1.0):
    return jax.jacrev(project, (0, 1))(np.array(point), np.zeros(2), epsilon)

  kept = {"linf": 1, "l2": 0.25, "l1": 0}[norm]
  for point, expected in (
    ([0.0, 0.0], np.eye(2)), ([0.0, 0.1], np.eye(2)), ([0.0, 4.0], [[kept, 0], [0, 0]])
  ):  # fmt: skip
    of_point, of_centre = slopes(point)
    np.testing.assert_allclose(of_point, expected, atol=1e-12)
    shift = np.eye(2) - expected if point[1] > 1 else np.zeros((2, 2))
    np.testing.assert_allclose(of_centre, shift, atol=1e-12)
  for point, epsilon in (([1.0, 2.0], 1e200), ([0, 1e-200], 1.0)):
    np.testing.assert_array_equal(slopes(point, epsilon)[0], np.eye(2))


@pytest.mark.parametrize("norm", NORMS)
def test_move_to_a_halfspace_is_the_least(norm, x64):
  point, normal, offset = instances(4)
  offset = offset - 3
  normal[:8] *= 1e-25
  offset[:8] = -1e-26
  normal[8], offset[8] = 0, -1

  @jax.jit
  @jax.vmap
  def move(point, normal, offset):
    return solvers.project_halfspace(
      point, normal, offset, norm=norm, low=LOW, high=HIGH
    )

  found = move(point, normal, offset)
  scale = np.where(np.arange(COUNT) < 8, 1e25, 1)[:, None]
  rows = zip(point, normal * scale, offset * scale[:, 0], strict=True)
  expected = np.array([balls.least_move(*row, norm, LOW, HIGH) for row in rows])
  assert 6 < np.sum(np.isinf(expected)) < 70
  np.testing.assert_allclose(found.distance, expected, rtol=1e-7, atol=1e-9)
  np.testing.assert_array_equal(found.feasible, np.isfinite(expected))
  moved = np.asarray(found.value) - point
  height = np.sum(normal * found.value, axis=1) + offset
  far = np.isfinite(expected)
  assert np.all(height[far] * scale[far, 0] >= -1e-9)
  reached = balls.sizes(moved[far], norm)
  np.testing.assert_allclose(reached, expected[far], rtol=1e-9, atol=1e-12)
  corner = np.where(normal > 0, HIGH, np.where(normal < 0, LOW, point))
  np.testing.assert_allclose(np.asarray(found.value)[~far], corner[~far], rtol=1e-15)


@pytest.mark.parametrize("norm", NORMS)
def test_move_without_a_box_is_the_dual_norm(norm, x64):
  point, normal, _ = instances(5)
  move = jax.vmap(lambda x, w: solvers.project_halfspace(x, w, -9.0, norm=norm))
  missing = np.maximum(9 - np.sum(normal * point, axis=1), 0)
  expected = missing / np.linalg.norm(normal, balls.DUAL[norm], 1)
  np.testing.assert_allclose(jax.jit(move)(point, normal).distance, expected, rtol=1e-9)


def test_a_box_without_a_point_is_refused():
  point, center = np.full(2, 0.5), np.zeros(2)
  empty = {"low": np.array([0.0, 1.0]), "high": np.array([1.0, 0.5])}
  for project in (solvers.project_ball, solvers.project_halfspace):
    with pytest.raises(ValueError, match=r"low must be at most high, got 1\.0 > 0\.5"):
      project(point, center, 1.0, **empty)


@pytest.mark.parametrize("norm", NORMS)
def test_a_pinned_entry_hides_no_small_part_of_the_normal(norm):
  """The box leaves only an entry whose part of the normal has no square in float32."""
  pinned = np.array([0, np.inf], np.float32)
  point, normal = np.float32([[0, 0], [1, 1e-25]])
  found = solvers.project_halfspace(
    point, normal, -1e-25, norm=norm, low=-pinned, high=pinned
  )
  np.testing.assert_allclose(found.value, [0, 1], rtol=1e-6)
  np.testing.assert_allclose(found.distance, 1, rtol=1e-6)
