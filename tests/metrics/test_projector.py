"""Projectors: what they see, their regions and nearest negatives; group actions."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy import linalg

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
      share = metrics.unexplained_variance(*pair)
      np.testing.assert_allclose(share, expected, rtol=1e-5)


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
  usual = np.delete(np.arange(11), [4, 5])
  expected = [1 - unexplained(d[i : i + 1], weights[i]) for i in usual]
  found = metrics.displacement_alignment(d, weights)
  np.testing.assert_allclose(found[usual], expected, rtol=2e-5)
  assert (found[4], found[5]) == (0, 1)
  kept = np.arange(11) != 1
  d[1], weights[1] = np.nan, np.nan
  masked = metrics.displacement_alignment(d, weights, where=kept)
  np.testing.assert_allclose(masked[kept], found[kept], rtol=1e-6)
  assert masked[1] == 0
  assert metrics.displacement_alignment(d[:0], weights[:0]).shape == (0,)
  half = metrics.displacement_alignment(jnp.bfloat16(d), weights, where=kept)
  assert half.dtype == jnp.bfloat16


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


FIRST, SECOND = RNG.normal(size=(2, 7, 4)).astype(np.float32)
PROJECTION = RNG.normal(size=(4, 2)).astype(np.float32)


def nearest_by_numpy(kept):
  """The projector's nearest negative of each row, and its distance in the encoder."""
  both = np.concatenate([FIRST, SECOND])
  encoder, f = both, both @ PROJECTION
  encoder, f = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (encoder, f))
  rows = np.arange(14) % 7
  negative = kept[rows] & (rows != np.arange(7)[:, None])
  nearest = np.where(negative, f[:7] @ f.T, -2).argmax(1)
  return nearest, np.linalg.norm(encoder[:7] - encoder[nearest], axis=1)


@pytest.mark.parametrize("masked", [(), (2, 5)])
def test_nearest_negatives_against_numpy(masked):
  kept = ~np.isin(np.arange(7), masked)
  first, second = (np.where(kept[:, None], x, np.nan) for x in (FIRST, SECOND))
  projected = [x @ PROJECTION for x in (first, second)]
  nearest = losses.info_nce_bound(*projected, where=kept).nearest
  found = metrics.nearest_negative_distance(first, second, nearest, where=kept)
  np.testing.assert_array_equal(found.counted, kept)
  np.testing.assert_array_equal(found.values[~kept], 0)
  labels = np.array([0, 1, 0, 1, 1, 0, 0])
  expected, distances = nearest_by_numpy(kept)
  np.testing.assert_array_equal(nearest[kept], expected[kept])
  np.testing.assert_allclose(found.values[kept], distances[kept], rtol=2e-5)
  share = metrics.label_sharing(nearest, labels, where=kept)
  shared = labels == labels[expected % 7]
  np.testing.assert_allclose(share, np.mean(shared[kept]), rtol=1e-6)
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
  for where in (None, np.zeros(4, bool)):
    assert np.isnan(metrics.distance_histogram(x, bins=4, where=where).shares).all()
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


RANDOM = np.random.default_rng(0)
TURN = np.array([[0.0, -1.0], [1.0, 0.0]])
SHIFT = (np.roll(np.eye(5), 1, 0) - np.roll(np.eye(5), -1, 0)) / 2
SCALES = np.array([0.0, 0.3, -1.2, 2.5])
GENERATORS = {
  "turn": TURN,
  "grow": np.eye(3),
  "shift": SHIFT,
  "blocks": linalg.block_diag(TURN, [[0.5]], SHIFT),
  "any": RANDOM.normal(size=(4, 4)),
}


@pytest.mark.parametrize("name", GENERATORS)
def test_actions_against_the_exponential(x64, name):
  generator = GENERATORS[name]
  h = RANDOM.normal(size=(4, len(generator)))
  expected = [linalg.expm(e * generator) @ x for x, e in zip(h, SCALES, strict=True)]
  found = metrics.lie_action(generator, h, SCALES)
  np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
  short = metrics.lie_action(np.float32(generator), np.float32(h), np.float32(SCALES))
  assert short.dtype == jnp.float32
  np.testing.assert_allclose(short, expected, rtol=1e-4, atol=1e-4)
  linear = metrics.lie_action(generator, h, SCALES, linear=True)
  size = np.abs(SCALES) * np.linalg.norm(generator, 2)
  bound = size**2 * np.exp(size) * np.linalg.norm(h, axis=1) / 2
  assert (np.linalg.norm(linear - found, axis=1) <= bound + 1e-12).all()
  np.testing.assert_allclose(linear[1], h[1] + 0.3 * generator @ h[1], rtol=1e-12)


def test_slopes_of_an_action(x64):
  arguments = 0.3 * TURN, RANDOM.normal(size=(2, 2)), SCALES[1:3]
  check_grads(jax.jit(metrics.lie_action), arguments, 1, ["rev"], rtol=1e-6)


def test_actions_in_half_precision_and_on_a_stack():
  h = RANDOM.normal(size=(3, 4, 2)).astype(np.float32)
  turn, scales = np.float32(TURN), np.float32(SCALES)
  stacked = jax.jit(jax.vmap(metrics.lie_action, (None, 0, None)))(turn, h, scales)
  for part, moved in zip(h, stacked, strict=True):
    alone = metrics.lie_action(turn, part, scales)
    np.testing.assert_allclose(moved, alone, rtol=1e-5, atol=1e-6)
  short = metrics.lie_action(jnp.bfloat16(TURN), jnp.bfloat16(h[0]), SCALES)
  assert short.dtype == jnp.bfloat16
  np.testing.assert_allclose(np.float32(short), stacked[0], atol=3e-2)


def test_a_generator_is_found_again(x64):
  generator = RANDOM.normal(size=(5, 5))
  h = RANDOM.normal(size=(40, 5))
  scales = RANDOM.uniform(0.1, 2, 40)
  for true, given, factor in (
    (np.ones(40), None, 1),
    (scales, scales, 1),
    (np.full(40, 3.0), None, 3),  # without them only the product is known
  ):
    moved = metrics.lie_action(generator, h, true, linear=True)
    estimate = metrics.estimate_generator(h, moved, scales=given)
    np.testing.assert_allclose(estimate, factor * generator, rtol=1e-10, atol=1e-12)


def test_the_estimate_from_finite_moves(x64):
  """exp(e G) - I, which is e G to first order, with an error that falls with e^2."""
  h, errors = RANDOM.normal(size=(30, 5)), []
  for e in (0.2, 0.1):
    moved = metrics.lie_action(SHIFT, h, np.full(30, e))
    found = metrics.estimate_generator(h, moved)
    columns = metrics.lie_action(SHIFT, np.eye(5), np.full(5, e)).T
    np.testing.assert_allclose(found, columns - np.eye(5), atol=1e-12)
    errors.append(np.linalg.norm(found - e * SHIFT, 2))
    size = e * np.linalg.norm(SHIFT, 2)
    assert errors[-1] <= size**2 * np.exp(size) / 2
  assert 3.5 < errors[0] / errors[1] < 4.5


def test_few_pairs_tell_of_their_span_only(x64):
  generator, h = RANDOM.normal(size=(6, 6)), RANDOM.normal(size=(2, 6))
  h = np.concatenate([h, h[:1] + h[1:]])  # rank 2 of 3 pairs
  moved = metrics.lie_action(generator, h, np.ones(3), linear=True)
  found = metrics.estimate_generator(h, moved)
  on_span = np.linalg.pinv(h[:2]) @ h[:2]
  np.testing.assert_allclose(found, generator @ on_span, atol=1e-10)
  short = metrics.estimate_generator(np.float32(h), np.float32(moved))
  assert short.dtype == jnp.float32
  np.testing.assert_allclose(short, generator @ on_span, atol=1e-3)


def test_a_ridge_against_the_normal_equations(x64):
  h, moved = RANDOM.normal(size=(2, 7, 4))
  scales = RANDOM.uniform(0.5, 1.5, 7)
  rows = scales[:, None] * h
  for ridge in (0.0, 0.3, 100.0):
    system = rows.T @ rows + ridge * np.eye(4)
    expected = np.linalg.solve(system, rows.T @ (moved - h)).T
    found = metrics.estimate_generator(h, moved, scales=scales, ridge=ridge)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_masked_pairs_and_no_moves():
  h, moved = RANDOM.normal(size=(2, 9, 4)).astype(np.float32)
  kept = np.arange(9) != 3
  expected = metrics.estimate_generator(h[kept], moved[kept])
  h[3], moved[3] = np.nan, np.inf
  scales = np.where(kept, 1, np.nan).astype(np.float32)
  found = metrics.estimate_generator(h, moved, scales=scales, where=kept)
  np.testing.assert_allclose(found, expected, atol=1e-5)
  nothing = metrics.estimate_generator(h, moved, where=np.zeros(9, bool))
  np.testing.assert_array_equal(nothing, np.zeros((4, 4)))
  for ridge in (0.0, 1.0):
    still = metrics.estimate_generator(0 * h[:3], h[:3], ridge=ridge)
    np.testing.assert_array_equal(still, np.zeros((4, 4)))
  short = metrics.estimate_generator(jnp.bfloat16(h[:3]), jnp.bfloat16(moved[:3]))
  assert short.dtype == jnp.bfloat16
  assert np.isnan(metrics.estimate_generator(h, moved)).any()


def test_overlap_with_the_kernel(x64):
  q = np.linalg.qr(RANDOM.normal(size=(6, 6)))[0]
  weights = q[:, :3] @ RANDOM.normal(size=(3, 4))  # rank 3
  unseen = q[:, 3:] @ RANDOM.normal(size=(3, 6))
  seen = q[:, :3] @ RANDOM.normal(size=(3, 6))
  np.testing.assert_allclose(metrics.kernel_overlap(unseen, weights), 1, rtol=1e-12)
  np.testing.assert_allclose(metrics.kernel_overlap(seen, weights), 0, atol=1e-12)
  expected = (unseen**2).sum() / ((unseen**2).sum() + (seen**2).sum())
  found = metrics.kernel_overlap(unseen + seen, weights)
  np.testing.assert_allclose(found, expected, rtol=1e-12)
  scaled = metrics.kernel_overlap(1e-8 * (unseen + seen), 1e9 * weights)
  np.testing.assert_allclose(scaled, found, rtol=1e-10)
  moves = unseen @ RANDOM.normal(size=(20, 6)).T
  np.testing.assert_allclose(metrics.kernel_overlap(moves, weights), 1, rtol=1e-12)
  assert metrics.kernel_overlap(0 * unseen, weights) == 1
  assert metrics.kernel_overlap(unseen, 0 * weights) == 1
  # Rounding to half precision gives the weights a fourth direction.
  half = (jnp.bfloat16(matrix) for matrix in (unseen + seen, weights))
  short = metrics.kernel_overlap(*half, threshold=0.02)
  assert short.dtype == jnp.bfloat16
  np.testing.assert_allclose(np.float32(short), expected, atol=2e-2)
