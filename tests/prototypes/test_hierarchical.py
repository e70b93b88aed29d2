"""Prototypes after a class tree: exact ones, nearly exact ones, and refusals."""

import jax
import numpy as np
from scipy.stats import spearmanr

from experiments.published import tree_paths
from spherejax import hierarchy, prototypes

hierarchical = prototypes.hierarchical_prototypes
CIFAR_100 = hierarchy.path_distances(hierarchy.from_paths(tree_paths("CIFAR_100")))
CHORDS = hierarchy.chordal_distances(CIFAR_100)
SIMILARITIES = hierarchy.chordal_similarities(CIFAR_100)
SMALL = hierarchy.from_paths(["a/b/c", "a/b/d", "a/e", "f/g", "f/h"])


def distances(points):
  x = np.asarray(points, np.float64)
  return np.linalg.norm(x[:, None] - x[None], axis=2)


def normalised_stress(points):
  return np.linalg.norm(distances(points) - CHORDS) / np.linalg.norm(CHORDS)


def test_cholesky_is_exact_and_padded(x64):
  for similarities in (SIMILARITIES, 1 - hierarchy.lca_distances(SMALL)):
    size = len(similarities)
    found = hierarchical(similarities, size + 3, method="cholesky")
    points = np.asarray(found.prototypes)
    np.testing.assert_allclose(points @ points.T, similarities, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1, rtol=1e-12)
    assert (points[:, size:] == 0).all()
    assert found.stress < 1e-7
    assert found.converged


def test_stress_reaches_what_the_article_reports():
  laid = hierarchical(SIMILARITIES, 128, key=jax.random.key(0))
  assert laid.stress < 5e-4
  assert laid.converged
  np.testing.assert_allclose(np.linalg.norm(laid.prototypes, axis=1), 1, rtol=1e-6)
  np.testing.assert_allclose(laid.stress, normalised_stress(laid.prototypes), atol=1e-5)
  pairs = zip(distances(laid.prototypes), CIFAR_100, strict=True)
  columns = [spearmanr(a, b)[0] for a, b in pairs]
  mean = np.tanh(np.mean(np.arctanh(columns)))
  np.testing.assert_allclose(mean, 0.8580, atol=1e-4)


def test_few_dimensions():
  laid = hierarchical(SIMILARITIES, 20, method="spectral")
  points = np.asarray(laid.prototypes, np.float64)
  np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1, rtol=1e-6)
  np.testing.assert_allclose(laid.stress, normalised_stress(points), rtol=1e-4)
  # The space of the largest eigenvectors: its projection keeps what was laid out.
  values, vectors = np.linalg.eigh(SIMILARITIES)
  assert values[-20] - values[-21] > 1e-3
  best = vectors[:, -20:] * np.sqrt(values[-20:])
  best /= np.linalg.norm(best, axis=1, keepdims=True)
  np.testing.assert_allclose(points @ points.T, best @ best.T, atol=1e-5)
  full = hierarchical(SIMILARITIES, 100, method="spectral")
  assert full.stress < 1e-6 < laid.stress


def test_classical_is_euclidean_and_off_the_sphere():
  found = hierarchical(SIMILARITIES, 99, method="classical")
  np.testing.assert_allclose(distances(found.prototypes), CHORDS, atol=1e-5)
  lengths = np.linalg.norm(found.prototypes, axis=1)
  np.testing.assert_allclose([lengths.min(), lengths.max()], [0.84, 0.88], atol=5e-3)
  np.testing.assert_allclose(np.mean(found.prototypes, axis=0), 0, atol=1e-6)
  line = hierarchical(np.array([[1.0, -1], [-1, 1]]), 3, method="classical")
  np.testing.assert_allclose(np.abs(line.prototypes), [[1, 0, 0]] * 2, atol=1e-6)


def test_one_class():
  alone = np.ones((1, 1))
  for method in ("cholesky", "spectral", "classical", "stress"):
    found = hierarchical(alone, 2, method=method, key=jax.random.key(0))
    length = 0 if method == "classical" else 1
    np.testing.assert_allclose(np.linalg.norm(found.prototypes), length, rtol=1e-6)
    assert found.stress == 0
