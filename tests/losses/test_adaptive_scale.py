"""AdaCos and the scale of vanishing curvature."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import losses
from spherejax.losses import _adaptive_scale

COSINES = np.tanh(np.random.default_rng(0).normal(size=(6, 5)))
LABELS = np.array([0, 4, 2, 2, 1, 3], np.int32)
curvature = jax.jit(_adaptive_scale._curvature, static_argnums=3)
update = jax.jit(losses.dynamic_scale_update, static_argnames="geometry")


def test_fixed_scale_of_few_classes():
  assert losses.adacos_scale(2, least=0.5) == losses.adacos_scale(1, least=0.5) == 0.5
  with pytest.raises(ValueError, match="num_classes must be at least 3, got 2"):
    losses.adacos_scale(2)


def test_adacos_is_bounded_and_keeps_its_scale_without_rows():
  near = np.full((3, 3), -0.99, np.float32)  # log B is about -6
  adacos, labels = jax.jit(losses.adacos_update), np.arange(3)
  np.testing.assert_allclose(adacos(7.0, near, labels), 0.01, rtol=1e-6)
  np.testing.assert_allclose(adacos(7.0, near, labels, least=0.3), 0.3, rtol=1e-6)
  np.testing.assert_allclose(adacos(7.0, near, labels, where=np.zeros(3, bool)), 7.0)


# geometry: {classes: first scale}; of cosines the root, where there is one
FIRST = {
  "cosine": {
    3: 10.0, 10: 10.0, 20: 10.0, 22: 10.0, 37: 4.032, 52: 4.678, 100: 5.794,
    109: 5.934, 121: 6.103, 555: 8.456, 1000: 9.336,
  },
  "angular": {
    3: 2.326, 10: 3.922, 20: 4.851, 37: 5.683, 52: 6.146, 100: 7.042, 109: 7.161,
    121: 7.304, 555: 9.421, 1000: 10.247,
  },
  "chordal": {
    3: 2.506, 10: 4.343, 20: 5.405, 37: 6.354, 52: 6.881, 100: 7.899, 109: 8.034,
    121: 8.197, 555: 10.597, 1000: 11.532,
  },
}  # fmt: skip
LOWER = {
  37: 1.703, 52: 1.597, 100: 1.499, 109: 1.492, 121: 1.483, 555: 1.428, 1000: 1.422,
}  # fmt: skip


@pytest.mark.parametrize("geometry", FIRST)
def test_first_scales(geometry):
  for classes, scale in FIRST[geometry].items():
    state = losses.dynamic_scale_init(classes, geometry=geometry)
    np.testing.assert_allclose(state.scale, scale, atol=6e-4)


def test_cosines_have_two_roots(x64):
  """The scale begins at the upper root."""
  for classes, root in LOWER.items():
    at = math.log(classes - 1), math.pi / 4, "cosine"
    below, above = (curvature(root + step, *at)[0] for step in (-6e-4, 6e-4))
    assert below * above < 0
    assert root < losses.dynamic_scale_init(classes, geometry="cosine").scale


def probability(angle, s, log_b, geometry):
  """Probability of the true class at an angle; the others' exponentials stay fixed."""
  if geometry == "cosine":
    return jax.nn.sigmoid(s * jnp.cos(angle) - log_b)
  return jax.nn.sigmoid(-s * jnp.log(angle) - log_b)  # `angle` is the distance


@pytest.mark.parametrize("geometry", FIRST)
def test_curvature_has_the_zeros_of_the_second_derivative(geometry, x64):
  """The value is a multiple of the second derivative; the slope is that of psi."""
  angle = jnp.array(0.6)
  distance = 2 * jnp.sin(angle / 2) if geometry == "chordal" else angle
  second = jax.jit(jax.grad(jax.grad(probability)), static_argnums=3)
  for s in (1.5, 4.0, 11.0):
    for log_b in (-2.0, 1.0, 5.0):
      value, slope = curvature(s, log_b, angle, geometry)
      p = float(probability(distance, s, log_b, geometry))
      if geometry == "cosine":  # p'' = -s B E psi / (E + B)^3, psi = value (E + B)
        right = -s * p * (1 - p) * value
      else:  # p'' = B s d^(s - 2) psi / (1 + B d^s)^3, psi = value (1 + B d^s)
        right = s * p * (1 - p) * value / distance**2
      np.testing.assert_allclose(second(distance, s, log_b, geometry), right, rtol=1e-9)

      def psi(log_s, log_b=log_b):
        """Up to the constant factor, from the equation in exponentials."""
        s = math.exp(log_s)
        if geometry == "cosine":
          e, b = math.exp(s * math.cos(0.6)), math.exp(log_b)
          return math.cos(0.6) * (e + b) + s * math.sin(0.6) ** 2 * (e - b)
        return math.exp(log_b) * (s + 1) * float(distance) ** s - s + 1

      numeric = (psi(math.log(s) + 1e-6) - psi(math.log(s) - 1e-6)) / 2e-6
      np.testing.assert_allclose(slope * (psi(math.log(s)) / value), numeric, rtol=1e-6)


@pytest.mark.parametrize("geometry", ["angular", "chordal"])
def test_steps_lead_to_the_root(geometry, x64):
  """With distances, from both sides."""
  angles = np.full((8, 20), math.pi / 2)
  angles[np.arange(8), np.arange(8)] = math.pi / 4
  squares = (2 * np.sin(angles / 2)) ** 2 if geometry == "chordal" else angles**2
  options = {"geometry": geometry, "learning_rate": 0.02}
  for first in (2.5, 9.0):
    state = losses.dynamic_scale_init(20, geometry=geometry)
    state = state._replace(log_scale=jnp.log(first))
    for _ in range(400):
      state = update(state, squares, np.arange(8), **options)
    np.testing.assert_allclose(state.scale, FIRST[geometry][20], atol=2e-3)
  assert state.steps == 400


@pytest.mark.parametrize("rule", ["adacos", *FIRST])
def test_wide_angles_count_as_a_quarter_turn_not_as_two(rule, x64):
  """Angles to the true class are bounded by pi/4, where the formula prints pi/2."""

  def moved(angle):
    angles = np.full((6, 20), 1.4)
    angles[np.arange(6), LABELS] = angle
    if rule == "adacos":
      return losses.adacos_update(5.0, np.cos(angles), LABELS)
    scores = {"cosine": np.cos(angles), "angular": angles**2}
    scores["chordal"] = 2 - 2 * np.cos(angles)
    state = losses.dynamic_scale_init(20, geometry=rule)._replace(log_scale=1.2)
    after = losses.dynamic_scale_update(state, scores[rule], LABELS, geometry=rule)
    return after.first_moment

  bounded = moved(math.pi / 4)
  for angle in (0.9, 1.3, math.pi / 2):
    np.testing.assert_allclose(moved(angle), bounded, rtol=1e-9)
  assert abs(moved(0.6) - bounded) > 1e-3 * abs(bounded)


def test_dynamic_scale_without_rows_or_rivals_stays_and_is_finite_at_distance_zero():
  state = losses.dynamic_scale_init(5)
  for scores, labels, where in (
    (COSINES.astype(np.float32), LABELS, np.zeros(6, bool)),
    (COSINES[:, :1].astype(np.float32), 0 * LABELS, np.ones(6, bool)),
  ):
    after = update(state, scores, labels, where=where)
    jax.tree.map(np.testing.assert_array_equal, after, state)
  for geometry in ("chordal", "angular"):
    state = losses.dynamic_scale_init(5, geometry=geometry)
    after = update(state, np.zeros((6, 5), np.float32), LABELS, geometry=geometry)
    assert all(np.isfinite(leaf) for leaf in after)
    assert after.scale != state.scale


@pytest.mark.parametrize("geometry", ["cosine", "chordal"])
def test_dynamic_scale_of_some_classes_is_that_of_their_columns(geometry, x64):
  """Values of other columns do not matter, nor do rows of their classes."""
  scores = COSINES if geometry == "cosine" else 2 - 2 * COSINES
  among = np.array([True, True, False, True, False])
  inside = among[LABELS]
  assert 2 < inside.sum() < 6
  columns = (np.cumsum(among) - 1)[LABELS[inside]]
  state = losses.dynamic_scale_init(5, geometry=geometry)
  right = update(state, scores[inside][:, among], columns, geometry=geometry)
  every = update(state, scores, LABELS, geometry=geometry)
  assert abs(every.first_moment - right.first_moment) > 1e-4
  others = np.where(among, scores, np.nan)
  for classes in (among, np.tile(among, (6, 1))):
    some = update(state, others, LABELS, geometry=geometry, classes=classes)
    np.testing.assert_allclose(some, right, rtol=1e-12)
