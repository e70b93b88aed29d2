"""Large, small and narrow numbers: what does not depend on a unit does not change."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import data, distances, losses, metrics, prototypes, solvers, training
from tests.prototypes.test_fixed import loop

KEY = jax.random.key(0)
POINTS = jax.random.normal(KEY, (40, 3))
FEATURES = POINTS + 0.3 * jax.random.normal(jax.random.key(1), (40, 3))
EPISODE = POINTS[:36].reshape(3, 4, 9)
CHANGED = 2 * EPISODE + FEATURES[:36].reshape(3, 4, 9)
NORMS = jnp.array([1.0, 1.2, 2.1, 1.9, 3.1, 3.0, 4.0, 3.9])
COUNTS = jnp.array([1, 1, 2, 2, 3, 3, 4, 4])
TREE = jnp.array([[0, 1, 2], [1, 0, 1], [2, 1, 0]])
SUPPORTS = jnp.array([[[1.0, 0]], [[0, 2.0]]])


def spectrum_of(scale):
  rows = jnp.diag(jnp.array([3.0, 1, 0.5])) * scale
  state = metrics.triangle_update(metrics.triangle_init(3), rows)
  return metrics.spectrum(state, components=3, power=2)


UNITLESS = {
  "distance_correlation": lambda s: metrics.distance_correlation(POINTS, FEATURES * s),
  "embedding_change": lambda s: metrics.embedding_change(
    EPISODE * s, CHANGED * s, num_shots=2
  ),
  "spectrum": spectrum_of,
  "norm_count_regression": lambda s: (
    metrics.norm_count_regression(NORMS * s, COUNTS).slopes
  ),
  "norm_count_correlation": lambda s: metrics.norm_count_correlation(NORMS * s, COUNTS),
  "distortion": lambda s: losses.distortion(POINTS[:3] * s, TREE),
  "simple_shot": lambda s: prototypes.simple_shot(
    jnp.array([[1.0, 2.0]]) * s, SUPPORTS * s
  ),
}


@pytest.mark.parametrize("scale", [1e25, 1e-25])
@pytest.mark.parametrize("name", UNITLESS)
def test_units(name, scale):
  actual, expected = (UNITLESS[name](s) for s in (scale, 1.0))
  assert np.isfinite(jax.tree.leaves(expected)[0]).all()
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4), actual, expected
  )


CENTRES = jax.random.normal(jax.random.key(2), (2, 3, 3))
HALVES = np.arange(40) % 2


def gaps(points, centres=CENTRES[0]):
  """[points, centres], distances in float64."""
  return np.linalg.norm(np.float64(points)[:, None] - np.float64(centres), axis=2)


def curve(points):
  first = np.argmin(gaps(points, points).max(1))
  return loop(np.float64(points), len(points), first=first)[1]


# Functions of points and centres to lengths, and their values of POINTS and CENTRES.
LENGTHS = {
  "pairwise_euclidean": (
    lambda x, v: distances.pairwise_euclidean(x, v[0]), lambda: gaps(POINTS)),
  "class_covering_radii": (
    lambda x, v: prototypes.class_covering_radii(x, HALVES, v),
    lambda: [gaps(POINTS[c::2], CENTRES[c]).min(1).max() for c in (0, 1)]),
  "greedy_k_centre": (
    lambda x, v: prototypes.greedy_k_centre(x, 5).radii,
    lambda: loop(np.float64(POINTS), 5)[1]),
  "greedy_k_centre_around_others": (
    lambda x, v: prototypes.greedy_k_centre(x, 5, initial=v[0]).radii,
    lambda: loop(np.float64(POINTS), 5, initial=np.float64(CENTRES[0]))[1]),
  "histogram": (
    lambda x, v: prototypes.prototype_histogram(x[None], v[0]).error,
    lambda: gaps(POINTS).min(1).mean()),
  "combination": (
    lambda x, v: prototypes.prototype_convex_combination(x[None], v[0])[0],
    lambda: np.float64(CENTRES[0])[gaps(POINTS).argmin(1)].mean(0)),
  "covering_radius": (
    lambda x, v: prototypes.covering_radius(x, v[0]),
    lambda: gaps(POINTS).min(1).max()),
  "covering_curve": (
    lambda x, v: prototypes.covering_curve(x[:9]), lambda: curve(POINTS[:9])),
  "mean_covering_radius": (
    lambda x, v: prototypes.mean_covering_radius(x[:9], HALVES[:9]),
    lambda: np.mean([np.mean(curve(POINTS[c:9:2])) for c in (0, 1)])),
}  # fmt: skip
SCALES = {
  np.float32: (2.0**-66, 2.0**64, 2.0**100),
  np.float64: (2.0**-600, 2.0**600, 2.0**850),
}


@pytest.mark.parametrize("dtype", SCALES)
@pytest.mark.parametrize("name", LENGTHS)
def test_lengths_have_the_unit_of_their_points(name, dtype, request):
  if dtype == np.float64:
    request.getfixturevalue("x64")
  function, oracle = LENGTHS[name]

  def total(*arrays):
    lengths = function(*arrays)
    return jnp.sum(lengths), lengths

  points, centres = POINTS.astype(dtype), CENTRES.astype(dtype)
  both = jax.jit(jax.grad(total, argnums=(0, 1), has_aux=True))
  slopes, lengths = both(points, centres)
  np.testing.assert_allclose(lengths, oracle(), rtol=1e-4, atol=1e-5)
  for scale in SCALES[dtype]:
    scaled = both(points * scale, centres * scale)
    np.testing.assert_array_equal(scaled[1], lengths * scale)
    jax.tree.map(np.testing.assert_array_equal, scaled[0], slopes)


@pytest.mark.parametrize("scale", SCALES[np.float32])
def test_clusters_have_the_unit_of_their_points(scale):
  usual, found = (solvers.k_means(POINTS * s, 4, key=KEY) for s in (1, scale))
  means = [np.float64(POINTS)[usual.assignment == c].mean(0) for c in range(4)]
  np.testing.assert_allclose(usual.centres, means, rtol=1e-4, atol=1e-5)
  np.testing.assert_array_equal(found.assignment, usual.assignment)
  np.testing.assert_array_equal(found.centres, usual.centres * scale)
  # A square: 0 or infinite where float32 has no such number.
  np.testing.assert_array_equal(found.inertia, np.float32(usual.inertia * scale**2))


def test_clusters_of_points_that_nearly_coincide_in_one_of_two_directions():
  small = POINTS[:, :1] * np.float32(1e-22)
  points = np.concatenate([np.ones_like(small), small], axis=1)
  usual = solvers.k_means(POINTS[:, :1], 4, key=KEY)
  found = solvers.k_means(points, 4, key=KEY)
  np.testing.assert_array_equal(found.assignment, usual.assignment)


@pytest.mark.parametrize("scale", [1e200, 1e-200])
def test_units_on_the_host(scale):
  numbers = np.array([1, 2, 4])
  usual = metrics.correlation(numbers, [1, 2, 3])
  np.testing.assert_allclose(metrics.correlation(numbers * scale, [1, 2, 3]), usual)


@pytest.mark.parametrize("scale", [1e50, 1e-50])
def test_units_of_least_distances(scale):
  points = np.array([[0.5]]) * scale, np.array([0])
  sites = np.array([[0.0], [3.0]]) * scale, np.array([0, 1])
  for norm in ("linf", "l1", "l2"):
    least = prototypes.nearest_neighbour_distance(*points, *sites, norm=norm)
    np.testing.assert_allclose(least / scale, 1, rtol=1e-9)


@pytest.mark.parametrize("norm", ["linf", "l1", "l2"])
def test_least_distance_between_sites_that_nearly_coincide(norm):
  # The cell of the third site is a narrow wedge along the first axis.
  site, near = np.array([1.0, 0.0]), 1e-5
  sides = [near * np.array([-np.sin(near), y * np.cos(near)]) for y in (1, -1)]
  sites = np.stack([site + sides[0], site + sides[1], site])
  least = prototypes.nearest_neighbour_distance(
    np.zeros((1, 2)), np.array([0]), sites, np.array([0, 0, 1]), norm=norm
  )
  np.testing.assert_allclose(least, 0.5, rtol=1e-4)


def test_sums_and_distances_of_half_precision():
  ones, zeros = jnp.ones((5000, 2), jnp.float16), jnp.zeros(5000, int)
  assert metrics.class_scatter(0 * ones[:1], ones, zeros, norm="linf")[0] == 5000
  far = jnp.full((1, 4), -5e4, jnp.float16)
  sites = jnp.array([[5e4] * 4, [6e4] * 4], jnp.float16)
  labels = jnp.array([0, 1])
  assert prototypes.nearest_neighbours(far, sites, labels, num_classes=2) == 0
  radius = prototypes.nearest_neighbour_radius(far, labels[:1], sites, labels)
  np.testing.assert_allclose(radius, 1e4, rtol=0.01)
  points = 100 * jax.random.normal(KEY, (700, 8))
  half, full = (
    prototypes.mean_covering_radius(points.astype(t), np.zeros(700, int))
    for t in (jnp.float16, jnp.float32)
  )
  np.testing.assert_allclose(half, full, rtol=0.01)
  views = jnp.ones((2, 2), jnp.float16), 1e6 * jnp.eye(2)
  found = metrics.nearest_negative_distance(*views, jnp.array([3, 2]))
  np.testing.assert_allclose(found.values, 0.765, rtol=0.01)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_integers_of_narrow_types(dtype):
  ranks = metrics.recall_at_k(np.array([1, 50, 120], dtype), k=300)
  np.testing.assert_array_equal(ranks, [1, 1, 1])
  steps = [
    data.shuffled_indices(KEY, 1000, dtype(step), batch_size=100) for step in range(10)
  ]
  assert len({*np.ravel(steps).tolist()}) == 1000
  costs = jax.random.normal(KEY, (3, 300))
  best = solvers.linear_assignment(costs)
  start = np.arange(3, dtype=dtype), best.column_dual
  again = solvers.linear_assignment(costs, start=start)
  np.testing.assert_array_equal(again.assignment, best.assignment)


def test_large_counts_differ_by_all_of_their_digits():
  usual, large = (metrics.norm_count_correlation(NORMS, COUNTS + n) for n in (0, 2**24))
  np.testing.assert_allclose(large, usual, rtol=1e-6)


@pytest.mark.parametrize("outside", [-1, 2])
def test_traced_labels_outside_take_no_part(outside):
  labels = jnp.array([0, 1, 0, 1])
  x = jnp.array([[1.0, 0], [1, 0.1], [1, 0.2], [0, 1]])
  matrix = jnp.array([[1, 0.2], [0.2, 1]])
  similar = jax.jit(lambda y: metrics.hierarchical_similarity(x, y, matrix, k=2))
  found = similar(labels.at[3].set(outside))
  np.testing.assert_array_equal(found.counted, [True, True, True, False])
  assert (found.values <= 1).all()
  assert (found.values[3] == 0).all()
  probe = jax.jit(lambda y: training.linear_probe(x, y, num_classes=2, penalty=1.0))
  mask = jnp.arange(4) != 3
  masked = training.linear_probe(x, labels, num_classes=2, penalty=1.0, where=mask)
  actual = probe(labels.at[3].set(outside))
  np.testing.assert_allclose(actual.bias, masked.bias, rtol=1e-5, atol=1e-6)
  assert (masked.bias != 0).all()


def test_wide_labels_choose_no_boundary_of_another_class():
  boundaries = jnp.array([0.0, 0.5, 1.0])
  with pytest.raises(ValueError, match="labels must fit into int32, got 1099511627776"):
    losses.margin(jnp.eye(3), np.array([2, 1, 2**40]), class_boundaries=boundaries)


def test_a_ridge_below_rounding_gives_a_solution():
  ones = jnp.ones((3, 2))
  for scale, ridge in ((1, 1e-12), (1000, 0.05)):
    found = losses.ridge_attribute_embeddings(scale * ones, ones[:, :1], ridge=ridge)
    np.testing.assert_allclose(scale * ones @ found, ones[:, :1], rtol=1e-4)


@pytest.mark.parametrize("radius", [0.9, 0.999, 0.99999])
def test_poincare_maps_near_the_boundary(radius, x64):
  base, point = (radius * np.array([[1.0, 0], [-0.8, 0.6]])).astype(np.float32)
  found = distances.poincare_log(base, point)
  base, point = base.astype(np.float64), point.astype(np.float64)
  expected = distances.poincare_log(base, point)
  np.testing.assert_allclose(distances.poincare_exp(base, expected), point, rtol=1e-5)
  np.testing.assert_allclose(found, expected, rtol=0.01, atol=1e-3 * abs(expected[0]))


def test_derivative_in_a_small_curvature():
  x, y = jnp.array([1.0, 2.0]), jnp.array([3.0, 1.0])
  slope = jax.grad(lambda c: distances.poincare(x, y, curvature=c))
  # 2 |d| / sqrt((1 - c a)(1 - c b)) less its cubic term, to first order in c
  size, a, b = 5**0.5, 5, 10
  expected = size * (a + b) - size**3 / 3
  for curvature in (1e-5, 1e-12, 1e-30):
    np.testing.assert_allclose(slope(curvature), expected, rtol=1e-3)


def test_an_image_grid_keeps_wide_labels(x64):
  labels = jnp.array([2**40, 2**40])
  images = jnp.ones((2, 2, 2, 1))
  assert data.image_grid(KEY, images, labels, single_label=True).label == 2**40
