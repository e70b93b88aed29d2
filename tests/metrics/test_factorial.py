"""Effects of two-level designs, and the screening of DML Table 5.4."""

import itertools

import numpy as np
import pytest

from spherejax import metrics

# m, mass, inverse temperature, weight of the zero-shot loss; MAP@R with C2, ProxyNCA++.
TABLE = np.array(
  [
    [16, 0.3, 0.5, 0.1, 40.63, 40.59],
    [16, 0.7, 0.5, 0.5, 40.41, 40.34],
    [128, 0.3, 0.5, 0.5, 40.22, 40.35],
    [128, 0.7, 0.5, 0.1, 40.07, 40.85],
    [16, 0.3, 20, 0.5, 36.11, 40.51],
    [16, 0.7, 20, 0.1, 39.11, 39.88],
    [128, 0.3, 20, 0.1, 39.61, 39.12],
    [128, 0.7, 20, 0.5, 35.36, 39.92],
  ]
)
NAMES = ("m", "mu", "beta", "lambda")


def test_published_screening():
  design = dict(zip(NAMES, TABLE.T[:4], strict=True))
  effects = metrics.factorial_effects(design, TABLE[:, 4:])
  expected = {
    ("m",): (-0.25, -0.27),
    ("mu",): (-0.41, 0.11),
    ("beta",): (-2.79, -0.68),
    ("lambda",): (-1.83, 0.17),
    ("m", "mu"): (-1.80, 0.55),
    ("m", "beta"): (0.13, -0.41),
    ("m", "lambda"): (-0.22, -0.02),
  }
  for word, values in expected.items():
    np.testing.assert_allclose(effects[word].value, values, atol=0.0051)
  # Main effects are clear of interactions; these are confounded in pairs.
  assert all(effects[(name,)].aliases == {} for name in NAMES)
  assert effects["m", "mu"].aliases == {("beta", "lambda"): 1}
  assert effects["m", "beta"].aliases == {("mu", "lambda"): 1}
  assert effects["m", "lambda"].aliases == {("mu", "beta"): 1}
  np.testing.assert_array_equal(
    effects["beta", "lambda"].value, effects["m", "mu"].value
  )


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


def test_errors():
  with pytest.raises(ValueError, match=r"design\['a'\] must have two levels.*1, 2, 3"):
    metrics.factorial_effects({"a": [1, 2, 3]}, [1.0, 2.0, 3.0])
  with pytest.raises(ValueError, match="each in half of the runs"):
    metrics.factorial_effects({"a": [1, 2, 2]}, [1.0, 2.0, 3.0])
  with pytest.raises(ValueError, match=r"as many runs, got {'a': 2}.*\(3,\)"):
    metrics.factorial_effects({"a": [1, 2]}, [1.0, 2.0, 3.0])
  with pytest.raises(ValueError, match="at least one factor"):
    metrics.factorial_effects({}, [1.0])
