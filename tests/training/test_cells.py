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
  cells = training.grid({"margins": [[1.0, 2.0], [3.0, 4.0]], "beta": [1, 5]})
  assert cells["margins"].tolist() == [[1, 2], [1, 2], [3, 4], [3, 4]]


LEVELS = {"beta": (0.5, 20), "m": (16, 128), "mu": (0.3, 0.7), "lambda": (0.1, 0.5)}


def test_factorial_is_the_grid_or_its_fraction():
  full = training.factorial(LEVELS)
  rows = set(zip(*full.values(), strict=True))
  assert rows == set(itertools.product(*LEVELS.values()))
  half = training.factorial(LEVELS, relation=[tuple(LEVELS)])
  lows = [pair[0] for pair in LEVELS.values()]
  even = {row for row in rows if np.equal(row, lows).sum() % 2 == 0}
  assert sorted(zip(*half.values(), strict=True)) == sorted(even)
  # Two words leave a quarter.
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
