"""Confusions and F1 against scikit-learn; radii against loops."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score, recall_score

from spherejax import metrics

CLASSES = 6
RANDOM = np.random.default_rng(0)
TRUE = RANDOM.integers(0, 4, 60)  # the classes 4 and 5 have no example
FOUND = np.where(RANDOM.random(60) < 0.5, TRUE, RANDOM.integers(0, 5, 60))
FOUND[TRUE == 2] = 0  # never right, never found
FOUND[FOUND == 2] = 3


def test_counts_scores_and_the_two_kinds_of_nothing():
  counts = metrics.confusion_counts(TRUE, FOUND, num_classes=CLASSES)
  expected = confusion_matrix(TRUE, FOUND, labels=np.arange(CLASSES))
  np.testing.assert_array_equal(counts, expected)
  scores = metrics.class_scores(counts)
  options = {"labels": np.arange(5), "average": None, "zero_division": 0.0}
  assert (FOUND == 4).any()
  np.testing.assert_allclose(scores.f1[:5], f1_score(TRUE, FOUND, **options), rtol=1e-6)
  assert scores.f1[2] == 0  # occurs, and is never right
  assert scores.f1[4] == 0  # is found, and never occurs
  assert math.isnan(scores.f1[5])  # neither
  assert scores.missing == 1
  assert float(scores.macro_f1) == pytest.approx(float(scores.f1[:5].mean()), rel=1e-6)
  np.testing.assert_allclose(
    scores.recall[:4], recall_score(TRUE, FOUND, **options)[:4], rtol=1e-6
  )
  assert np.isnan(scores.recall[4:]).all()
  assert float(scores.accuracy) == pytest.approx(accuracy_score(TRUE, FOUND), rel=1e-6)


def test_masked_rows_count_nowhere():
  where = RANDOM.random(60) < 0.5
  found = metrics.confusion_counts(TRUE, FOUND, num_classes=CLASSES, where=where)
  kept = metrics.confusion_counts(TRUE[where], FOUND[where], num_classes=CLASSES)
  np.testing.assert_array_equal(found, kept)
  # Traced labels and predictions outside are masked, too.
  wild, wilder = np.where(where, TRUE, -1), np.where(where, FOUND, CLASSES)
  count = jax.jit(metrics.confusion_counts, static_argnames="num_classes")
  for labels, found in ((wild, FOUND), (TRUE, wilder)):
    np.testing.assert_array_equal(count(labels, found, num_classes=CLASSES), kept)
  nothing = metrics.class_scores(np.zeros((CLASSES, CLASSES), np.int32))
  assert nothing.missing == CLASSES
  assert math.isnan(nothing.accuracy)
  assert math.isnan(nothing.macro_f1)


def test_commonest_confusions_in_the_order_of_rate_label_prediction():
  counts = np.array([[2, 1, 1, 0], [3, 0, 0, 3], [0, 0, 0, 0], [1, 0, 2, 1]], np.int32)
  found = metrics.common_confusions(counts, k=10)
  pairs = sorted(
    (-counts[a, b] / counts[a].sum(), a, b)
    for a, b in itertools.permutations(range(4), 2)
    if counts[a].any()
  )
  assert len(pairs) == 9
  rates, *places = zip(*pairs, strict=True)
  np.testing.assert_array_equal([found.labels[:9], found.predictions[:9]], places)
  np.testing.assert_allclose(found.rates[:9], np.negative(rates), rtol=1e-6, atol=0)
  # Class 2 has no example: its pairs come last, with rate 0.
  assert found.labels[9] == 2
  assert found.rates[9] == 0


def test_radii_are_mean_distances():
  x = RANDOM.normal(size=(60, 4)).astype(np.float32)
  x /= np.linalg.norm(x, axis=1, keepdims=True)
  x[TRUE == 1] = [0, 0, 1, 0]
  centroids = np.zeros((5, 4), np.float32)
  expected = np.full(5, np.nan)
  for c in range(4):
    centroids[c] = x[c == TRUE].mean(0)
    expected[c] = np.mean([math.dist(row, centroids[c]) for row in x[c == TRUE]])
  radii = metrics.cluster_radii(x, TRUE, centroids)
  np.testing.assert_allclose(radii, expected, rtol=2e-5, atol=1e-7)
  bound = np.sqrt(np.maximum(1 - (centroids**2).sum(1), 0))
  assert (radii[:4] <= bound[:4] + 1e-6).all()
  assert radii[1] == bound[1] == 0  # all in one point
  assert (np.delete(np.asarray(radii), [1, 4]) < np.delete(bound, [1, 4]) - 1e-3).all()
  # Equality where all distances agree: opposite points.
  pair = np.array([[1, 0, 0, 0], [-1, 0, 0, 0]], np.float32)
  middle = np.zeros((1, 4), np.float32)
  assert metrics.cluster_radii(pair, np.zeros(2, int), middle)[0] == 1
  where = TRUE != 3
  broken = np.where(where[:, None], x, np.nan)
  masked = metrics.cluster_radii(broken, TRUE, centroids, where=where)
  np.testing.assert_array_equal(masked, np.where(np.arange(5) == 3, np.nan, radii))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_labels_of_one_byte(dtype):
  labels = np.array([99, 3, 99], dtype)
  counts = metrics.confusion_counts(labels, labels, num_classes=100)
  np.testing.assert_array_equal(counts, np.diag(np.bincount(labels, minlength=100)))


def test_known_labels_are_checked_while_tracing_unless_a_traced_mask_covers_them():
  def counts(labels, where=None):
    return metrics.confusion_counts(labels, labels, num_classes=2, where=where)

  labels = jnp.array([0, 1, -1])
  traced = jax.jit(lambda where: counts(labels, where))(labels >= 0)
  np.testing.assert_array_equal(traced, np.eye(2))
  wrong = jnp.array([0, 2])  # made outside of the trace
  with pytest.raises(ValueError, match=r"labels must be in \[0, 2\), got 2"):
    jax.jit(lambda: counts(wrong))()
