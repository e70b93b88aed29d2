"""Measures of predictions over a class tree, against sorting in NumPy."""

import itertools

import jax
import numpy as np

from experiments.published import tree_paths
from spherejax import hierarchy, metrics

TREE = hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "f/h", "f/g/i"])
D = hierarchy.path_distances(TREE)
CLASSES, BATCH, K = len(D), 40, 3
OFFSETS = (0, 2)


@jax.jit
def measures(scores, labels, class_distances):
  given = scores, labels, class_distances
  return {
    "top": [metrics.top_k(scores, labels, k=k) for k in (1, K, CLASSES)],
    "ahd": [metrics.average_hierarchical_distance(*given, k=k) for k in (1, K)],
    "severity": metrics.severity(*given),
    "hp": [
      metrics.hierarchical_precision(*given, k=K, rank_offset=offset)
      for offset in OFFSETS
    ],
  }


def assert_equal_to_numpy(found, scores, labels):
  order = np.argsort(-scores, axis=1, kind="stable")  # what is NaN comes last
  d = D[labels]
  away = np.take_along_axis(d, order, axis=1)
  for value, k in zip(found["top"], (1, K, CLASSES), strict=True):
    np.testing.assert_array_equal(value, (order[:, :k] == labels[:, None]).any(1))
  for value, k in zip(found["ahd"], (1, K), strict=True):
    np.testing.assert_allclose(value, away[:, :k].mean(1), rtol=1e-6)
  np.testing.assert_array_equal(found["severity"].distances, away[:, 0])
  np.testing.assert_array_equal(found["severity"].mistaken, order[:, 0] != labels)
  for value, offset in zip(found["hp"], OFFSETS, strict=True):
    near = away[:, :K] <= np.sort(d, axis=1)[:, K + offset - 1 : K + offset]
    np.testing.assert_allclose(value, near.mean(1), rtol=1e-6)


def test_measures_of_predictions():
  rng = np.random.default_rng(0)
  labels = rng.integers(0, CLASSES, BATCH)
  tied = rng.integers(0, 3, (BATCH, CLASSES)).astype(np.float32)
  tied[:, ::2] *= -1  # 0 and -0 are equal
  tied[::7, 2], tied[3::7, 1] = np.nan, -np.inf
  tied[3::7, 3] = np.finfo(np.float32).min
  smooth = rng.normal(size=(BATCH, CLASSES)).astype(np.float32)
  for scores in (tied, smooth):
    found = measures(scores, labels, D)
    assert_equal_to_numpy(found, scores, labels)
  perfect = measures(-D[labels].astype(np.float32), labels, D)
  assert np.isnan(metrics.mean_where(*perfect["severity"]))
  assert all((hp == 1).all() for hp in perfect["hp"])
  missing = np.full_like(smooth, np.nan)
  for scores, label in itertools.product((smooth, tied, missing), (-1, CLASSES)):
    outside = measures(scores, np.full(BATCH, label), D)
    assert (np.asarray(outside["top"]) == 0).all()
    assert outside["severity"].mistaken.all()
    for value in (*outside["ahd"], *outside["hp"], outside["severity"].distances):
      assert np.isnan(value).all()


def test_near_classes_of_the_article():
  d = hierarchy.path_distances(hierarchy.from_paths(tree_paths("CIFAR_100")))
  rows = np.sort(d, axis=1)
  sizes = {
    offset: {int((row <= rows[c, 4 + offset]).sum()) for c, row in enumerate(d)}
    for offset in OFFSETS
  }
  assert sizes == {0: {5}, 2: {10, 15, 20, 30}}
  # Uniform predictions: the mean share of near classes, as HP@5 over all k-subsets.
  chance = [np.mean([(r <= r5).mean() for r, r5 in zip(d, rows[:, i], strict=True)])
            for i in (4, 6)]  # fmt: skip
  np.testing.assert_allclose(chance, [0.05, 0.1875], atol=1e-4)


def test_conditional_risk():
  p = np.random.default_rng(1).dirichlet(np.full(CLASSES, 0.5), 400).astype(np.float32)
  p[0] = [0.5, 0.5, 0, 0, 0, 0]
  risk = np.asarray(jax.jit(metrics.conditional_risk)(p, D))
  np.testing.assert_allclose(risk, np.float64(p) @ D.T, rtol=1e-5, atol=1e-6)
  careful, bold = risk.argmin(axis=1), p.argmax(axis=1)
  sure = p.max(axis=1) > 0.5
  assert (careful[sure] == bold[sure]).all()
  assert (careful[~sure] != bold[~sure]).any()
  flat = 1 - np.eye(CLASSES, dtype=np.float32)
  assert (np.asarray(metrics.conditional_risk(p, flat)).argmin(axis=1) == bold).all()
  lopsided = np.triu(np.ones((CLASSES, CLASSES), np.float32))
  found = metrics.conditional_risk(p, lopsided)
  np.testing.assert_allclose(found[:, 0], 1, rtol=1e-6)  # row k: costs of predicting k


SIMILAR = hierarchy.chordal_similarities(D)


def brute_force(x, labels, k):
  """HS@1 ... HS@k by sorting; behind the last reference nothing is gained."""
  unit = x / np.linalg.norm(x, axis=1, keepdims=True)
  cosines = unit @ unit.T
  np.fill_diagonal(cosines, -np.inf)
  order = np.argsort(-cosines, axis=1, kind="stable")[:, :-1]
  gained = np.zeros((len(x), k))
  gained[:, : len(x) - 1] = np.take_along_axis(SIMILAR[labels][:, labels], order, 1)
  return gained.cumsum(1) / -np.sort(-gained, axis=1).cumsum(1)


def test_hierarchical_similarity():
  rng = np.random.default_rng(2)
  # Sizes 20, 15, 10, 4, 1 and 0: one class is alone, one is absent.
  labels = rng.permutation(np.repeat(np.arange(5), [20, 15, 10, 4, 1]))
  x = rng.normal(size=(50, 4)).astype(np.float32)

  def similarity(x):
    return metrics.hierarchical_similarity(x, labels, SIMILAR, k=60, block_size=16)

  found = similarity(x)
  expected = brute_force(np.float64(x), labels, 60)
  np.testing.assert_allclose(found.values, expected, rtol=1e-5)
  assert found.counted.all()
  assert found.values.max() <= 1 + 1e-6
  assert expected[:, 4].std() > 0.05
  np.testing.assert_allclose(found.values[:, 48:], 1, rtol=1e-6)
  area = [sum((row[r] + row[r + 1]) / 2 for r in range(59)) / 59 for row in expected]
  areas = metrics.average_hierarchical_similarity(found.values)
  np.testing.assert_allclose(areas, area, rtol=1e-5)
  # Equal-class images in other rows: the same curves in other rows.
  swapped, twins = np.arange(50), np.flatnonzero(labels == 1)[:2]
  swapped[twins] = twins[::-1]
  again = similarity(x[swapped]).values
  np.testing.assert_allclose(again, found.values[swapped], rtol=1e-6)
  # Points laid out after the tree retrieve in the ideal order.
  tree_points = np.linalg.cholesky(SIMILAR)[labels].astype(np.float32)
  np.testing.assert_allclose(similarity(tree_points).values, 1, rtol=1e-5)


def test_one_image_and_one_class():
  single = np.ones((1, 2), np.float32), np.zeros(1, int), np.ones((1, 1))
  alone = metrics.hierarchical_similarity(*single, k=3)
  assert not alone.counted.any()
  np.testing.assert_array_equal(alone.values, np.zeros((1, 3)))
  one, labels, zero = np.zeros((2, 1), np.float32), np.zeros(2, int), np.zeros((1, 1))

  @jax.jit
  def values(one):
    return (
      metrics.top_k(one, labels),
      metrics.hierarchical_precision(one, labels, zero, k=1),
      1 - metrics.average_hierarchical_distance(one, labels, zero),
    )

  np.testing.assert_array_equal(values(one), np.ones((3, 2)))
