"""Charts over seeds: training curves, and bars with intervals."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Real

from spherejax import _checks, metrics
from spherejax.plotting import _figure

if TYPE_CHECKING:
  import matplotlib.axes
  import matplotlib.figure


def training_curves(
  curves: Mapping[
    str, Real[ArrayLike, "seeds steps"] | Sequence[Sequence[float | int]]
  ],
  *,
  steps: Real[ArrayLike, " steps"] | Sequence[float | int] | None = None,
  xlabel: str = "step",
  ylabel: str,
  title: str = "",
) -> "matplotlib.figure.Figure":
  """Plots the mean over seeds against the step, with the range of the seeds as a band.

  Args:
    curves: for each name [seeds, steps]. NaN means not measured: the line continues to
      the next value, and the mean is over the seeds that have one.
    steps: [steps], the steps of the values; None: 1, 2, ...
    xlabel: what `steps` counts.
    ylabel: the quantity and its unit.
    title: text above the chart.

  Returns:
    A matplotlib Figure.

  Raises:
    TypeError: curves not a mapping, steps not numbers.
    ValueError: no curve, or shapes that do not match.

  Source: none.

  Example:
    >>> figure = spherejax.plotting.training_curves(
    ...   {"GAP": [[3.0, 2.0], [2.8, 2.2]], "GSP": [[2.5, 1.0], [2.6, 1.1]]},
    ...   steps=[100, 200], ylabel="loss")
    >>> [line.get_label() for line in figure.axes[0].lines]
    ['GAP', 'GSP']
  """
  _checks.mapping("curves", curves)
  series = {
    name: _checks.numbers_of(f"curves[{name!r}]", values)
    for name, values in curves.items()
  }
  if not series:
    raise ValueError("curves must name at least one, got none")
  length = next(iter(series.values())).shape[-1:]
  if steps is None:
    where = np.arange(1, *(n + 1 for n in length))
  else:
    where = _checks.numbers_of("steps", steps)
    _checks.expect("steps", where, rank=1)
  for name, values in series.items():
    _checks.expect(f"curves[{name!r}]", values, rank=2)
    _checks.shape(f"curves[{name!r}]", values, (len(values), len(where)), "steps")

  figure = _figure.new_figure(6.0, 3.6)
  axes = figure.subplots()
  for i, (name, values) in enumerate(series.items()):
    known = np.isfinite(values).any(axis=0)
    at, shown = where[known], np.ma.masked_invalid(values[:, known])
    band = (shown.min(axis=0), shown.max(axis=0)) if len(values) > 1 else None
    pale = len(series) > len(_figure.PALETTE)
    _figure.line(axes, i, name, at, shown.mean(axis=0), band, pale=pale)
  axes.set(xlabel=xlabel, ylabel=ylabel)
  axes.margins(x=0.02)
  _figure.soften(axes)
  seeds = sorted({len(values) for values in series.values()})
  note = (
    f"band: range of {' or '.join(map(str, seeds))} seeds" if max(seeds) > 1 else ""
  )
  _figure.legend(figure, note)
  if title:
    axes.set_title(title, fontsize=12, loc="left")
  return figure


def bars_with_intervals(
  values: Mapping[str, Mapping[str, Real[ArrayLike, " seeds"] | Sequence[float | int]]],
  *,
  ylabel: str,
  confidence: float = 0.95,
  title: str = "",
) -> "matplotlib.figure.Figure":
  """Plots groups of bars: means over seeds, Student's intervals, and seeds as dots.

  Args:
    values: for each group (such as a test set) the values of each method, [seeds]. A
      method keeps its colour in all groups and may be absent from some.
    ylabel: the quantity and its unit.
    confidence: of the intervals, see `metrics.mean_interval`. A single seed has no
      interval.
    title: text above the chart.

  Returns:
    A matplotlib Figure.

  Raises:
    TypeError: values not a mapping, confidence not a number.
    ValueError: no group, a group without a method, or values that are not [seeds].

  Source: none.

  Example:
    >>> figure = spherejax.plotting.bars_with_intervals(
    ...   {"seen": {"GAP": [0.72, 0.74], "GSP": [0.81, 0.80]}}, ylabel="MAP@R")
    >>> len(figure.axes[0].patches)
    2
  """
  _checks.mapping("values", values)
  for name, group in values.items():
    _checks.mapping(f"values[{name!r}]", group)
  if not values or not all(values.values()):
    raise ValueError(f"values must hold groups of at least one method, got {values!r}")
  methods = list(dict.fromkeys(name for group in values.values() for name in group))
  width = 0.8 / len(methods)
  # A page shows a wider chart with letters too small to read.
  wide = 2.8 + 0.45 * len(methods) * len(values)
  figure = _figure.new_figure(min(wide, 7.2), 3.6)
  axes = figure.subplots()
  for i, method in enumerate(methods):
    label = method
    for at, group in enumerate(values.values()):
      if method not in group:
        continue
      figures = _checks.numbers_of(f"values[...][{method!r}]", group[method])
      interval = metrics.mean_interval(figures, confidence=confidence)
      middle = at + (i - (len(methods) - 1) / 2) * width
      axes.bar(
        middle,
        interval.mean,
        0.9 * width,
        color=_figure.color(i),
        hatch=_figure.HATCHES[_figure.turn(i) % len(_figure.HATCHES)],
        edgecolor="white",
        linewidth=0,
        alpha=0.85,
        label=label,
      )
      label = "_nolegend_"  # the first group's bar names the method
      _seeds(axes, middle, width, figures, interval)
  axes.set_xticks(range(len(values)), list(values))
  axes.tick_params(axis="x", length=0, labelsize=10 if wide <= 7.2 else 8.5)
  axes.set_ylabel(ylabel)
  _figure.soften(axes)
  axes.axhline(0, color=_figure.INK, linewidth=0.8)
  _figure.legend(figure, f"whisker: {confidence:.0%} interval\ndot: one seed")
  if title:
    axes.set_title(title, fontsize=12, loc="left")
  return figure


def _seeds(
  axes: "matplotlib.axes.Axes",
  middle: float,
  width: float,
  figures: np.ndarray,
  interval: metrics.Interval,
) -> None:
  """Draws the single runs beside the whisker, so that neither hides the other."""
  n = len(figures)
  axes.plot(
    np.full(n, middle - 0.22 * width),
    figures,
    "o",
    color="white",
    markeredgecolor=_figure.INK,
    markersize=4,
  )
  if np.isfinite([interval.low, interval.high]).all():
    axes.errorbar(
      middle + 0.12 * width,
      interval.mean,
      interval.high - interval.mean,
      color=_figure.INK,
      capsize=3,
      linewidth=1.3,
    )
