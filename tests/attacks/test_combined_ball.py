"""Regions of two norms at once: what is inside, and how far an attack goes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import attacks

ONE, TOP, DIM = 1.5, 0.4, 12
BETA = (ONE - TOP) / (TOP * (DIM - 1))
RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(size=(200, DIM)).astype(np.float32)


def sizes(delta, hull: bool) -> np.ndarray:
  """Norm of each row, from the definition in float64: 1 is the border."""
  sizes = -np.sort(-np.abs(delta.astype(np.float64)), axis=1)
  if hull:
    whole = int(ONE / TOP)
    rest = ONE / TOP - whole
    return (sizes[:, :whole].sum(1) + rest * sizes[:, whole]) / ONE
  return (BETA * sizes.sum(1) + (1 - BETA) * sizes[:, 0]) / ONE


@pytest.mark.parametrize("hull", [False, True])
def test_points_are_inside_in_exact_arithmetic(hull):
  far = X + RANDOM.normal(size=X.shape).astype(np.float32) * np.float32(2)
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
    assert sizes(points.astype(np.float64) - X, hull).max() <= 1
    assert points.min() >= 0
    assert points.max() <= 1
  np.testing.assert_array_equal(onto[0], X[0])
  # Without a box the nearest point of what is outside is on the border.
  found = sizes(free.astype(np.float64) - X, hull)
  outside = sizes(np.nan_to_num(far - X), hull) > 1
  np.testing.assert_allclose(found[outside][1:], 1, rtol=1e-4)
  assert outside.sum() > 100


@pytest.mark.parametrize("hull", [False, True])
def test_pgd_reaches_the_least_margin_of_a_linear_model(hull):
  """max <g, d> over the region: by all extreme points, d = s (1, ..., 1, 0, ...)."""
  g = RANDOM.normal(size=(3, DIM)).astype(np.float32)

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
  sizes = {"epsilon_1": 3.0, "epsilon_inf": 0.5}
  region = attacks.combined_ball(X[:4], **sizes, low=-1.0, high=2.0)
  box = {"region": region, "low": 0.0, "high": 1.0}
  box |= {"key": jax.random.key(0), "mode": "last"}
  result = attacks.pgd(lambda x: x[:, :2], X[:4], np.zeros(4, int), **box)
  points = np.asarray(result.x_adv)
  assert -1 <= points.min() < 0
  assert points.max() <= 2
