"""Normalisations and distances against NumPy, at singular points, and as metrics."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from jax.test_util import check_grads

from spherejax import _versions, distances
from tests import refusals

ELEMENTWISE = {
  "squared_euclidean": lambda x, y: ((x - y) ** 2).sum(),
  "euclidean": lambda x, y: np.sqrt(((x - y) ** 2).sum()),
  "dot": lambda x, y: (x * y).sum(),
  "cosine": lambda x, y: (unit(x) * unit(y)).sum(),
  "cosine_distance": lambda x, y: 1 - (unit(x) * unit(y)).sum(),
  "chordal": lambda x, y: np.sqrt(((unit(x) - unit(y)) ** 2).sum()),
  "angle": lambda x, y: np.arccos((unit(x) * unit(y)).sum()),
  "poincare": lambda x, y: 2 * np.arctanh(np.linalg.norm(mobius(-x, y, 1.0))),
}
DIFFERENCE = ("squared_euclidean", "euclidean", "chordal", "angle", "poincare")


def unit(x):
  return x / np.sqrt((x * x).sum())


def mobius(x, y, c):
  xy, x2, y2 = ((a * b).sum(-1, keepdims=True) for a, b in ((x, y), (x, x), (y, y)))
  top = (1 + 2 * c * xy + c * y2) * x + (1 - c * x2) * y
  return top / (1 + 2 * c * xy + c * c * x2 * y2)


def both_forms(name):
  """A distance of rows, and that of all pairs."""
  return getattr(distances, name), getattr(distances, f"pairwise_{name}")


def rows(seed, count, dim=5):
  """Rows inside the unit ball, so that every distance is defined on them."""
  x = np.random.default_rng(seed).normal(size=(count, dim))
  return 0.8 * x / (1 + np.linalg.norm(x, axis=1, keepdims=True))


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_and_pairwise_equal_the_formula(name, x64):
  x, y = rows(0, 6), rows(1, 4)
  function, pairwise = both_forms(name)
  expected = np.array([[ELEMENTWISE[name](a, b) for b in y] for a in x])
  elementwise, diagonal = function(x[:4], y), np.diagonal(expected)
  np.testing.assert_allclose(elementwise, diagonal, rtol=1e-10, atol=1e-12)
  for dtype, rtol, atol in (
    (jnp.float64, 1e-10, 1e-12),
    (jnp.float32, 2e-5, 2e-6),
    (jnp.bfloat16, 3e-2, 2e-2),
  ):
    matrix = pairwise(jnp.asarray(x, dtype), jnp.asarray(y, dtype))
    assert matrix.dtype == dtype
    np.testing.assert_allclose(matrix.astype(float), expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_self_call_has_an_exact_diagonal(name):
  x = rows(2, 5).astype(np.float32)
  x[3] = 0
  _, pairwise = both_forms(name)
  matrix = pairwise(x)
  diagonal = {
    "dot": (x * x).sum(1),
    "cosine": [1, 1, 1, 0, 1],
    "cosine_distance": [0, 0, 0, 1, 0],
    "angle": [0, 0, 0, np.pi / 2, 0],
  }
  np.testing.assert_allclose(np.diagonal(matrix), diagonal.get(name, 0), rtol=1e-6)
  others = 1 - np.eye(5, dtype=np.float32)
  np.testing.assert_allclose(matrix * others, pairwise(x, x) * others, atol=1e-6)


@pytest.mark.parametrize("name", DIFFERENCE)
@pytest.mark.parametrize("block_size", [1, 4, 6, 9])
def test_difference_form_is_the_gram_form_away_from_zero(name, block_size, x64):
  x, y = rows(0, 6), rows(1, 4)
  _, pairwise = both_forms(name)
  blocks = pairwise(x, y, method="difference", block_size=block_size)
  np.testing.assert_allclose(blocks, pairwise(x, y, method="gram"), rtol=1e-10)


def test_difference_form_keeps_small_distances_that_the_product_loses():
  x = np.zeros((2, 8), np.float32)
  x[:, 0] = 1
  x[1, 1] = 1e-4
  exact = distances.pairwise_euclidean(x, method="difference")[0, 1]
  np.testing.assert_allclose(exact, 1e-4, rtol=1e-6)
  assert distances.pairwise_euclidean(x)[0, 1] == 0


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_gradients_agree_with_differences(name, x64):
  """In both modes, and their second derivatives in all orders of the modes."""
  function, pairwise = both_forms(name)
  x, y, along = rows(3, 3), rows(4, 3), np.random.default_rng(5).normal(size=(2, 3, 5))

  @jax.jit
  def values(x, y):
    # Each point is at distance 0 from itself, wherever it goes.
    return function(x, y), pairwise(x, y), pairwise(x)

  @jax.jit
  def slopes(x, y):
    ahead = jax.jvp(function, (x, y), tuple(along))[1]
    return ahead, jax.vjp(function, x, y)[1](jnp.arange(1.0, 4.0))

  for call in (values, slopes):
    check_grads(call, (x, y), 1, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_finite_at_zero_duplicate_and_antipodal_rows(name):
  x = np.array([[0.5, 0], [0.5, 0], [-0.5, 0], [0, 0], [0, 0]], np.float32)
  function, pairwise = both_forms(name)

  @jax.jit
  def run(x, single, zero):
    return [
      jax.value_and_grad(lambda x, call=call: jnp.sum(call(x)))(place)
      for call, place in (
        (pairwise, x),
        (lambda x: pairwise(x, x[::-1]), x),
        (lambda x: function(x, x + 0), single),
        (lambda x: function(x, zero), zero),
      )
    ]

  results = run(x, np.float32([0.3, 0.4]), np.zeros(2, np.float32))
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(results))
  *_, (_, at_equal), (_, at_zero) = results
  np.testing.assert_array_equal(at_zero, np.zeros(2))
  if name in DIFFERENCE:
    np.testing.assert_allclose(at_equal, 0, atol=1e-7)


def test_angle_is_exact_near_zero_and_pi():
  for theta in (1e-4, 1e-3, 1.0, np.pi - 1e-3):
    x = jnp.array([1.0, 0.0])
    y = jnp.array([np.cos(theta), np.sin(theta)], jnp.float32)
    np.testing.assert_allclose(distances.angle(x, 3 * y), theta, rtol=1e-3)
  np.testing.assert_allclose(distances.angle(x, -x), np.pi, rtol=1e-6)
  np.testing.assert_allclose(distances.angle(x, 0 * x), np.pi / 2, rtol=1e-6)
  np.testing.assert_allclose(distances.angle(0 * x, 0 * x), np.pi / 2, rtol=1e-6)


jacobian_of_normalised = jax.jit(jax.jacobian(distances.l2_normalize))


@pytest.mark.parametrize("size", [1e-30, 1e-10, 1.0, 1e4, 1e30])
def test_normalisation_over_the_whole_range_of_float32(size):
  x = np.array([[3.0, 4.0, 0.0], [0.0, 0.0, 0.0]], np.float32) * np.float32(size)
  expected = [[0.6, 0.8, 0], [0, 0, 0]]
  np.testing.assert_allclose(distances.l2_normalize(x), expected, rtol=1e-6)
  cosines = distances.pairwise_cosine(x, np.float32([[0, 1, 0]]))
  np.testing.assert_allclose(cosines, [[0.8], [0]], rtol=1e-6)
  slopes = np.asarray(jacobian_of_normalised(x[0]), np.float64)
  expected = np.eye(3)[0] - 0.6 * np.array([0.6, 0.8, 0])
  np.testing.assert_allclose(slopes[0] * size, expected / 5, rtol=1e-5, atol=1e-7)
  np.testing.assert_array_equal(jacobian_of_normalised(0 * x[0]), np.zeros((3, 3)))


@pytest.mark.parametrize("method", ["gram", "difference"])
@pytest.mark.parametrize("size", [1.0, 1e19, 1e20, 1e28])
def test_distances_of_rows_whose_squares_overflow(size, method):
  x = np.array([[1, 0], [-1, 0], [0.5, 1], [1, 0]]) * size
  exact = np.linalg.norm(x[:, None] - x[None], axis=2)
  x = x.astype(np.float32)
  for y in (None, x):
    found = distances.pairwise_euclidean(x, y, method=method)
    np.testing.assert_allclose(found, exact, rtol=1e-5)
    squares = distances.pairwise_squared_euclidean(x, y, method=method)
    largest = float(np.finfo(np.float32).max)
    expected = np.where(exact**2 > largest, np.inf, exact**2)
    np.testing.assert_allclose(squares, expected, rtol=1e-5)
  total = jax.grad(lambda x, y: distances.pairwise_euclidean(x, y).sum())
  np.testing.assert_allclose(total(x[:1], x[1:2]), [[1, 0]], rtol=1e-6)
  assert distances.euclidean(x[0], x[1]) == pytest.approx(2 * size, rel=1e-6)


def test_usual_rows_beside_a_huge_one_keep_their_distances():
  x = jnp.array([[3e38, 1.0], [-3e38, 1.0], [1.0, 2.0], [1.0, 2.0], [4.0, 6.0]])
  found = distances.pairwise_euclidean(x)
  assert (found[:2, 2:] == jnp.inf).all()
  expected = [[0, 0, 5], [0, 0, 5], [5, 5, 0]]
  np.testing.assert_allclose(found[2:, 2:], expected, rtol=1e-6)
  # The norm alone is right up to the largest number.
  assert distances.euclidean(x[0] / 2, x[1] / 2) == pytest.approx(3e38, rel=1e-6)


@pytest.mark.parametrize("method", ["gram", "difference"])
def test_a_row_that_is_no_number_is_at_no_distance_from_others_only(method):
  units = distances.l2_normalize(jnp.array([[jnp.nan, 1.0], [3.0, 4.0]]))
  np.testing.assert_allclose(units, [[np.nan] * 2, [0.6, 0.8]], rtol=1e-6)
  x = jnp.array([[jnp.nan, 0.0], [3e20, 0.0], [0.0, 4e20], [jnp.inf, 1.0]])
  found = distances.pairwise_euclidean(x, x, method=method)
  assert np.isnan(found[0]).all()
  assert found[1, 2] == pytest.approx(5e20, rel=1e-6)
  assert not np.isfinite(found[3, :3]).any()


def test_normalisation_variants(x64):
  x = rows(5, 4) * 3
  x[2] = 0
  lengths = np.linalg.norm(x, axis=1, keepdims=True)
  variants = {
    functools.partial(distances.l2_normalize_additive, offset=0.5): lengths + 0.5,
    functools.partial(distances.l2_normalize_clipped, floor=0.9): lengths.clip(0.9),
    distances.unit_ball: lengths.clip(1),
  }
  for variant, scales in variants.items():
    np.testing.assert_allclose(variant(x), x / scales, rtol=1e-12)

  @jax.jit
  def jacobians(x):
    return [jax.jacobian(variant)(x) for variant in variants]

  additive, clipped, ball = jacobians(np.zeros(2))
  np.testing.assert_array_equal(additive, np.zeros((2, 2)))
  np.testing.assert_allclose(clipped, np.eye(2) / 0.9)
  np.testing.assert_allclose(ball, np.eye(2))
  on_sphere = np.array([1.0, 0.0])
  np.testing.assert_allclose(jacobians(on_sphere)[2], np.eye(2))
  np.testing.assert_allclose(jacobians(2 * on_sphere)[2], np.diag([0, 0.5]))


PAIRS = hnp.arrays(np.float32, (2, 4), elements=st.floats(-3, 3, width=32))


@settings(max_examples=40, derandomize=True, deadline=None)
@given(PAIRS)
def test_unit_ball_is_a_projection(pair):
  u, v = distances.unit_ball(pair)
  np.testing.assert_allclose(distances.unit_ball(u), u, rtol=1e-6)
  before = np.linalg.norm(pair[0] - pair[1])
  assert np.linalg.norm(u - v) <= before * (1 + 1e-6) + 1e-6
  assert np.linalg.norm(u) <= 1 + 1e-6


@settings(max_examples=40, derandomize=True, deadline=None)
@given(PAIRS.filter(lambda x: (np.linalg.norm(x, axis=1) > 0.1).all()))
def test_cosine_chordal_and_angle_tell_the_same(pair):
  x, y = pair
  cosine, chordal = distances.cosine(x, y), distances.chordal(x, y)
  angle = distances.angle(x, y)
  np.testing.assert_allclose(chordal**2, 2 - 2 * cosine, atol=2e-6)
  np.testing.assert_allclose(chordal, 2 * np.sin(angle / 2), atol=2e-6)
  assert 0 <= angle <= np.pi + 1e-6
  np.testing.assert_allclose(distances.cosine(2 * x, 0.5 * y), cosine, atol=1e-6)


@pytest.mark.parametrize("c", [0.1, 1.0, 4.0])
def test_poincare_forms_maps_and_metric(c, x64):
  x, y = (rows(seed, 20) / np.sqrt(c) for seed in (6, 7))
  poincare, add, exp, log = (
    functools.partial(getattr(distances, name), curvature=c)
    for name in ("poincare", "mobius_add", "poincare_exp", "poincare_log")
  )
  d = poincare(x, y)
  lengths = np.sqrt(c) * np.linalg.norm(mobius(-x, y, c), axis=1)
  np.testing.assert_allclose(d, 2 / np.sqrt(c) * np.arctanh(lengths), rtol=1e-12)
  np.testing.assert_allclose(poincare(y, x), d, rtol=1e-14)
  np.testing.assert_allclose(add(x, y), mobius(x, y, c), rtol=1e-12)
  tangent = log(x, y)
  np.testing.assert_allclose(exp(x, tangent), y, rtol=1e-9, atol=1e-12)
  metric = 2 / (1 - c * (x**2).sum(1)) * np.linalg.norm(tangent, axis=1)
  np.testing.assert_allclose(metric, d, rtol=1e-10)
  np.testing.assert_array_equal(exp(x, np.zeros_like(x)), x)
  np.testing.assert_allclose(log(x, x), 0, atol=1e-15)


def test_poincare_maps_are_the_identity_to_first_order():
  x = rows(6, 1)[0].astype(np.float32)
  eye = np.eye(5)

  @jax.jit
  def jacobians(x, v):
    calls = (distances.poincare_exp, v), (distances.poincare_log, x + v)
    return [jax.jacobian(function, (0, 1))(x, point) for function, point in calls]

  for tangent in (np.zeros(5), 1e-20 * eye[1], 1e-3 * eye[1], 0.01 * eye[1]):
    exp, log = jacobians(x, tangent.astype(np.float32))
    bound = 2e-6 + 3 * np.linalg.norm(tangent)
    np.testing.assert_allclose(exp[1], eye, atol=bound)
    np.testing.assert_allclose(log[1], eye, atol=bound)
    # The base goes along, and the way to a fixed point shortens by its movement.
    if not tangent.any():
      np.testing.assert_allclose(exp[0], eye, atol=2e-6)
      np.testing.assert_allclose(log[0], -eye, atol=2e-6)


@pytest.mark.parametrize("c", [0.5, 2.0])
def test_poincare_maps_have_the_derivatives_of_differences(c, x64):
  x, v = rows(6, 1)[0] / 2, rows(7, 1)[0]
  for function, base in ((distances.poincare_exp, 0), (distances.poincare_log, x)):
    call = jax.jit(lambda x, p, c, f=function: f(x, p, curvature=c))
    for size in (1e-3, 1e-2, 0.3):  # on both sides of where the series ends
      check_grads(call, (x, base + size * v, c), 1, rtol=1e-6, eps=1e-6)


@pytest.mark.parametrize("c", [0.5, 2.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_long_tangent_ends_on_the_boundary_in_its_direction(c, dtype, x64):
  """Whatever its length, also where its norm or the norm over the gap overflows."""
  largest = float(np.finfo(dtype).max)
  base = (np.array([0.0, 0.6, -0.9999]) / np.sqrt(2 * c)).astype(dtype)[:, None]
  base = base * np.ones(2, dtype)
  way = np.array([1.0, -0.5], dtype)

  @jax.jit
  def ends(length):
    v = jnp.broadcast_to(length * way, base.shape)
    exp = lambda x, v, c: distances.poincare_exp(x, v, curvature=c)  # noqa: E731
    slopes = jax.grad(lambda *a: (exp(*a) @ way).sum(), (0, 1, 2))(base, v, c)
    return exp(base, v, c), slopes

  expected, (by_base, _, by_curvature) = ends(jnp.asarray(1e3, dtype))
  np.testing.assert_allclose(c * (expected**2).sum(1), 1, rtol=1e-3)
  for size in (largest**0.2, largest**0.3, largest**0.6, largest / 1e3, largest):
    found, slopes = ends(jnp.asarray(size, dtype))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert all(np.all(np.isfinite(slope)) for slope in slopes)
    assert np.all(np.abs(slopes[1]) < 10 / size**0.9)
    np.testing.assert_allclose(slopes[0], by_base, rtol=1e-2, atol=1e-3)
    np.testing.assert_allclose(slopes[2], by_curvature, rtol=1e-2, atol=1e-3)


def test_a_detour_by_the_origin_is_no_detour_far_out(x64):
  """The distance over that by the origin goes to 1, slowly, and at 0 to the plane's."""
  sizes = np.array([0.5, 0.9, 0.99, 0.9999, 1 - 1e-10])
  u, v = sizes[:, None] * [1.0, 0.0], sizes[:, None] * [math.cos(2), math.sin(2)]
  zero = 0 * u
  ratios = [0.878, 0.942, 0.967, 0.983, 0.993]
  for c in (1.0, 0.25):
    p, q = u / math.sqrt(c), v / math.sqrt(c)
    poincare = functools.partial(distances.poincare, curvature=c)
    detour = poincare(p, zero) + poincare(zero, q)
    np.testing.assert_allclose(poincare(p, q) / detour, ratios, atol=5e-4)
  near = distances.poincare(1e-6 * u, 1e-6 * v)
  flat = 2 * np.linalg.norm(1e-6 * (u - v), axis=1)
  np.testing.assert_allclose(near, flat, rtol=1e-9)


def test_poincare_limits_and_close_points(x64):
  x, y = rows(9, 5), rows(10, 5)
  plane = 2 * np.linalg.norm(x - y, axis=1)
  np.testing.assert_allclose(distances.poincare(x, y, curvature=1e-9), plane, rtol=1e-8)
  close = x + 1e-9 * np.eye(5)[0]
  expected = 2e-9 / (1 - (x**2).sum(1))
  np.testing.assert_allclose(distances.poincare(x, close), expected, rtol=1e-6)
  outside = np.full((5, 5), 0.9)
  assert np.isnan(distances.poincare(x, outside)).all()
  inside = distances.poincare_project(outside, curvature=4.0)
  np.testing.assert_allclose(np.linalg.norm(inside, axis=1), (1 - 1e-5) / 2)
  np.testing.assert_array_equal(distances.poincare_project(x), x)
  single = distances.poincare_project(outside.astype(np.float32))
  np.testing.assert_allclose(np.linalg.norm(single, axis=1), 1 - 4e-3, rtol=1e-6)


@pytest.mark.parametrize("dim", [3, 7, 64, 513])
def test_distances_of_identical_rows_are_exactly_zero(dim):
  row = 3 * np.random.default_rng(dim).normal(size=(1, dim))
  x = np.tile(row, (5, 1)).astype(np.float32)
  for method in ("gram", "difference"):
    pairwise = functools.partial(distances.pairwise_euclidean, method=method)
    gaps, pull_back = jax.vjp(lambda x, f=pairwise: f(x, x), x)
    np.testing.assert_array_equal(gaps, np.zeros((5, 5)))
    np.testing.assert_array_equal(pull_back(jnp.ones((5, 5)))[0], np.zeros((5, dim)))


def test_empty_sets_give_empty_matrices():
  none, some = np.zeros((0, 3), np.float32), np.zeros((4, 3), np.float32)
  for name in ELEMENTWISE:
    _, pairwise = both_forms(name)
    assert jax.eval_shape(pairwise, none, some).shape == (0, 4)
    assert jax.eval_shape(pairwise, some, none).shape == (4, 0)


def test_bad_input_is_named(unchecked):
  """What single wrong arguments, in `tests/test_wrong_uses.py`, do not show."""
  x, y = jnp.zeros((2, 3)), jnp.zeros((2, 4))
  for call, message in (
    (lambda: distances.euclidean(x, y), r"\(2, 4\)"),
    (lambda: distances.pairwise_dot(x, y), r"\(2, 4\)"),
    (lambda: distances.pairwise_chordal(x, method="difference", block_size=0), "got 0"),
    (lambda: distances.poincare(x, x, curvature=0), "got 0"),
  ):
    refusals.check(call, message)


# --- the distance-ratio transform ---

SQUARES = np.random.default_rng(0).uniform(0.2, 4, (2, 3, 4))


def test_log_probabilities_of_ratios(x64):
  classes = np.array([True, True, False, True])
  ratio = functools.partial(distances.distance_ratio, exponent=1.7, offset=0.1)
  values = ratio(np.where(classes, SQUARES, np.nan), classes=classes)
  powers = (SQUARES + 0.1) ** (-1.7 / 2) * classes
  with np.errstate(divide="ignore"):
    right = np.log(powers / powers.sum(-1, keepdims=True))
  np.testing.assert_allclose(values, right, rtol=1e-12)
  each = np.broadcast_to(classes, SQUARES.shape).copy()
  each[0, 0] = False  # no class takes part
  right[0, 0] = -math.inf
  np.testing.assert_allclose(ratio(SQUARES, classes=each), right, rtol=1e-12)


def test_gradient_of_ratios_is_that_of_the_equation(x64):
  """-(exponent / 2) (1[c = k] - p_k) / d_k^2."""
  d2 = SQUARES[0, 0]
  ratio = functools.partial(distances.distance_ratio, exponent=3.0)
  slopes = jax.jit(jax.jacobian(ratio))(d2)
  expected = -1.5 * (np.eye(4) - np.exp(ratio(d2))) / d2
  np.testing.assert_allclose(slopes, expected, rtol=1e-12)


# --- the axioms of a metric ---

RADII = {"epsilon_1": 2.0, "epsilon_inf": 0.75}


def directions(x):
  return x / np.linalg.norm(x, axis=1, keepdims=True)


def differences(x):
  return x[:, None] - x[None]


# Each with what its points are: those of different values are apart.
METRICS = {
  **{
    norm: (lambda x, norm=norm: distances.pairwise_lp(x, x, norm=norm), np.asarray)
    for norm in ("l1", "l2", "linf")
  },
  "euclidean": (distances.pairwise_euclidean, np.asarray),
  "chordal": (distances.pairwise_chordal, directions),
  "angle": (distances.pairwise_angle, directions),
  "root of cosine": (
    lambda x: jnp.sqrt(jnp.maximum(distances.pairwise_cosine_distance(x), 0)),
    directions,
  ),
  "poincare": (distances.pairwise_poincare, np.asarray),
  **{
    f.__name__: (lambda x, f=f: f(differences(x), **RADII), np.asarray)
    for f in (distances.combined_norm, distances.hull_gauge)
  },
}
COMPILED = {name: jax.jit(function) for name, (function, _) in METRICS.items()}
# The third of the four points is the first one, the others may be near or far.
SETS = hnp.arrays(np.float32, (4, 4), elements=st.floats(-3, 3, width=32))


@pytest.mark.parametrize("name", METRICS)
@settings(max_examples=30, derandomize=True, deadline=None)
@given(SETS.filter(lambda x: (np.linalg.norm(x, axis=1) > 0.1).all()))
def test_a_metric(name, points):
  points = points.astype(np.float64)
  points[2] = points[0]
  if name == "poincare":
    points /= 1 + np.linalg.norm(points, axis=1, keepdims=True)
  with _versions.enable_x64(True):
    d = np.asarray(COMPILED[name](points))
  assert (d >= 0).all()
  # Products lose the square root of a rounding.
  np.testing.assert_allclose(np.diagonal(d), 0, atol=3e-7)
  np.testing.assert_allclose(d[0, 2], 0, atol=3e-7)
  far = np.abs(differences(METRICS[name][1](points))).max(2) > 1e-3
  assert (d[far] > 1e-4).all()
  np.testing.assert_allclose(d, d.T, rtol=1e-9, atol=3e-7)
  assert (d[:, None] <= d[:, :, None] + d[None] + 1e-6).all()


def test_a_detour_may_be_shorter_than_what_is_no_metric():
  turn, line = np.float32([[[1, 0], [1, 1], [0, 1]], [[0, 0], [1, 0], [2, 0]]])
  cosine = distances.pairwise_cosine_distance(turn)
  for d in (cosine, distances.pairwise_squared_euclidean(line)):
    assert d[0, 1] + d[1, 2] < 0.6 * d[0, 2]
