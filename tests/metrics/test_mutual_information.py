"""Mutual information of partitions against scikit-learn and entropies of SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import normalized_mutual_info_score

from spherejax import metrics


def by_entropies(labels, clusters):
  cells = stats.contingency.crosstab(labels, clusters).count
  alone = stats.entropy(cells.sum(0)) + stats.entropy(cells.sum(1))
  return 2 * (alone - stats.entropy(cells.ravel())) / alone


@pytest.mark.parametrize("seed", range(8))
def test_scikit_learn_and_entropies_agree(x64, seed):
  rng = np.random.default_rng(seed)
  labels, clusters = rng.integers(0, 5, 60), rng.integers(0, 2 + seed, 60)
  clusters = np.where(rng.random(60) < 0.5, labels, clusters)
  found = float(metrics.normalized_mutual_information(labels, clusters))
  assert abs(found - by_entropies(labels, clusters)) < 1e-12
  assert abs(found - normalized_mutual_info_score(labels, clusters)) < 1e-10
  swapped = float(metrics.normalized_mutual_information(clusters, labels))
  assert abs(found - swapped) < 1e-14
  names = rng.permutation(10) * 10**12 - 5
  renamed = metrics.normalized_mutual_information(names[labels], clusters + 2**40)
  assert abs(found - float(renamed)) < 1e-14


def test_one_block(x64):
  one, two = jnp.zeros(6, int), jnp.arange(6) % 2
  of = metrics.normalized_mutual_information
  assert (of(one, one), of(one, two), of(two, one), of(two, 7 - two)) == (1, 0, 0, 1)
  assert jnp.isnan(of(one[:0], one[:0]))


def test_masked_rows_are_not_there():
  rng = np.random.default_rng(0)
  labels, clusters = rng.integers(0, 4, (2, 50))
  where = rng.random(50) < 0.6
  found = jax.jit(metrics.normalized_mutual_information)(labels, clusters, where=where)
  expected = by_entropies(labels[where], clusters[where])
  np.testing.assert_allclose(found, expected, rtol=1e-5)
  many = jax.vmap(lambda kept: metrics.normalized_mutual_information(
    labels, clusters, where=kept))(np.stack([where, ~where]))  # fmt: skip
  np.testing.assert_allclose(many[0], expected, rtol=1e-5)
