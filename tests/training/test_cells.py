"""Grids and two-level designs."""

import itertools

import numpy as np
import pytest

from spherejax import _versions, training


def test_grid_is_the_product_with_the_last_name_fastest():
  values = {"mass": [0.1, 0.2, 0.3], "beta": [1, 5]}
  cells = training.grid(values)
  rows = list(zip(*cells.values(), strict=True))
  assert rows == list(itertools.product(*values.values()))
  table = np.asarray(cells["mass"]).reshape(3, 2)
  assert (table == np.array([[0.1], [0.2], [0.3]])).all()


def test_a_column_may_hold_arrays():
  cells = training.grid({"margins": [[1.0, 2.0], [3.0, 4.0]], "beta": [1, 5]})
  assert cells["margins"].tolist() == [[1, 2], [1, 2], [3, 4], [3, 4]]


LEVELS = {"beta": (0.5, 20), "m": (16, 128), "mu": (0.3, 0.7), "lambda": (0.1, 0.5)}


def test_factorial_is_the_grid_or_its_fraction():
  full = training.factorial(LEVELS)
  rows = set(zip(*full.values(), strict=True))
  assert rows == set(itertools.product(*LEVELS.values()))
  half = training.factorial(LEVELS, relation=[tuple(LEVELS)])
  kept = set(zip(*half.values(), strict=True))
  assert len(kept) == 8
  for row in rows:
    low = sum(
      value == pair[0] for value, pair in zip(row, LEVELS.values(), strict=True)
    )
    assert (row in kept) == (low % 2 == 0)


def test_two_words_keep_a_quarter():
  levels = dict.fromkeys("abcde", (-1, 1))
  cells = training.factorial(levels, relation=["abd", "ace"])
  assert len(cells["a"]) == 8
  assert (cells["a"] * cells["b"] * cells["d"] == 1).all()
  assert (cells["a"] * cells["c"] * cells["e"] == 1).all()


def test_numbers_that_a_program_could_not_hold_are_refused(x64):
  wide = {"count": [2**40, 3], "rate": [1e39, 1.0]}
  assert training.grid(wide)["count"].tolist() == [2**40, 2**40, 3, 3]
  with _versions.enable_x64(False):
    with pytest.raises(ValueError, match=r"'count' .* int32, got 1099511627776"):
      training.grid({"count": wide["count"]})
    with pytest.raises(ValueError, match=r"'rate' .* float32, got 1e\+39"):
      training.grid({"rate": wide["rate"]})
    assert np.isinf(training.grid({"budget": [1.0, np.inf]})["budget"][1])


def test_errors(unchecked):
  with pytest.raises(ValueError, match=r"levels\['mu'\] must be two different .*0.3,"):
    training.factorial({"mu": (0.3, 0.3)})
  for pair in ((0.3,), (1, 2, 3), (np.nan, np.nan), (1.0, np.nan), [[1, 2]]):
    with pytest.raises(ValueError, match=r"levels\['mu'\] must be two different"):
      training.factorial({"mu": pair})
  with pytest.raises(ValueError, match="'mu' must hold one value per cell, got a sc"):
    training.factorial({"mu": 5})
  with pytest.raises(TypeError, match="'mu' must hold numbers"):
    training.factorial({"mu": {"low": 1, "high": 2}})
  with pytest.raises(TypeError, match=r"a word of the relation must be text, got \['m"):
    training.factorial(LEVELS, relation=[(["m"],)])
  with pytest.raises(
    ValueError, match=r"'mu' must be an array, got \[\[1, 2\], \[3\]\]"
  ):
    training.grid({"mu": [[1, 2], [3]]})
  with pytest.raises(ValueError, match=r"beta, m, mu, lambda once, got \('m', 'nu'\)"):
    training.factorial(LEVELS, relation=[("m", "nu")])
  with pytest.raises(ValueError, match=r"once, got \('m', 'm'\)"):
    training.factorial(LEVELS, relation=[("m", "m")])
  with pytest.raises(ValueError, match=r"\('m', 'mu'\) follows"):
    training.factorial(LEVELS, relation=[("m", "mu"), ("m", "mu")])
  with pytest.raises(ValueError, match="at least one hyperparameter"):
    training.grid({})
  with pytest.raises(ValueError, match="'mu' must hold at least one value"):
    training.grid({"mu": []})
  with pytest.raises(TypeError, match="'loss' must hold numbers, got 'triplet'"):
    training.grid({"loss": ["triplet"]})


def test_numbers_that_no_array_holds():
  with pytest.raises(
    TypeError, match=r"'a' must hold numbers .* 1180591620717411303424"
  ):
    training.grid({"a": [2**70]})
