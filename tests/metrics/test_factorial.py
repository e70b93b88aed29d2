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
  columns = dict(zip("abc", signs.T, strict=True))
  words = [word for k in (1, 2) for word in itertools.combinations("abc", k)]
  coefficients = dict(zip(words, rng.normal(size=6), strict=True))
  response = 5 + sum(
    coefficient * np.prod([columns[name] for name in word], axis=0)
    for word, coefficient in coefficients.items()
  )
  design = {name: column * 0.5 + 2 for name, column in columns.items()}
  effects = metrics.factorial_effects(design, response)
  assert effects.keys() == coefficients.keys()
  for word, coefficient in coefficients.items():
    np.testing.assert_allclose(effects[word].value, 2 * coefficient)
    assert effects[word].aliases == {}


def test_a_main_effect_aliased_with_a_negative_interaction():
  for third, sign in (([1, 0, 0, 1], 1), ([0, 1, 1, 0], -1)):
    design = {"a": [0, 0, 1, 1], "b": [0, 1, 0, 1], "c": third}
    effects = metrics.factorial_effects(design, np.arange(4.0))
    assert effects[("c",)].aliases == {("a", "b"): sign}
