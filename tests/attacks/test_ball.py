"""Balls of one norm or two: draws, directions, and points inside, exactly."""

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
  found, counts = step(gradients, counts), counts[:, None]
  rank = np.argsort(np.argsort(-np.abs(gradients), axis=1, kind="stable"), axis=1)
  expected = np.where(rank < counts, np.sign(gradients) / counts, 0)
  np.testing.assert_allclose(found, expected, rtol=1e-6)


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
  options = {"norm": norm, "low": 0.0, "high": 1.0}
  seal = jax.jit(jax.vmap(lambda p, c, e: attacks.seal(p, c, e, **options)))
  cases = [(3, 3000, np.float32), (3072, 40, np.float32), (150_528, 4, np.float32)]
  for n, count, dtype in [*cases, (768, 60, jnp.bfloat16)]:
    center, point, epsilon = adversarial(n, count, dtype, RANDOM)
    sealed = np.asarray(seal(point, center, epsilon))
    assert sealed.dtype == np.float32
    moved = sealed.astype(np.float64) - center.astype(np.float64)
    assert np.all(sizes(moved, norm) <= epsilon.astype(np.float64))
    assert np.all((sealed >= 0) & (sealed <= 1))
    # Nothing was given away: the ball is used but for a thousandth.
    middle = center.astype(np.float32)
    wide = np.where(np.isfinite(point), point, middle)
    if norm == "linf":
      plain = np.clip(wide, middle - epsilon[:, None], middle + epsilon[:, None])
    else:
      asked = np.maximum(sizes(wide - middle, norm), 1e-30)
      plain = middle + np.minimum(1, epsilon / asked)[:, None] * (wide - middle)
    plain = np.clip(plain, 0, 1).astype(np.float32)
    np.testing.assert_allclose(sealed, plain, rtol=0, atol=1e-3 * epsilon.max())


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


ONE, TOP, DIM = 1.5, 0.4, 12
BETA = (ONE - TOP) / (TOP * (DIM - 1))
DRAWS = np.random.default_rng(0)
X = DRAWS.uniform(size=(200, DIM)).astype(np.float32)


def gauge(delta, hull):
  """Norm of each row, from the definition in float64: 1 is the border."""
  falling = -np.sort(-np.abs(delta.astype(np.float64)), axis=1)
  if hull:
    whole = int(ONE / TOP)
    rest = ONE / TOP - whole
    return (falling[:, :whole].sum(1) + rest * falling[:, whole]) / ONE
  return (BETA * falling.sum(1) + (1 - BETA) * falling[:, 0]) / ONE


@pytest.mark.parametrize("hull", [False, True])
def test_points_of_two_norms_are_inside_in_exact_arithmetic(hull):
  far = X + DRAWS.normal(size=X.shape).astype(np.float32) * np.float32(2)
  far[0], far[1, 0] = X[0], np.nan

  @jax.jit
  def run(far, clean, key):
    shape = {"epsilon_1": ONE, "epsilon_inf": TOP, "hull": hull}
    region = attacks.combined_ball(clean, **shape)
    free = attacks.combined_ball(clean, **shape, low=-np.inf, high=np.inf)
    drawn = region.start(jax.random.split(key, len(X)), clean)
    return region.project(far, clean), drawn, free.project(far, clean)

  onto, drawn, free = map(np.asarray, run(far, X, jax.random.key(0)))
  for points in (onto, drawn):
    assert gauge(points.astype(np.float64) - X, hull).max() <= 1
    assert points.min() >= 0
    assert points.max() <= 1
  np.testing.assert_array_equal(onto[0], X[0])
  # Without a box the nearest point of what is outside is on the border.
  found = gauge(free.astype(np.float64) - X, hull)
  outside = gauge(np.nan_to_num(far - X), hull) > 1
  np.testing.assert_allclose(found[outside][1:], 1, rtol=1e-4)
  assert outside.sum() > 100


@pytest.mark.parametrize("hull", [False, True])
def test_pgd_reaches_the_least_margin_of_a_linear_model(hull):
  """max <g, d> over the region: by all extreme points, d = s (1, ..., 1, 0, ...)."""
  g = DRAWS.normal(size=(3, DIM)).astype(np.float32)

  def logits_fn(x):
    height = jnp.sum(x * g, axis=1)
    return jnp.stack([50 - height, height - 50], axis=1)  # never wrong

  box = {"hull": hull, "low": -np.inf, "high": np.inf}
  region = attacks.combined_ball(X[:3], epsilon_1=ONE, epsilon_inf=TOP, **box)
  options = {"key": jax.random.key(0), "region": region, "steps": 60, "loss": "margin"}
  found = attacks.pgd(logits_fn, X[:3], np.zeros(3, int), **options)
  largest = -np.sort(-np.abs(g.astype(np.float64)), axis=1)
  counts = np.arange(1, DIM + 1)
  best = np.maximum(ONE * largest[:, 0], TOP * largest.sum(1))
  if not hull:
    best = (ONE * largest.cumsum(1) / (1 + BETA * (counts - 1))).max(1)
  moved = np.sum((np.asarray(found.x_adv, np.float64) - X[:3]) * g, axis=1)
  assert (moved <= best * (1 + 1e-6)).all()
  np.testing.assert_allclose(moved, best, rtol=2e-2)
  np.testing.assert_allclose(found.norm, 1, rtol=1e-3)


def test_a_region_bounds_the_points_by_its_own_box():
  radii = {"epsilon_1": 3.0, "epsilon_inf": 0.5}
  region = attacks.combined_ball(X[:4], **radii, low=-1.0, high=2.0)
  box = {"region": region, "low": 0.0, "high": 1.0}
  box |= {"key": jax.random.key(0), "mode": "last"}
  result = attacks.pgd(lambda x: x[:, :2], X[:4], np.zeros(4, int), **box)
  points = np.asarray(result.x_adv)
  assert -1 <= points.min() < 0
  assert points.max() <= 2
