"""Plot of the accuracy under attack against the size of the attack."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Real

from spherejax import _checks, attacks, metrics
from spherejax.plotting import _figure

if TYPE_CHECKING:
  import matplotlib.figure

Accuracies = Real[ArrayLike, " budgets"] | Sequence[float | int]


def robust_accuracy(
  curves: Mapping[
    str, Accuracies | attacks.AttackResult | Sequence[attacks.AttackResult]
  ],
  budgets: Accuracies,
  *,
  intervals: Mapping[str, tuple[Accuracies, Accuracies]] | None = None,
  xlabel: str = "epsilon",
  title: str = "",
) -> "matplotlib.figure.Figure":
  """Plots accuracy under attack against the budget, a line per network or attack.

  Args:
    curves: for each name the accuracies [budgets] of `metrics.accuracy_curve`, or
      results of attacks to compute them from: one result for each budget, or a single
      result (such as that of a minimal-norm attack), each success of which counts at
      budgets of at least its norm.
    budgets: [budgets], growing, at least 0 and finite.
    intervals: for some of the names (low, high), each [budgets], drawn as a band.
    xlabel: what the budgets measure.
    title: text above the chart.

  Returns:
    A matplotlib Figure.

  Raises:
    TypeError: curves or intervals not a mapping, or values that are not numbers.
    ValueError: no curve; budgets that do not grow; another number of results or of
      accuracies than of budgets; accuracies outside [0, 1]; or an interval of a name
      that has no curve.

  Source: none; Carlini et al. 2019, "On evaluating adversarial robustness", asks for
  such curves.

  Example:
    >>> logits_fn = lambda x: x @ jnp.array([[1.0, -1.0], [0.0, 0.5]])
    >>> x = jnp.array([[0.7, 0.5], [0.9, 0.1], [0.1, 0.9]])
    >>> found = spherejax.attacks.deepfool(logits_fn, x, jnp.array([0, 0, 0]))
    >>> figure = spherejax.plotting.robust_accuracy(
    ...   {"linear": found, "network": [0.9, 0.8, 0.2]}, [0.0, 0.2, 0.9],
    ...   intervals={"network": ([0.8, 0.7, 0.1], [1.0, 0.9, 0.3])})
    >>> figure.axes[0].lines[0].get_ydata().round(2).tolist()
    [0.67, 0.67, 0.0]
  """
  _checks.mapping("curves", curves)
  if not curves:
    raise ValueError("curves must name at least one, got none")
  at = _checks.numbers_of("budgets", budgets)
  _checks.expect("budgets", at, rank=1)
  _checks.between("budgets", at, 0)
  if np.any(np.diff(at) <= 0):
    raise ValueError(f"budgets must grow, got {at.tolist()}")
  lines = {name: _accuracies(name, results, at) for name, results in curves.items()}
  bands = {} if intervals is None else intervals
  _checks.mapping("intervals", bands)
  for name in bands:
    _checks.one_of("a name in intervals", name, list(lines))

  figure = _figure.new_figure(6.0, 3.6)
  axes = figure.subplots()
  for i, (name, values) in enumerate(lines.items()):
    band = None
    if name in bands:
      sides = f"intervals[{name!r}]"
      low, high = _checks.pair(sides, bands[name])
      band = _shares(sides, low, at), _shares(sides, high, at)
    _figure.line(
      axes, i, name, at, values, band, pale=len(lines) > len(_figure.PALETTE)
    )
  axes.set(xlabel=xlabel, ylabel="accuracy under attack", ylim=(0, 1.02))
  axes.margins(x=0.02)
  _figure.soften(axes)
  _figure.legend(figure)
  if title:
    axes.set_title(title, fontsize=12, loc="left")
  return figure


def _accuracies(name: str, results: object, budgets: np.ndarray) -> np.ndarray:
  """Accuracies [budgets] as given, or of results."""
  argument = f"curves[{name!r}]"
  if isinstance(results, attacks.AttackResult):
    least = np.where(results.success, results.norm, np.inf)
    return np.asarray(metrics.accuracy_curve_from_distances(least, budgets))
  if isinstance(results, Sequence) and any(
    isinstance(attack, attacks.AttackResult) for attack in results
  ):
    for attack in results:
      _checks.instance(f"each of {argument}", attack, attacks.AttackResult)
    if len(results) != len(budgets):
      raise ValueError(
        f"{argument} must have a result for each of the {len(budgets)} budgets,"
        f" got {len(results)}"
      )
    success = np.stack([np.asarray(attack.success) for attack in results])
    return np.asarray(metrics.accuracy_curve(success))
  return _shares(argument, results, budgets)


def _shares(name: str, values: object, budgets: np.ndarray) -> np.ndarray:
  shares = _checks.numbers_of(name, values)
  _checks.shape(name, shares, budgets.shape, "budgets")
  _checks.between(name, shares, 0, 1)
  return shares
