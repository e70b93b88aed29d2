"""The curve of accuracies under attack."""

import jax
import numpy as np
import pytest

from spherejax import attacks, metrics, plotting

BUDGETS = [0.0, 0.1, 0.4]


def result(success, norm):
  """A result of which the successes and norms matter."""
  rows, success = np.zeros(len(success), np.float32), np.array(success)
  return attacks.AttackResult(
    rows[:, None], success, rows, rows, np.float32(norm), rows, rows, rows, success
  )


def test_lines_are_the_accuracies_with_bands():
  curves = {"plain": [0.9, 0.5, 0.0], "robust": np.array([0.8, 0.7, 0.6])}
  intervals = {"robust": ([0.7, 0.6, 0.5], [0.9, 0.8, 0.7])}
  figure = plotting.robust_accuracy(
    curves, BUDGETS, intervals=intervals, xlabel="l2", title="digits"
  )
  (axes,) = figure.axes
  for line, (name, values) in zip(axes.lines, curves.items(), strict=True):
    assert line.get_label() == name
    np.testing.assert_array_equal(line.get_xdata(), BUDGETS)
    np.testing.assert_array_equal(line.get_ydata(), values)
  (band,) = axes.collections
  corners = band.get_paths()[0].vertices
  at_last = corners[corners[:, 0] == 0.4, 1]
  assert (at_last.min(), at_last.max()) == (0.5, 0.7)
  assert axes.get_ylim()[0] == 0
  assert (axes.get_xlabel(), axes.get_title(loc="left")) == ("l2", "digits")
  (legend,) = figure.legends
  assert [text.get_text() for text in legend.get_texts()] == ["plain", "robust"]


def test_results_are_counted_as_the_measures_do():
  """A point that an earlier budget broke stays broken; a failure's norm is no least."""
  success = np.array([[0, 0, 0, 1], [0, 1, 0, 0], [1, 0, 0, 1]], bool)
  by_budget = [result(row, [0, 0, 0, 0]) for row in success]
  least = result([True, True, False, True], [0.3, 0.1, 0.05, 0.0])
  curves = {"pgd": by_budget, "fab": least, "jax": jax.device_get(least)}
  (axes,) = plotting.robust_accuracy(curves, BUDGETS).axes
  np.testing.assert_allclose(axes.lines[0].get_ydata(), metrics.accuracy_curve(success))
  for line in axes.lines[1:]:
    np.testing.assert_allclose(line.get_ydata(), [0.75, 0.5, 0.25])


def test_errors(unchecked):
  each, good = result([True], [0.1]), [0.9, 0.5, 0.0]
  cases = (
    (TypeError, "curves must be a mapping", (good, BUDGETS), {}),
    (ValueError, "curves must name at least one", ({}, BUDGETS), {}),
    (ValueError, "budgets must grow, got", ({"a": good}, [0.0, 0.4, 0.1]), {}),
    (ValueError, "budgets must be in .*, got inf", ({"a": good}, [0, 1, np.inf]), {}),
    (ValueError, "each of the 3 budgets, got 2", ({"a": [each, each]}, BUDGETS), {}),
    (TypeError, "must be a AttackResult, got 3", ({"a": [each, 3, each]}, BUDGETS), {}),
    (ValueError, r"curves\['a'\] must have shape \(3,\)", ({"a": [1, 0]}, BUDGETS), {}),
    (ValueError, "must be in .*, got 90", ({"a": [90, 50, 0]}, BUDGETS), {}),
    (ValueError, "one of 'a', got 'b'", ({"a": good}, BUDGETS), {"b": (good, good)}),
    (TypeError, "pair, got 3 entries", ({"a": good}, BUDGETS), {"a": good}),
  )
  for kind, message, args, intervals in cases:
    with pytest.raises(kind, match=message):
      plotting.robust_accuracy(*args, intervals=intervals)
