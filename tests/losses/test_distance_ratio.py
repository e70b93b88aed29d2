"""Softmax losses on distances: the papers' numbers, limits, extremes."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import distances, losses
from tests.losses.cases._parts import project
from tests.losses.slopes import with_slopes

RNG = np.random.default_rng(0)
Z = RNG.normal(size=(4, 3))
POINTS = RNG.normal(size=(5, 3))
LABELS = np.array([0, 4, 2, 2], np.int32)
AXES = np.concatenate([np.eye(3), -np.eye(3)])
ratio = jax.jit(losses.distance_ratio)


def squares(z, points):
  return jnp.sum((z[:, None] - points[None]) ** 2, axis=-1)


def test_numbers_of_the_paper():
  for scale, sd in ((1.0, 0.048587), (2.0, 6.1442e-06)):
    d2 = scale**2 * np.array([[1.0, 4.0]], np.float32)
    value = losses.squared_distance_softmax(d2, np.array([0]))
    np.testing.assert_allclose(value, sd, rtol=2e-5)
    np.testing.assert_allclose(ratio(d2, np.array([0]), exponent=2.0), 0.223144, 5e-6)


def test_small_distances_keep_their_digits_in_float32():
  """From log-softmax the second derivative would be 0, the third 2 % off."""
  loss, of_wrong = (
    with_slopes(lambda d, rho, y=y: ratio(d[None] ** 2, np.array([y]), exponent=rho))
    for y in (0, 1)
  )
  others = np.array([1.0, 1.1, 0.9, 1.05])
  for d, rho in ((1e-2, 7.389), (1e-5, 2.0), (1e-3, 2.0), (1e-3, 1.0), (1e-6, 0.5)):
    row = np.array([d, *others], np.float32)
    values, slope = loss(row, rho)
    far = (others**-rho).sum()
    x = d**rho * far
    np.testing.assert_allclose(values, [math.log1p(x)], rtol=1e-5)
    right = np.array([rho / d, *(-rho * others ** (-rho - 1) / far)]) * x / (1 + x)
    np.testing.assert_allclose(slope, right, rtol=1e-5)
    # Beside a point of another class the force is rho over the distance.
    wrong = of_wrong(row, rho)[1][0]
    np.testing.assert_allclose(wrong, -rho / d / (1 + x), rtol=1e-5)


def test_only_the_ratio_is_free_of_the_scale(x64):
  d2 = squares(Z, POINTS)
  for scale in (1e-12, 1e12):
    values = ratio(scale * d2, LABELS, exponent=3.0)
    np.testing.assert_allclose(values, ratio(d2, LABELS, exponent=3.0), rtol=1e-12)
  sd = [losses.squared_distance_softmax(s * d2, LABELS) for s in (1, 4)]
  assert np.abs(sd[0] - sd[1]).max() > 0.1


def test_rows_at_distance_zero(x64):
  """1/m for m coincident points, inf for the others, no gradient, no NaN."""
  d2 = np.array([[0.0, 1.0, 4.0], [0.0, 0.0, 4.0], [0.0, 0.0, 0.0], [0.0, 1.0, 4.0]])
  labels = np.array([0, 1, 2, 1], np.int32)
  step = with_slopes(lambda d2, rho: ratio(d2, labels, exponent=rho), (0, 1))
  values, gradients = step(d2, 2.0)
  right = [0, math.log(2), math.log(3), np.inf]
  np.testing.assert_allclose(values, right, rtol=1e-14)
  for gradient in gradients:
    np.testing.assert_array_equal(gradient, 0 * gradient)
  logs = distances.distance_ratio(d2, exponent=2.0)
  np.testing.assert_allclose(np.exp(logs).sum(axis=1), np.ones(4), rtol=1e-14)
  np.testing.assert_allclose(np.exp(logs[1]), [0.5, 0.5, 0], rtol=1e-14)
  offset = ratio(d2, labels, exponent=2.0, offset=1e-12)
  assert np.isfinite(offset).all()
  np.testing.assert_allclose(offset[3], math.log1p(1e12 + 0.25), rtol=1e-9)
  tiny = np.float32(1e-39)  # no normal number: counts as zero
  single = ratio(np.array([[tiny, 1.0]], np.float32), np.array([0]), exponent=2.0)
  np.testing.assert_array_equal(single, [0])


def test_extreme_exponents_and_distances_in_float32():
  step = with_slopes(lambda d2, rho: ratio(d2, LABELS, exponent=rho).sum(), (0, 1))
  d2 = (10.0 ** RNG.uniform(-20, 20, (4, 5))).astype(np.float32)
  for rho in (1e-3, 1.0, 1e3):
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(step(d2, rho)))
  near = (10.0 ** RNG.uniform(-4, 4, (4, 5))).astype(np.float32)
  uniform = np.exp(-ratio(near, LABELS, exponent=1e-3))
  np.testing.assert_allclose(uniform, np.full(4, 0.2), rtol=0.01)
  tied = ratio(np.float32([[1, 1, 1.1]]), np.array([1]), exponent=1e3)
  np.testing.assert_allclose(tied, math.log(2), 1e-5)


def test_distance_softmax_is_least_at_the_representative(x64):
  loss = jax.jit(
    lambda z, y: losses.distance_softmax(jnp.sqrt(squares(z, POINTS)), y, scale=2.0)
  )
  at = loss(POINTS, np.arange(5))
  gaps = np.linalg.norm(POINTS[:, None] - POINTS, axis=-1)
  np.testing.assert_allclose(at, np.log(np.exp(-2 * gaps).sum(1)), rtol=1e-12)
  for seed in range(20):
    moved = POINTS + np.random.default_rng(seed).normal(size=(5, 3)) * 0.5
    assert (loss(moved, np.arange(5)) >= at).all()


@pytest.mark.parametrize(
  "name", ["distance_ratio", "squared_distance_softmax", "distance_softmax"]
)
def test_a_masked_class_is_a_deleted_class(name, x64):
  options = {"exponent": 2.0} if name == "distance_ratio" else {"scale": 0.7}
  loss = functools.partial(getattr(losses, name), **options)
  d2 = np.asarray(squares(Z, POINTS))
  classes = np.array([True, False, True, True, True])
  labels = np.array([0, 1, 2, 4], np.int32)  # the second row's class takes no part
  holed = np.where(classes, d2, np.nan)
  values, gradient = with_slopes(lambda d2: loss(d2, labels, classes=classes))(holed)
  right = loss(d2[:, classes], np.array([0, 0, 1, 3]))
  np.testing.assert_allclose(values, np.where(classes[labels], right, 0))
  np.testing.assert_array_equal(gradient[1], np.zeros(5))
  np.testing.assert_array_equal(gradient[:, 1], np.zeros(4))
  each = np.tile(classes, (4, 1))
  each[0] = [True, False, False, False, False]
  np.testing.assert_allclose(loss(d2, labels, classes=each)[0], 0, atol=0)


def test_on_the_sphere(x64):
  """A zero row is at distance 1 from all proxies; an orthonormal frame by hand."""
  loss = jax.jit(losses.proxy_distance_ratio)
  x = np.array([[0.0, 0.0, 0.0], [0.0, 3.0, 0.0], [1.0, 1.0, 0.0]])
  values = loss(x, np.array([0, 1, 0]), np.eye(3), exponent=2.0)
  # the third: squared distances 2 - sqrt(2), twice, and 2
  third = math.log(2 + (2 - math.sqrt(2)) / 2)
  np.testing.assert_allclose(values, [math.log(3), 0, third], rtol=1e-12, atol=1e-15)


def test_small_distances_on_the_sphere_in_float32(x64):
  """Near the own proxy, near another, and on one: as in float64."""

  @functools.partial(with_slopes, argnums=(0, 1))
  def step(x, proxies):
    where = np.array([True, True, True, False])
    loss = functools.partial(losses.proxy_distance_ratio, exponent=2.0, where=where)
    return loss(x, LABELS, proxies).sum()

  proxies = np.random.default_rng(5).normal(size=(5, 3)).astype(np.float32)
  x = proxies[[0, 3, 2, 1]] * np.float32(1.5)
  x[:2] += np.float32(1e-4)
  value, gradients = step(x, proxies)
  right, slopes = step(x.astype(np.float64), proxies.astype(np.float64))
  np.testing.assert_allclose(value, right, rtol=1e-4)
  for gradient, slope in zip(gradients, slopes, strict=True):
    # the points themselves are rounded to 6e-8, a distance of 1e-4 to 6e-4 of it
    error = np.linalg.norm(gradient - slope, axis=1)
    np.testing.assert_array_less(error, 3e-3 * np.linalg.norm(slope, axis=1) + 1e-6)


def test_probabilities_on_the_sphere(x64):
  """Where each model is surest and least sure of a class, and at two proxies."""
  points = project(np.random.default_rng(3).normal(size=(20001, 3)))
  diagonal, away, red, green = (2, -1, -1), (-2, 1, 1), (1, 0, 0), (0, 1, 0)
  table = (
    (lambda c, y: losses.normface(c, y, scale=2.0),
     0.85275, diagonal, 0.78699, away, 0.10651),
    (lambda c, y: losses.cosface(c, y, scale=2.0, margin=0.25),
     0.77840, diagonal, 0.69144, away, 0.06743),
    (lambda c, y: losses.arcface(c, y, scale=2.0, margin=0.25),
     0.81026, (904, -303, -303), 0.77638, (-712, 496, 496), 0.06775),
    (lambda c, y: losses.sphereface(c, y, np.full(len(c), 2.0), margin=2),
     0.80719, (984, -125, -125), 0.78699, (-984, 125, 125), 0.01588),
    (lambda c, y: losses.squared_distance_softmax(jnp.arccos(c) ** 2, y),
     0.96021, (520, -604, -604), 0.85499, (-1, 0, 0), 0.07251),
    (lambda c, y: losses.distance_ratio(2 - 2 * c, y, exponent=2.0),
     1.0, red, 1.0, green, 0.0),
  )  # fmt: skip
  for model, most, top, own, bottom, other in table:
    ends = project(np.array([top, bottom], float))
    p, (best, worst), at = (
      np.exp(-model(jnp.asarray(c), np.zeros(len(c), np.int32)))
      for c in (points, ends, np.eye(3)[:2])
    )
    np.testing.assert_allclose(best, most, atol=6e-6)
    assert p.max() <= best + 2e-6
    assert p.min() >= worst - 2e-6
    np.testing.assert_allclose(at, [own, other], atol=5e-6)


@pytest.mark.parametrize(
  ("scale", "best"), [(0.01, 0.99995), (0.6, 0.8), (1.0, 0.0), (2.0, 0.0)]
)
def test_the_likeliest_centre_is_a_support_only_for_small_scales(scale, best):
  """Supports at -1 and 1 under a Cauchy density: sqrt(1 - scale^2), 0 from 1 on."""
  centres = np.linspace(-2, 2, 400_001)
  likelihood = sum(-np.log(scale**2 + (centres - x) ** 2) for x in (-1, 1))
  assert abs(centres[likelihood.argmax()]) == pytest.approx(best, abs=1e-3)


def normface_slope(z, points, scale):
  """Size of the gradient of NormFace along the sphere, by differences."""
  cosines = project(z + 1e-6 * AXES) @ points.T
  ends = losses.normface(cosines, np.ones(6, int), scale=scale)
  return np.linalg.norm((ends[:3] - ends[3:]) / 2e-6)


def test_where_other_losses_are_not_least_at_the_representative(x64):
  # Of two orthogonal proxies NormFace is surest away from the other one.
  for at, least in (((-1, 1, 0), True), ((0, 1, 0), False)):
    unit = np.array(at) / np.linalg.norm(at)
    assert (normface_slope(unit, np.eye(3)[:2], scale=3.0) < 1e-8) == least
  # Of two opposite ones at the proxy itself.
  opposite = np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]])
  assert normface_slope(opposite[1], opposite, scale=3.0) < 1e-8
  ends = losses.squared_distance_softmax(
    squares(POINTS[1] + 1e-6 * AXES, POINTS), np.ones(6, np.int32), scale=0.7
  )
  assert np.linalg.norm((ends[:3] - ends[3:]) / 2e-6) > 1e-2
  simplex = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]) / 3**0.5
  assert normface_slope(simplex[1], simplex, scale=2.0) < 1e-8
  points = project(POINTS[:4])
  assert normface_slope(points[1], points, scale=2.0) > 1e-2


def test_behind_a_wrong_representative_the_ratio_pushes_away(x64):
  """The right one at 0, the wrong one at 1, the query at 2."""
  at = np.array([[2 + 1e-6], [2 - 1e-6]])
  ends = losses.distance_ratio(
    squares(at, np.array([[0.0], [1.0]])), np.zeros(2, np.int32), exponent=2.0
  )
  np.testing.assert_allclose((ends[0] - ends[1]) / 2e-6, -0.8, rtol=1e-6)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_a_cauchy_density_needs_an_exponent_above_the_dimension(dim):
  """Masses of two decades of the radius, far out: they must fall to have a sum."""
  radius = np.logspace(3, 5, 20_001)

  def ratio(exponent):
    of_log = radius**dim * (0.7**2 + radius**2) ** (-exponent / 2)
    return of_log[10_000:].sum() / of_log[:10_001].sum()

  # gamma / (pi (gamma^2 + d^2)) has the exponent 2.
  assert (ratio(2) < 0.5) == (dim == 1)
  assert ratio(dim) > 0.99
  assert ratio(dim + 1) < 0.11
