"""Draws from balls, steepest directions, and points inside in exact arithmetic."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from spherejax import attacks
from tests.balls import DUAL, NORMS, sizes

RANDOM = np.random.default_rng(0)


def test_draws_are_uniform():
  """Norm^n uniform, second moment of an entry, no preferred sign."""
  n = 5

  def draw(key):
    return [attacks.uniform_ball(key, (n,), norm=norm) for norm in NORMS]

  drawn = jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), 20_000))
  moments = {"linf": 1 / 3, "l2": 1 / (n + 2), "l1": 2 / ((n + 1) * (n + 2))}
  for norm, points in zip(NORMS, map(np.asarray, drawn), strict=True):
    assert stats.kstest(sizes(points, norm) ** n, "uniform").pvalue > 1e-3
    np.testing.assert_allclose(np.mean(points**2, axis=0), moments[norm], rtol=0.05)
    np.testing.assert_allclose(np.mean(points, axis=0), 0, atol=0.02)


def test_steepest_direction_is_the_steepest():
  gradients = RANDOM.normal(size=(50, 7)).astype(np.float32)
  gradients[0] = 0
  gradients[1] *= 1e-25
  gradients[2] = [0, 3, -3, 3, 0, 0, 1]
  gradients[3, :3] = [np.nan, np.inf, -np.inf]

  def steps(g):
    return [attacks.steepest_ascent(g, norm=norm) for norm in NORMS]

  found = jax.jit(jax.vmap(steps))(gradients)
  finite = np.where(np.isfinite(gradients), gradients, 0).astype(np.float64)
  for norm, step in zip(NORMS, map(np.asarray, found), strict=True):
    steepest = np.linalg.norm(finite, DUAL[norm], axis=1)
    np.testing.assert_allclose(np.sum(finite * step, axis=1), steepest, rtol=1e-5)
    np.testing.assert_allclose(sizes(step, norm)[1:], 1, rtol=1e-6)
    np.testing.assert_array_equal(step[0], 0)
  np.testing.assert_array_equal(found[2][2], [0, 1, 0, 0, 0, 0, 0])


def test_l1_steps_move_exactly_so_many_entries():
  gradients = np.round(RANDOM.normal(size=(40, 9)) * 2).astype(np.float32)
  counts = RANDOM.integers(1, 10, 40)
  step = jax.jit(jax.vmap(lambda g, k: attacks.steepest_ascent(g, norm="l1", count=k)))
  found = np.asarray(step(gradients, counts))
  for g, k, row in zip(gradients, counts, found, strict=True):
    order = sorted(range(9), key=lambda i: (-abs(g[i]), i))[:k]
    expected = np.zeros(9)
    expected[order] = np.sign(g[order]) / k
    np.testing.assert_allclose(row, expected, rtol=1e-6)


def adversarial(n, count, dtype, random):
  """Points at, near and far outside of the ball; centres on faces; all scales."""
  center = random.random((count, n)).astype(dtype)
  center[::3] = (np.round(center[::3].astype(np.float32) * 255) / 255).astype(dtype)
  center[1::7] = np.round(center[1::7].astype(np.float32)).astype(dtype)
  delta = random.normal(size=(count, n)) * 10 ** random.uniform(-6, 1, (count, 1))
  delta[::4] = np.sign(delta[::4]) * np.abs(delta[::4, :1])
  delta[2::9] = 0
  epsilon = (10 ** random.uniform(-4, 1.1, count)).astype(np.float32)
  epsilon[3::11] = 0
  wide = center.astype(np.float32)
  point = (wide + delta).astype(np.float32)
  point[5::13, 0] = np.nan
  point[6::13, 0] = np.inf
  return center, point, epsilon


@pytest.mark.parametrize("norm", NORMS)
def test_sealed_points_are_inside_in_exact_arithmetic(norm):
  """Float64 arithmetic, no tolerance; compiled, all sizes and both input types."""
  seal = jax.jit(
    jax.vmap(lambda p, c, e: attacks.seal(p, c, e, norm=norm, low=0.0, high=1.0))
  )
  cases = [(3, 3000, np.float32), (3072, 40, np.float32), (150_528, 4, np.float32)]
  for n, count, dtype in [*cases, (768, 60, jnp.bfloat16)]:
    center, point, epsilon = adversarial(n, count, dtype, RANDOM)
    sealed = np.asarray(seal(point, center, epsilon))
    assert sealed.dtype == np.float32
    moved = sealed.astype(np.float64) - center.astype(np.float64)
    assert np.all(sizes(moved, norm) <= epsilon.astype(np.float64))
    assert np.all((sealed >= 0) & (sealed <= 1))
    # Nothing was given away: the ball is used but for a thousandth.
    wide = np.where(np.isfinite(point), point, center.astype(np.float32))
    asked = sizes(wide - center.astype(np.float32), norm)
    if norm != "linf":
      share = np.minimum(1, epsilon / np.maximum(asked, 1e-30))[:, None]
      plain = np.clip(center.astype(np.float32) + share * (wide - center), 0, 1)
    else:
      plain = np.clip(wide, center - epsilon[:, None], center + epsilon[:, None])
      plain = np.clip(plain, 0, 1)
    np.testing.assert_allclose(
      sealed, plain.astype(np.float32), rtol=0, atol=1e-3 * epsilon.max()
    )


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_radii_of_python_are_kept_without_tolerance(norm, dtype):
  """The float32 nearest to such a number may be larger."""
  center = RANDOM.random((100, 5)).astype(dtype)
  point = (center.astype(np.float32) + RANDOM.normal(size=center.shape)).astype(dtype)
  for epsilon in (0.1, 0.3, 0.6, 8 / 255, np.float64(0.7)):
    seal = jax.vmap(lambda p, c, e=epsilon: attacks.seal(p, c, e, norm=norm))
    moved = np.asarray(seal(point, center), np.float64) - center.astype(np.float64)
    assert np.all(sizes(moved, norm) <= epsilon)
    assert np.max(sizes(moved, norm)) > 0.999 * epsilon


def test_half_precision_rounds_toward_the_centre():
  short = jax.jit(lambda p, c: attacks.round_inside(p, c, dtype=jnp.bfloat16))
  center = RANDOM.random((50, 300)).astype(jnp.bfloat16)
  delta = RANDOM.normal(size=center.shape).astype(np.float32) / 100
  point = center.astype(np.float32) + delta
  rounded = np.asarray(short(point, center))
  assert rounded.dtype == jnp.bfloat16
  before = point.astype(np.float64) - center.astype(np.float64)
  after = rounded.astype(np.float64) - center.astype(np.float64)
  assert np.all(np.abs(after) <= np.abs(before))
  assert np.all(after * before >= 0)
  # The next number away from the centre would be outside of what was asked.
  assert np.mean(np.abs(after)) > 0.7 * np.mean(np.abs(before))
