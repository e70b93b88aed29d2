"""Classes as predicted and as clusters, against scikit-learn, SciPy and loops."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as peer

from spherejax import metrics, prototypes

CLASSES = 6
RANDOM = np.random.default_rng(0)
TRUE = RANDOM.integers(0, 4, 60)  # the classes 4 and 5 have no example
FOUND = np.where(RANDOM.random(60) < 0.5, TRUE, RANDOM.integers(0, 5, 60))
FOUND[TRUE == 2] = 0  # never right, never found
FOUND[FOUND == 2] = 3


def test_counts_scores_and_the_two_kinds_of_nothing():
  counts = metrics.confusion_counts(TRUE, FOUND, num_classes=CLASSES)
  expected = peer.confusion_matrix(TRUE, FOUND, labels=np.arange(CLASSES))
  np.testing.assert_array_equal(counts, expected)
  scores = metrics.class_scores(counts)
  options = {"labels": np.arange(5), "average": None, "zero_division": 0.0}
  assert (FOUND == 4).any()
  f1 = peer.f1_score(TRUE, FOUND, **options)
  np.testing.assert_allclose(scores.f1[:5], f1, rtol=1e-6)
  assert scores.f1[2] == 0  # occurs, and is never right
  assert scores.f1[4] == 0  # is found, and never occurs
  assert math.isnan(scores.f1[5])  # neither
  assert scores.missing == 1
  assert float(scores.macro_f1) == pytest.approx(float(scores.f1[:5].mean()), rel=1e-6)
  recall = peer.recall_score(TRUE, FOUND, **options)
  np.testing.assert_allclose(scores.recall[:4], recall[:4], rtol=1e-6)
  assert np.isnan(scores.recall[4:]).all()
  accuracy = peer.accuracy_score(TRUE, FOUND)
  assert float(scores.accuracy) == pytest.approx(accuracy, rel=1e-6)


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
  assert np.isnan([nothing.accuracy, nothing.macro_f1]).all()


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
  assert (found.labels[9], found.rates[9]) == (2, 0)


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
  assert metrics.cluster_radii(pair, np.zeros(2, int), 0 * pair[:1])[0] == 1
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


def test_mean_ignores_what_is_masked():
  values = jnp.array([1.0, jnp.nan, 4.0, -2.0])
  where = jnp.array([True, False, True, False])
  assert metrics.mean_where(values, where) == 2.5
  gradient = jax.grad(metrics.mean_where)(values, where)
  np.testing.assert_array_equal(gradient, [0.5, 0, 0.5, 0])
  matrix = jnp.arange(6.0).reshape(2, 3)
  assert metrics.mean_where(matrix, matrix > 1) == 3.5
  assert metrics.mean_where(jnp.bfloat16(values), where).dtype == jnp.bfloat16


def test_mean_of_nothing_is_nan_without_a_warning_in_the_gradient():
  none = jnp.zeros(3, bool)
  assert np.isnan(metrics.mean_where(jnp.ones(3), none))
  np.testing.assert_array_equal(jax.grad(metrics.mean_where)(jnp.ones(3), none), 0)
  assert np.isnan(metrics.class_balanced_mean(jnp.ones(3), jnp.arange(3), where=none))
  assert np.isnan(metrics.class_balanced_mean(jnp.ones(0), jnp.ones(0, int)))


def test_class_balanced_mean_against_a_loop():
  rng = np.random.default_rng(0)
  for _ in range(20):
    values = rng.normal(size=15)
    labels = rng.integers(-3, 3, 15)
    where = rng.random(15) < 0.6
    means = [values[(labels == c) & where].mean() for c in np.unique(labels[where])]
    values[~where] = np.nan
    mean = metrics.class_balanced_mean(np.float32(values), labels, where=where)
    np.testing.assert_allclose(mean, np.mean(means), rtol=2e-5, atol=1e-6)


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
def test_mutual_information_against_scikit_learn_and_entropies(x64, seed):
  rng = np.random.default_rng(seed)
  labels, clusters = rng.integers(0, 5, 60), rng.integers(0, 2 + seed, 60)
  clusters = np.where(rng.random(60) < 0.5, labels, clusters)
  names = rng.permutation(10) * 10**12 - 5
  of = metrics.normalized_mutual_information
  value = float(of(labels, clusters))
  assert abs(value - by_entropies(labels, clusters)) < 1e-12
  assert abs(value - peer.normalized_mutual_info_score(labels, clusters)) < 1e-10
  assert abs(value - float(of(clusters, labels))) < 1e-14
  assert abs(value - float(of(names[labels], clusters + 2**40))) < 1e-14


def test_mutual_information_of_a_single_block(x64):
  whole, two = jnp.zeros(6, int), jnp.arange(6) % 2
  pairs = (whole, whole), (whole, two), (two, whole), (two, 7 - two)
  values = [metrics.normalized_mutual_information(*pair) for pair in pairs]
  np.testing.assert_array_equal(values, [1, 0, 0, 1])
  assert jnp.isnan(metrics.normalized_mutual_information(whole[:0], whole[:0]))


def test_mutual_information_of_masked_rows():
  rng = np.random.default_rng(0)
  labels, clusters = rng.integers(0, 4, (2, 50))
  where = rng.random(50) < 0.6

  def of(where, labels=labels, clusters=clusters):
    return metrics.normalized_mutual_information(labels, clusters, where=where)

  expected = by_entropies(labels[where], clusters[where])
  np.testing.assert_allclose(jax.jit(of)(where, labels, clusters), expected, rtol=1e-5)
  many = jax.vmap(of)(np.stack([where, ~where]))
  np.testing.assert_allclose(many[0], expected, rtol=1e-5)


THREE = np.repeat([0, 1, 2], [18, 3, 3])
ROWS = len(THREE)
APART = jnp.array([[0.0, 1, 2], [1, 0, 2], [2, 2, 0]])
EPISODES = jnp.arange(ROWS).reshape(1, 3, 8)


def _right(found):
  return (np.asarray(found) == THREE).astype(np.float32)


def _neighbours(x, z, **options):
  sites, labels = jnp.eye(3, x.shape[1]), jnp.arange(3)
  classes = prototypes.nearest_neighbours(x, sites, labels, num_classes=3, **options)
  return _right(classes)


# What is best when it is largest, by the embeddings and by the scores of classes.
SCORES = {
  **{
    name: lambda x, z, name=name: getattr(metrics.retrieval(x, THREE), name)
    for name in ("precision_at_1", "r_precision", "map_at_r")
  },
  "recall": lambda x, z: metrics.recall_at_k(
    metrics.retrieval(x, THREE).first_rank, k=ROWS
  ),
  "hs": lambda x, z: metrics.hierarchical_similarity(x, THREE, 2 - APART)[0][:, -1],
  "top_k": lambda x, z: metrics.top_k(z, THREE),
  "top_k, 2": lambda x, z: metrics.top_k(z, THREE, k=2),
  "precision": lambda x, z: metrics.hierarchical_precision(z, THREE, APART, k=1),
  "distance": lambda x, z: -metrics.average_hierarchical_distance(z, THREE, APART),
  "right by severity": lambda x, z: 1.0 - metrics.severity(z, THREE, APART).mistaken,
  "nearest_neighbours": _neighbours,
  "nearest_neighbours, 3": lambda x, z: _neighbours(x, z, k=3),
  "nearest_neighbours, l1": lambda x, z: _neighbours(x, z, norm="l1"),
  "simple_shot": lambda x, z: _right(prototypes.simple_shot(x, jnp.eye(3, 4)[:, None])),
  "episodes": lambda x, z: prototypes.episode_accuracies(x, EPISODES, num_shots=1),
}


@pytest.mark.parametrize("name", SCORES)
def test_nan_is_never_a_good_score(name):
  """A network whose outputs are NaN scores nothing, whatever the labels are.

  Decisions by index would give it the share of the first class, and a monitor would
  keep it as the best.
  """
  alive = jnp.eye(3, 4)[THREE] + 1e-3 * jnp.arange(4 * ROWS).reshape(ROWS, 4)
  dead = jnp.full((ROWS, 4), jnp.nan)
  score = SCORES[name]
  found = np.asarray(score(dead, dead[:, :3]))
  assert np.all(np.isnan(found) | (found == 0)), found
  # One dead row changes no other one for the better, and is not right itself.
  assert np.mean(np.asarray(score(alive, alive[:, :3]))) > -0.1
  half = alive.at[::2].set(jnp.nan)
  found = np.asarray(score(half, half[:, :3]))
  if found.shape == (ROWS,):
    assert np.all(np.isnan(found[::2]) | (found[::2] == 0)), found
