"""Variances of classes against loops over pairs, and deviations from class means."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import metrics
from tests.prototypes.test_optimized import unit

CLASSES = 5
RANDOM = np.random.default_rng(0)
LABELS = RANDOM.choice(5, 48, p=[0.3, 0.3, 0.2, 0.2, 0])  # the last has none
LABELS[0] = 3
FEATURES = RANDOM.normal(size=(48, 6)) + 2 * RANDOM.normal(size=(5, 6))[LABELS]
FEATURES = FEATURES.astype(np.float32)


@functools.partial(jax.jit, static_argnames=("normalize", "blocks"))
def moments_of(features, labels, where, normalize=False, blocks=3):
  state = metrics.class_moments_init(CLASSES, features.shape[1])
  for rows in np.split(np.arange(48), blocks):
    state = metrics.class_moments_update(
      state, features[rows], labels[rows], normalize=normalize, where=where[rows]
    )
  return state


@jax.jit
def measures(state):
  scatter = metrics.class_scatter(
    state.means, FEATURES, LABELS, norm="linf", where=KEPT
  )
  return (
    metrics.class_variance(state),
    metrics.class_variance(state._replace(scatter=scatter), norm="linf"),
    metrics.pi_ratio(state),
    metrics.pi_ratio(state, pooled=False),
  )


KEPT = RANDOM.random(48) < 0.9
EVERYBODY = np.ones(48, bool)


def variances(f, y, norm):
  order = {"l2": 2, "linf": np.inf}[norm]
  classes = [f[y == k] for k in range(CLASSES) if (y == k).any()]
  mu = np.array([rows.mean(0) for rows in classes])
  inter = np.linalg.norm(mu[:, None] - mu[None], order, axis=2) ** 2
  within = [rows - rows.mean(0) for rows in classes]
  intra = [np.mean(np.linalg.norm(v, order, axis=1) ** 2) for v in within]
  return inter[~np.eye(len(mu), dtype=bool)].mean(), np.mean(intra)


def cosine_measures(f, y):
  """R2 and both forms of pi_ratio, from all pairs."""
  f = unit(f)
  d = 1 - f @ f.T
  masks = [y == k for k in range(CLASSES) if (y == k).any()]
  means = np.array([[d[np.ix_(a, b)].mean() for b in masks] for a in masks])
  mu = unit(np.array([f[mask].mean(0) for mask in masks]))
  between = (1 - mu @ mu.T)[~np.eye(len(mu), dtype=bool)].mean()
  pairs = [d[np.ix_(m, m)][~np.eye(m.sum(), dtype=bool)] for m in masks]
  pooled = np.concatenate(pairs).mean()
  classwise = np.mean([p.mean() for p in pairs if p.size])
  r2 = 1 - np.diagonal(means).mean() / means.mean()
  return r2, pooled / between, classwise / between


@pytest.mark.parametrize("zero_row", [False, True])
def test_measures_of_normalised_features(zero_row):
  features = FEATURES.copy()
  features[3] *= not zero_row
  state = moments_of(features, LABELS, KEPT, normalize=True)
  found, _, pooled, classwise = measures(state)
  f, y = features[KEPT].astype(np.float64), LABELS[KEPT]
  r2, *ratios = cosine_measures(f, y)
  np.testing.assert_allclose([found.r2, pooled, classwise], [r2, *ratios], rtol=1e-5)
  np.testing.assert_allclose(found[:2], variances(unit(f), y, "l2"), rtol=1e-5)
  if not zero_row:
    c = len(set(y))
    share = found.phi / (found.phi + 2 * c / (c - 1))
    np.testing.assert_allclose(found.r2, share, rtol=1e-5)
  np.testing.assert_allclose(found.phi, found.inter / found.intra, rtol=1e-6)


def test_measures_of_plain_features_in_two_norms():
  masked = np.where(KEPT[:, None], FEATURES, np.nan)
  by_block = moments_of(masked, LABELS, KEPT)
  euclidean, chebyshev, *_ = measures(by_block)
  f, y = FEATURES[KEPT].astype(np.float64), LABELS[KEPT]
  np.testing.assert_allclose(euclidean[:2], variances(f, y, "l2"), rtol=1e-5)
  np.testing.assert_allclose(chebyshev[:2], variances(f, y, "linf"), rtol=1e-5)
  at_once = moments_of(masked, LABELS, KEPT, blocks=1)

  def shard(features, labels, where):
    state = metrics.class_moments_init(CLASSES, 6)
    return metrics.class_moments_update(
      state, features, labels, where=where, axis_name="batch"
    )

  over = jax.jit(jax.vmap(shard, axis_name="batch"))(
    *(x.reshape(4, 12, *x.shape[1:]) for x in (masked, LABELS, KEPT))
  )
  for other in (by_block, jax.tree.map(lambda x: x[2], over)):
    chex.assert_trees_all_close(other, at_once, rtol=1e-5)


def test_tiny_scatter_far_from_the_origin():
  features = (1 + 1e-4 * RANDOM.normal(size=(48, 6))).astype(np.float32)
  state = moments_of(features, np.zeros(48, int), EVERYBODY)
  exact = features.astype(np.float64)
  scatter = ((exact - exact.mean(0)) ** 2).sum()
  np.testing.assert_allclose(state.scatter[0], scatter, rtol=1e-3)


def test_edges():
  single = measures(moments_of(FEATURES, np.zeros(48, int), EVERYBODY))[0]
  assert np.isnan([single.inter, single.phi, single.r2]).all()
  assert single.intra > 1
  points = np.eye(5, 6, dtype=np.float32)[LABELS]
  tight, _, *ratios = measures(moments_of(points, LABELS, EVERYBODY, normalize=True))
  assert np.isinf(tight.phi)
  np.testing.assert_allclose([tight.r2, *ratios], [1, 0, 0], atol=1e-6)
  points = points[:1].repeat(48, 0)
  same = measures(moments_of(points, LABELS, EVERYBODY, normalize=True))[0]
  assert np.isnan([same.phi, same.r2]).all()


def test_only_squares_of_l2_add_up_to_a_share():
  moments = moments_of(FEATURES, LABELS, EVERYBODY)
  assert 0 < metrics.class_variance(moments).r2 < 1
  for norm in ("linf", "l1"):
    scatter = metrics.class_scatter(moments.means, FEATURES, LABELS, norm=norm)
    found = metrics.class_variance(moments._replace(scatter=scatter), norm=norm)
    assert np.isnan(found.r2)
    assert found.phi > 0


RNG = np.random.default_rng(0)
EVEN = np.repeat(np.arange(4), 50)
CLOUDS = RNG.normal(size=(200, 6)) * np.geomspace(2, 0.1, 6)
CLOUDS = (CLOUDS + 5 * RNG.normal(size=(4, 6))[EVEN]).astype(np.float32)


def four_moments(features, labels):
  start = metrics.class_moments_init(4, 6)
  return metrics.class_moments_update(start, features, labels)


def deviations(features, labels):
  wide = features.astype(np.float64)
  return wide - [wide[labels == c].mean(0) for c in labels]


@functools.partial(jax.jit, static_argnames="kind")
def augment(features, residuals, labels, scale, kind):
  options = {"num_classes": 4, "scale": scale, "kind": kind}
  key = jax.random.key(0)
  return metrics.augment_within_classes(key, features, residuals, labels, **options)


def test_residuals_sum_to_nothing_and_have_the_variance_within():
  moments = four_moments(CLOUDS, EVEN)
  residuals = np.asarray(metrics.class_residuals(CLOUDS, EVEN, moments))
  np.testing.assert_allclose(residuals, deviations(CLOUDS, EVEN), atol=5e-6)
  by_class = residuals.astype(np.float64).reshape(4, 50, 6)
  assert np.abs(by_class.mean(1)).max() < 1e-5
  # All classes have 50 rows.
  within = metrics.class_variance(moments).intra
  np.testing.assert_allclose((by_class**2).sum(2).mean(), within, rtol=1e-5)


@pytest.mark.parametrize("scale", [0.5, 1.0])
@pytest.mark.parametrize("kind", ["residual", "normal"])
def test_augmented_features_have_more_variance_and_the_same_means(kind, scale):
  """Doubled at scale 1, within a tenth."""
  before = four_moments(CLOUDS, EVEN)
  residuals = metrics.class_residuals(CLOUDS, EVEN, before)
  many = np.tile(CLOUDS, (20, 1))
  moved = augment(many, residuals, EVEN, scale, kind)
  after = four_moments(moved, np.tile(EVEN, 20))
  grown = metrics.class_variance(after).intra / metrics.class_variance(before).intra
  np.testing.assert_allclose(grown, 1 + scale**2, rtol=0.1)
  np.testing.assert_allclose(after.means, before.means, atol=0.2 * scale)
  if kind == "residual":
    steps = (np.asarray(moved) - many) / scale
    apart = np.abs(steps[:50, None] - np.asarray(residuals)[None]).max(2)
    assert apart.min(1).max() < 1e-4


def test_normal_moves_weigh_the_classes_alike():
  """The covariance of the formula, of classes of 5 and 150."""
  labels = np.where(np.arange(155) < 5, 0, 2)
  features = RNG.normal(size=(155, 6)).astype(np.float32)
  features[:5] *= 3
  residuals = deviations(features, labels)
  sigma = sum(r.T @ r / len(r) / 2 for r in (residuals[:5], residuals[5:]))
  zeros = np.zeros((20_000, 6), np.float32)
  moves = np.asarray(augment(zeros, np.float32(residuals), labels, 2.0, "normal"))
  covariance = moves.T.astype(np.float64) @ moves / len(moves)
  np.testing.assert_allclose(covariance, 4 * sigma, atol=0.02 * np.trace(4 * sigma))
  np.testing.assert_allclose(np.trace(covariance), 4 * np.trace(sigma), rtol=0.03)


def test_residuals_of_bfloat16_stay():
  short = jnp.asarray(CLOUDS, jnp.bfloat16)
  residuals = metrics.class_residuals(short, EVEN, four_moments(CLOUDS, EVEN))
  assert residuals.dtype == jnp.bfloat16
  assert augment(short, residuals, EVEN, 1.0, "residual").dtype == jnp.bfloat16
