"""Effects of two-level designs, and the screening of DML Table 5.4."""

import itertools

import numpy as np

from experiments.gsp.screening_cells import BY_HAND, LEVELS, TABLE
from spherejax import metrics


def test_published_screening():
  design = dict(zip(LEVELS, TABLE.T[:4], strict=True))
  effects = metrics.factorial_effects(design, TABLE[:, 4:])
  for word, values in BY_HAND.items():
    np.testing.assert_allclose(effects[word].value, values, atol=0.0051)
  # Main effects are clear of interactions; these are confounded in pairs.
  assert all(effects[(name,)].aliases == {} for name in LEVELS)
  number, mass, sharpness, weight = LEVELS
  for pair, other in (
    ((number, mass), (sharpness, weight)),
    ((number, sharpness), (mass, weight)),
    ((number, weight), (mass, sharpness)),
  ):
    assert effects[pair].aliases == {other: 1}
    np.testing.assert_array_equal(effects[pair].value, effects[other].value)


def test_coefficients_of_a_full_design_are_recovered():
  rng = np.random.default_rng(0)
  signs = np.array(list(itertools.product([-1, 1], repeat=3)))
  main, pairs = rng.normal(size=3), rng.normal(size=3)
  chosen = list(itertools.combinations(range(3), 2))
  response = 5 + signs @ main
  for coefficient, (i, j) in zip(pairs, chosen, strict=True):
    response = response + coefficient * signs[:, i] * signs[:, j]
  design = {name: signs[:, i] * 0.5 + 2 for i, name in enumerate("abc")}
  effects = metrics.factorial_effects(design, response)
  assert len(effects) == 6
  for i, name in enumerate("abc"):
    np.testing.assert_allclose(effects[(name,)].value, 2 * main[i])
  for coefficient, (i, j) in zip(pairs, chosen, strict=True):
    np.testing.assert_allclose(effects["abc"[i], "abc"[j]].value, 2 * coefficient)
  assert all(effect.aliases == {} for effect in effects.values())


def test_a_main_effect_aliased_with_a_negative_interaction():
  design = {"a": [0, 0, 1, 1], "b": [0, 1, 0, 1], "c": [1, 0, 0, 1]}
  flipped = design | {"c": [0, 1, 1, 0]}
  assert metrics.factorial_effects(design, np.arange(4.0))[("c",)].aliases == {
    ("a", "b"): 1
  }
  assert metrics.factorial_effects(flipped, np.arange(4.0))[("c",)].aliases == {
    ("a", "b"): -1
  }
