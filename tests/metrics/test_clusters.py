"""Distances between classes, and mutual information against scikit-learn and SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import normalized_mutual_info_score

from spherejax import metrics


def test_the_mean_distance_of_classes():
  x = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
  x[1] = x[0]  # a duplicate in another class
  labels = np.array([2, 0, 0, 1, 1, 2, 2, 2, 0])
  pairs = np.linalg.norm(x[:, None] - x, axis=2)[labels[:, None] != labels]
  mean = metrics.mean_interclass_distance(x, labels)
  assert mean == pytest.approx(np.mean(pairs), rel=1e-5)
  where = np.arange(9) != 4
  hidden = np.where(where[:, None], x, np.nan)
  part = metrics.mean_interclass_distance(x[where], labels[where])
  masked = metrics.mean_interclass_distance(hidden, labels, where=where)
  assert masked == pytest.approx(float(part), rel=1e-6)
  gradient = jax.grad(metrics.mean_interclass_distance)(x, labels)
  assert np.isfinite(gradient).all()
  assert np.abs(gradient[1]).sum() > 0
  step = np.zeros_like(x)
  step[3, 1] = 1e-2
  ends = [metrics.mean_interclass_distance(x + s * step, labels) for s in (1, -1)]
  assert gradient[3, 1] == pytest.approx(float(ends[0] - ends[1]) / 2e-2, rel=0.05)
  assert np.isnan(metrics.mean_interclass_distance(x, np.zeros(9, int)))


def by_entropies(labels, clusters):
  cells = stats.contingency.crosstab(labels, clusters).count
  alone = stats.entropy(cells.sum(0)) + stats.entropy(cells.sum(1))
  return 2 * (alone - stats.entropy(cells.ravel())) / alone


@pytest.mark.parametrize("seed", range(8))
def test_scikit_learn_and_entropies_agree(x64, seed):
  rng = np.random.default_rng(seed)
  labels, clusters = rng.integers(0, 5, 60), rng.integers(0, 2 + seed, 60)
  clusters = np.where(rng.random(60) < 0.5, labels, clusters)
  names = rng.permutation(10) * 10**12 - 5
  of = metrics.normalized_mutual_information
  value = float(of(labels, clusters))
  assert abs(value - by_entropies(labels, clusters)) < 1e-12
  assert abs(value - normalized_mutual_info_score(labels, clusters)) < 1e-10
  assert abs(value - float(of(clusters, labels))) < 1e-14
  assert abs(value - float(of(names[labels], clusters + 2**40))) < 1e-14


def test_a_single_block(x64):
  whole, two = jnp.zeros(6, int), jnp.arange(6) % 2
  pairs = (whole, whole), (whole, two), (two, whole), (two, 7 - two)
  values = [metrics.normalized_mutual_information(*pair) for pair in pairs]
  np.testing.assert_array_equal(values, [1, 0, 0, 1])
  assert jnp.isnan(metrics.normalized_mutual_information(whole[:0], whole[:0]))


def test_masked_rows_are_not_there():
  rng = np.random.default_rng(0)
  labels, clusters = rng.integers(0, 4, (2, 50))
  where = rng.random(50) < 0.6

  def of(where, labels=labels, clusters=clusters):
    return metrics.normalized_mutual_information(labels, clusters, where=where)

  expected = by_entropies(labels[where], clusters[where])
  np.testing.assert_allclose(jax.jit(of)(where, labels, clusters), expected, rtol=1e-5)
  many = jax.vmap(of)(np.stack([where, ~where]))
  np.testing.assert_allclose(many[0], expected, rtol=1e-5)
