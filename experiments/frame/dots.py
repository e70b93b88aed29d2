"""Dot plots in panels: means over seeds with intervals, one row per method."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from experiments.frame import pictures
from spherejax import metrics

if TYPE_CHECKING:
  import matplotlib.axes
  import matplotlib.figure

Panels = Mapping[str, Mapping[str, np.ndarray]]
"""For each panel's title, the values of each row, [seeds]."""
_BLUE, _ORANGE, *_, _GREY, _INK = pictures.COLORS
_ROW = 0.2  # inches from one row to the next


def dots(
  panels: Panels,
  xlabel: str,
  *,
  rows: Sequence[str] = (),
  columns: int = 2,
  gains: bool = False,
) -> "matplotlib.figure.Figure":
  """Plots mean, 95 % interval and seeds of every row, in panels side by side.

  Args:
    panels: values by panel and row.
    xlabel: the quantity.
    rows: names from the top, the same in all panels; if empty, each panel is sorted
      with its largest mean at the top.
    columns: panels side by side, at most.
    gains: whether values are differences: a line at 0, blue intervals above it, orange
      ones below it, grey ones that contain it. All panels share its scale.
  """
  most = len(rows) or max(map(len, panels.values()))
  shared = {"sharey": bool(rows), "sharex": gains}
  height = 0.75 + _ROW * most
  figure, cells = pictures.panels(len(panels), columns, height, 0.2, **shared)
  for axes, (title, values) in zip(cells, panels.items(), strict=True):
    names = list(rows) or sorted(values, key=lambda name: -np.mean(values[name]))
    for place, name in enumerate(names):
      if name in values:
        _row(axes, place, values[name], gains)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    _style(axes, title, gains)
    axes.locator_params(axis="x", nbins=max(2, 8 // min(columns, len(panels))))
  note = "dot and line: mean and 95 % interval; small marks: seeds"
  figure.supxlabel(f"{xlabel}\n{note}", fontsize=9)
  return figure


def _row(
  axes: "matplotlib.axes.Axes", place: int, values: np.ndarray, gains: bool
) -> None:
  mean, low, high, n = metrics.mean_interval(values)
  color = _BLUE
  if gains and not low > 0:
    color = _ORANGE if high < 0 else _GREY
  heights = np.tile([place - 0.2, place + 0.2, np.nan], n)  # strokes of one path
  axes.plot(np.repeat(values, 3), heights, color=color, linewidth=1, alpha=0.5)
  if np.isfinite([low, high]).all():
    axes.plot([low, high], [place] * 2, color=color, linewidth=1.8)
  axes.plot(mean, place, "o", color=color, markersize=5.5, markeredgecolor="white")


def _style(axes: "matplotlib.axes.Axes", title: str, gains: bool) -> None:
  axes.set_title(title, fontsize=9.5, loc="left")
  axes.tick_params(axis="y", length=0, labelsize=8.5)
  axes.tick_params(axis="x", labelsize=8.5)
  axes.grid(color="#E6E6E6", linewidth=0.8)
  axes.set_axisbelow(True)
  axes.spines[["top", "right", "left"]].set_visible(False)
  if gains:
    axes.axvline(0, color=_INK, linewidth=1)
