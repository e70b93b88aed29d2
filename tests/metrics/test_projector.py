"""Explained variance and affinity of projectors, and nearest negatives, by loops."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import losses, metrics

RNG = np.random.default_rng(0)
DISPLACEMENTS, WEIGHTS = RNG.normal(size=(11, 6)), RNG.normal(size=(6, 3))


def unexplained(displacements, weights):
  """By least squares, row by row, as it is printed."""
  rest = [d - weights @ np.linalg.lstsq(weights, d)[0] for d in displacements]
  return sum(r @ r for r in rest) / sum(d @ d for d in displacements)


def test_unexplained_variance_against_least_squares(x64):
  expected = unexplained(DISPLACEMENTS, WEIGHTS)
  for dtype, weights, rtol in (
    (jnp.float64, WEIGHTS, 1e-12),
    (jnp.float32, np.float32(WEIGHTS), 2e-5),
    (jnp.bfloat16, np.float32(WEIGHTS), 2e-2),
  ):
    share = metrics.unexplained_variance(jnp.asarray(DISPLACEMENTS, dtype), weights)
    assert share.dtype == dtype
    np.testing.assert_allclose(np.float64(share), expected, rtol=rtol)


@pytest.mark.parametrize("shape", [(6, 3), (6, 9), (6, 6), (6, 1)])
def test_weights_of_low_rank(shape):
  rank = min(2, min(shape))
  left, right = RNG.normal(size=(6, rank)), RNG.normal(size=(rank, shape[1]))
  weights = (left @ right).astype(np.float32)
  # Rounding of the product makes it full of rank; these directions are none.
  found = metrics.unexplained_variance(DISPLACEMENTS.astype(np.float32), weights)
  np.testing.assert_allclose(found, unexplained(DISPLACEMENTS, left), rtol=1e-4)
  inside = (RNG.normal(size=(5, rank)) @ left.T).astype(np.float32)
  assert metrics.unexplained_variance(inside, weights) < 1e-10


def test_the_scale_of_the_weights_is_irrelevant():
  d, w = DISPLACEMENTS.astype(np.float32), WEIGHTS.astype(np.float32)
  expected = metrics.unexplained_variance(d, w)
  for scale in np.float32([1e-30, 1e-3, 1e30]):
    for pair in ((d, w * scale), (d * scale, w)):
      np.testing.assert_allclose(
        metrics.unexplained_variance(*pair), expected, rtol=1e-5
      )


def test_unexplained_at_the_edges():
  d, w = DISPLACEMENTS.astype(np.float32), WEIGHTS.astype(np.float32)
  assert metrics.unexplained_variance(0 * d, w) == 0
  assert metrics.unexplained_variance(d, 0 * w) == 1
  assert metrics.unexplained_variance(0 * d, 0 * w) == 0
  assert metrics.unexplained_variance(d[:0], w) == 0
  for broken in (
    (d, jnp.array(w).at[2, 1].set(np.nan)),
    (d, jnp.array(w).at[2, 1].set(np.inf)),
    (jnp.array(d).at[2, 1].set(np.inf), w),
  ):
    assert np.isnan(metrics.unexplained_variance(*broken))
  kept = np.arange(11) % 3 > 0
  hidden = np.where(kept[:, None], d, np.nan)
  found = metrics.unexplained_variance(hidden, w, where=kept)
  np.testing.assert_allclose(found, unexplained(d[kept], w), rtol=2e-5)
  assert metrics.unexplained_variance(hidden, w, where=np.zeros(11, bool)) == 0


def test_a_threshold_drops_weak_directions():
  w = np.diag([1.0, 0.5, 0.01])
  d = np.ones((1, 3))

  def left(threshold):
    return metrics.unexplained_variance(d, w, threshold=threshold)

  thresholds, expected = [0.0, 0.1, 0.5], [0, 1 / 3, 2 / 3]
  np.testing.assert_allclose([left(t) for t in thresholds], expected, atol=1e-6)
  several = jax.jit(jax.vmap(left))(np.array(thresholds))
  np.testing.assert_allclose(several, expected, atol=1e-6)


def test_alignment_with_a_projector_for_each_example():
  weights = RNG.normal(size=(11, 6, 3)).astype(np.float32)
  weights[4] = 0
  d = DISPLACEMENTS.astype(np.float32)
  d[5] = 0
  expected = np.array([1 - unexplained(d[i : i + 1], weights[i]) for i in range(4)])
  found = metrics.displacement_alignment(d, weights)
  np.testing.assert_allclose(found[:4], expected, rtol=2e-5)
  assert (found[4], found[5]) == (0, 1)
  kept = np.arange(11) != 1
  d[1], weights[1] = np.nan, np.nan
  masked = metrics.displacement_alignment(d, weights, where=kept)
  np.testing.assert_allclose(masked[kept], found[kept], rtol=1e-6)
  assert masked[1] == 0
  assert metrics.displacement_alignment(d[:0], weights[:0]).shape == (0,)
  half = metrics.displacement_alignment(jnp.bfloat16(d), weights, where=kept)
  assert half.dtype == jnp.bfloat16
  one = metrics.displacement_alignment(d[kept], np.stack([WEIGHTS] * 10))
  share = (np.asarray(one) * (d[kept] ** 2).sum(1)).sum() / (d[kept] ** 2).sum()
  whole = metrics.unexplained_variance(d[kept], WEIGHTS)
  np.testing.assert_allclose(1 - share, whole, rtol=1e-5)


def layers(*sizes, bias=0.0):
  pairs = itertools.pairwise(sizes)
  return [(RNG.normal(size=s), bias * RNG.normal(size=s[1])) for s in pairs]


def perceptron(parameters, slope):
  def apply(h):
    for number, (a, b) in enumerate(parameters):
      h = h @ a + b
      if number < len(parameters) - 1:
        h = jnp.where(h > 0, h, slope * h)
    return h

  return apply


def by_slopes(parameters, slope, h):
  """W = A_1 D_1 A_2 D_2 ... A_L, with NumPy."""
  product = np.eye(len(h))
  for a, b in parameters[:-1]:
    h = h @ a + b
    d = np.where(h > 0, 1, slope)
    product, h = product @ a @ np.diag(d), h * d
  return product @ parameters[-1][0]


@pytest.mark.parametrize("outputs", [3, 8])  # fewer and more than dim
@pytest.mark.parametrize("slope", [0.0, 0.2])
def test_local_affine_of_perceptrons(x64, outputs, slope):
  parameters = layers(5, 7, 6, outputs)
  projector = perceptron(parameters, slope)
  h = RNG.normal(size=(4, 5))
  local = jax.jit(jax.vmap(lambda row: metrics.local_affine(projector, row)))
  weights, bias = local(h)
  assert weights.shape == (4, 5, outputs)
  assert bias.shape == (4, outputs)
  for w, row in zip(weights, h, strict=True):
    np.testing.assert_allclose(w, by_slopes(parameters, slope, row), atol=1e-12)
    np.testing.assert_allclose(w.T @ row, projector(row), atol=1e-12)
  np.testing.assert_allclose(bias, 0, atol=1e-12)
  along_rays = local(h * np.array([0.1, 1, 5, 1e3])[:, None])
  np.testing.assert_allclose(along_rays.weights, weights, atol=1e-12)
  # Opposite rays are other regions.
  assert np.abs(local(-h).weights - weights).max() > 0.1


def test_local_affine_with_biases(x64):
  parameters = layers(5, 7, 3, bias=1.0)
  projector = perceptron(parameters, 0.1)
  h = RNG.normal(size=5)
  weights, bias = metrics.local_affine(projector, h)
  np.testing.assert_allclose(weights, by_slopes(parameters, 0.1, h), atol=1e-12)
  np.testing.assert_allclose(weights.T @ h + bias, projector(h), atol=1e-12)
  assert np.abs(bias).max() > 0.01
  # The map holds around, not only there.
  near = h + 1e-6 * RNG.normal(size=5)
  np.testing.assert_allclose(weights.T @ near + bias, projector(near), atol=1e-12)


def test_local_affine_types_and_kinks():
  weights, bias = metrics.local_affine(jax.nn.relu, jnp.array([0.0, 1.0]))
  np.testing.assert_array_equal([*weights, bias], [[0, 0], [0, 1], [0, 0]])
  found = metrics.local_affine(lambda h: h[:1] * 2 + 1, jnp.bfloat16([1.0, 2.0]))
  assert found.weights.dtype == found.bias.dtype == jnp.bfloat16
  np.testing.assert_array_equal(np.float32(found.weights), [[2], [0]])
  assert found.bias[0] == 1


def different(rows):
  return len({tuple(row) for row in rows})


@pytest.mark.parametrize("units", [1, 5, 31, 32, 33, 70])
def test_regions_against_sets(units):
  patterns = RNG.random((60, units)) < 0.5
  # Copies, and rows that differ in the first or in the last unit alone.
  patterns[20:40] = np.tile(patterns[:10], (2, 1))
  patterns[30:40, -1] ^= True
  patterns[40:45] = patterns[:5]
  patterns[40:45, 0] ^= True
  for where in (np.ones(60, bool), RNG.random(60) < 0.6, np.zeros(60, bool)):
    assert metrics.count_regions(patterns, where=where) == different(patterns[where])
  assert metrics.count_regions(patterns) == different(patterns)


def test_regions_of_stacks_and_without_units_or_rows():
  assert metrics.count_regions(np.zeros((7, 0), bool)) == 1
  assert metrics.count_regions(np.zeros((7, 0), bool), where=np.zeros(7, bool)) == 0
  assert metrics.count_regions(np.zeros((0, 4), bool)) == 0
  stacked = RNG.random((3, 9, 2)) < 0.5
  counts = jax.jit(jax.vmap(metrics.count_regions))(stacked)
  assert list(counts) == [different(part) for part in stacked]


def test_regions_of_lines_in_the_plane(x64):
  """n lines through 0 cut the plane into 2 n cones."""
  turns = np.linspace(0, 2 * np.pi, 1000, endpoint=False) + 1e-4
  points = np.stack([np.cos(turns), np.sin(turns)], 1)
  for n in (1, 3, 8):
    angles = np.pi * np.arange(n) / n
    normals = np.stack([np.cos(angles), np.sin(angles)])
    assert metrics.count_regions(points @ normals > 0) == 2 * n


FIRST, SECOND = RNG.normal(size=(2, 7, 4)).astype(np.float32)
PROJECTION = RNG.normal(size=(4, 2)).astype(np.float32)


def nearest_by_loops(first, second, kept):
  """Yields rows, nearest negatives of the projector, and distances in the encoder."""
  unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (first, second)]
  encoder = np.concatenate(unit)
  f = np.concatenate([first, second]) @ PROJECTION
  f = f / np.linalg.norm(f, axis=1, keepdims=True)
  for i in np.flatnonzero(kept):
    rows = [j for j in range(14) if j % 7 != i and kept[j % 7]]
    j = max(rows, key=lambda j, i=i: f[i] @ f[j])
    yield i, j, np.linalg.norm(encoder[i] - encoder[j])


@pytest.mark.parametrize("masked", [(), (2, 5)])
def test_nearest_negatives_against_loops(masked):
  kept = ~np.isin(np.arange(7), masked)
  first, second = (np.where(kept[:, None], x, np.nan) for x in (FIRST, SECOND))
  projected = [x @ PROJECTION for x in (first, second)]
  nearest = losses.info_nce_bound(*projected, where=kept).nearest
  found = metrics.nearest_negative_distance(first, second, nearest, where=kept)
  np.testing.assert_array_equal(found.counted, kept)
  np.testing.assert_array_equal(found.values[~kept], 0)
  labels = np.array([0, 1, 0, 1, 1, 0, 0])
  shared = []
  for i, j, distance in nearest_by_loops(FIRST, SECOND, kept):
    assert nearest[i] == j
    np.testing.assert_allclose(found.values[i], distance, rtol=2e-5)
    shared.append(labels[i] == labels[j % 7])
  share = metrics.label_sharing(nearest, labels, where=kept)
  np.testing.assert_allclose(share, np.mean(shared), rtol=1e-6)
  # The bound's -1 of masked rows is enough.
  assert metrics.label_sharing(nearest, labels) == share


def test_nearest_negatives_at_the_edges():
  alone = losses.info_nce_bound(FIRST[:1], SECOND[:1]).nearest
  found = metrics.nearest_negative_distance(FIRST[:1], SECOND[:1], alone)
  assert (found.values[0], found.counted[0]) == (0, False)
  assert np.isnan(metrics.label_sharing(alone, np.zeros(1, int)))
  # Opposite, equal and zero vectors, sizes of no account.
  first = np.array([[1e30, 0], [-1e-30, 0], [0, 0]], np.float32)
  second = np.array([[0, 3], [-3, 0], [0, 0]], np.float32)
  found = metrics.nearest_negative_distance(first, second, np.array([1, 4, 0]))
  np.testing.assert_allclose(found.values, [2, 0, 1], rtol=1e-6)
  # A kept row whose nearest is masked, and a traced one out of range.
  kept = np.array([True, True, False])
  second[2] = np.nan
  measure = jax.jit(metrics.nearest_negative_distance)
  for index in (5, 6, -2):
    nearest = np.array([index, 0, 1])
    found = measure(first, second, nearest, where=kept)
    np.testing.assert_array_equal(found.counted, [False, True, False])
    np.testing.assert_allclose(found.values, [0, 2, 0], rtol=1e-6)
    assert jax.jit(metrics.label_sharing)(nearest, np.array([1, 1, 1]), where=kept) == 1
  half = (jnp.bfloat16(x) for x in (FIRST, SECOND))
  short = metrics.nearest_negative_distance(*half, np.arange(1, 8))
  assert short.values.dtype == jnp.bfloat16


def test_histogram_against_numpy(x64):
  distances = np.concatenate([RNG.uniform(0, 2, 300), [0, 0.5, 1, 1.5, 2]])
  for bins in (1, 4, 50):
    shares, edges = metrics.distance_histogram(distances, bins=bins)
    counts, expected = np.histogram(distances, bins, (0, 2))
    np.testing.assert_allclose(shares, counts / 305, rtol=1e-12)
    np.testing.assert_allclose(edges, expected, rtol=1e-12)
    np.testing.assert_allclose(shares.sum(), 1, rtol=1e-12)


def test_histogram_at_the_edges():
  x = np.array([0.1, np.nan, 2.0000002, 1.0], np.float32)
  kept = np.array([True, False, True, True])
  shares = metrics.distance_histogram(x, bins=4, where=kept).shares
  np.testing.assert_allclose(shares, [1 / 3, 0, 1 / 3, 1 / 3], rtol=1e-6)
  assert np.isnan(metrics.distance_histogram(x, bins=4).shares).all()
  none = metrics.distance_histogram(x, bins=4, where=np.zeros(4, bool))
  assert np.isnan(none.shares).all()
  assert metrics.distance_histogram(jnp.bfloat16(x)).edges.dtype == jnp.float32


def test_collapse():
  rows = np.ones((6, 3), np.float32)
  bound = losses.info_nce_bound(rows, rows)
  for dtype in (jnp.float32, jnp.bfloat16):
    means = [x.mean().astype(dtype) for x in (bound.invariance, bound.repulsion)]
    assert metrics.contrastive_collapse(*means)
  for views in ((FIRST, SECOND), (rows[:1], rows[:1])):
    bound = losses.info_nce_bound(*views)
    means = bound.invariance.mean(), bound.repulsion.mean()
    assert not metrics.contrastive_collapse(*means)
  # Views that agree are not enough, and neither are examples alike; both, strictly.
  invariance = np.array([-1, -0.9, -0.9991, -0.999, np.nan], np.float32)
  repulsion = np.array([0.9, 1, 0.9991, 1, 1], np.float32)
  found = metrics.contrastive_collapse(invariance, repulsion)
  np.testing.assert_array_equal(found, [False, False, True, False, False])
  found = metrics.contrastive_collapse(invariance, repulsion, threshold=0.8)
  np.testing.assert_array_equal(found, [True, True, True, True, False])
