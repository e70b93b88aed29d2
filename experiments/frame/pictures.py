"""Creates figures for the experiments, draws common plots, and writes files."""

import math
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from jax.typing import ArrayLike

from experiments.frame import results
from spherejax import metrics, plotting

if TYPE_CHECKING:
  from matplotlib.axes import Axes
  from matplotlib.figure import Figure
else:
  Axes = Figure = object  # matplotlib takes long to import

# Okabe and Ito 2008, as in `spherejax.plotting`, with black last.
COLORS = (
  "#0072B2", "#D55E00", "#009E73", "#CC79A7",
  "#E69F00", "#56B4E9", "#7F7F7F", "#222222",
)  # fmt: skip
Figures = Mapping[str, Figure]
"""Figures by file name, without the suffix."""
Panels = Mapping[str, Mapping[str, np.ndarray]]
"""For each panel's title, the values of each row, [seeds]."""
_Shared = bool | Literal["col"]
_BLUE, _ORANGE, *_, _GREY, _INK = COLORS
_ROW = 0.2  # inches from one row to the next


def new_figure(width: float, height: float) -> Figure:
  """Creates a figure of a size in inches, without pyplot's state or a display."""
  from matplotlib.figure import Figure

  return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def panels(
  titles: Iterable[str],
  columns: int,
  height: float,
  margin: float = 0.0,
  *,
  size: float = 9.5,
  framed: bool = False,
  sharex: _Shared = False,
  sharey: _Shared = False,
) -> tuple[Figure, list[Axes]]:
  """Creates a figure 7.2 inches wide with axes of these titles, row by row.

  `height` is that of a row, `size` that of the titles' letters. Axes are open at the
  top and right unless they are `framed`; `sharex` and `sharey` are those of `subplots`.
  """
  titles = list(titles)
  columns = min(columns, len(titles))
  lines = math.ceil(len(titles) / columns)
  figure = new_figure(7.2, height * lines + margin)
  cells = figure.subplots(
    lines, columns, squeeze=False, sharex=sharex, sharey=sharey
  ).ravel()
  for axes in cells[len(titles) :]:
    axes.set_visible(False)
  for axes, title in zip(cells, titles, strict=False):
    axes.set_title(title, fontsize=size, loc="left")
    axes.tick_params(labelsize=8.5)
    axes.spines[["top", "right"]].set_visible(framed)
  return figure, list(cells[: len(titles)])


def name_curves(figure: Figure, columns: int = 4) -> None:
  """Names the curves of all panels above them, each name once."""
  handles = {}
  for axes in figure.axes:
    curves, names = axes.get_legend_handles_labels()
    handles |= dict(zip(names, curves, strict=True))
  figure.legend(
    handles.values(), handles, loc="outside upper center", ncols=columns, fontsize=8.5,
    frameon=False, handlelength=1.2, columnspacing=1.2,
  )  # fmt: skip


def cosine_maps(
  maps: Mapping[str, ArrayLike], groups: np.ndarray, xlabel: str, *, columns: int
) -> Figure:
  """Plots cosines of all pairs of classes, with lines between groups of neighbours."""
  figure, cells = panels(maps, columns, 7.2 / columns, framed=True)
  for axes, values in zip(cells, maps.values(), strict=True):
    axes.imshow(np.asarray(values), cmap="RdBu_r", vmin=-1, vmax=1)
    for edge in np.flatnonzero(np.diff(groups)) + 0.5:
      axes.axhline(edge, color="#222222", linewidth=0.6)
      axes.axvline(edge, color="#222222", linewidth=0.6)
    axes.set(xticks=[], yticks=[])
  figure.supxlabel(xlabel, fontsize=9)
  figure.colorbar(cells[0].images[0], ax=cells, label="cosine", shrink=0.8)
  return figure


def dots(
  by_panel: Panels,
  xlabel: str,
  *,
  rows: Sequence[str] = (),
  columns: int = 2,
  gains: bool = False,
) -> Figure:
  """Plots mean, 95 % interval and seeds of every row, in panels side by side.

  Args:
    by_panel: values by panel and row.
    xlabel: the quantity.
    rows: names from the top, the same in all panels; if empty, each panel is sorted
      with its largest mean at the top.
    columns: panels side by side, at most.
    gains: whether values are differences: a line at 0, blue intervals above it, orange
      ones below it, grey ones that contain it. All panels share its scale.
  """
  most = len(rows) or max(map(len, by_panel.values()))
  height = 0.75 + _ROW * most
  shared = bool(rows)
  figure, cells = panels(by_panel, columns, height, 0.2, sharex=gains, sharey=shared)
  for axes, values in zip(cells, by_panel.values(), strict=True):
    names = list(rows) or sorted(values, key=lambda name: -np.mean(values[name]))
    for place, name in enumerate(names):
      if name in values:
        _row(axes, place, values[name], gains)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    _style(axes, gains)
    axes.locator_params(axis="x", nbins=max(2, 8 // min(columns, len(by_panel))))
  note = "dot and line: mean and 95 % interval; small marks: seeds"
  figure.supxlabel(f"{xlabel}\n{note}", fontsize=9)
  return figure


def _row(axes: Axes, place: int, values: np.ndarray, gains: bool) -> None:
  mean, low, high, n = metrics.mean_interval(values)
  color = _BLUE
  if gains and not low > 0:
    color = _ORANGE if high < 0 else _GREY
  heights = np.tile([place - 0.2, place + 0.2, np.nan], n)  # strokes of one path
  axes.plot(np.repeat(values, 3), heights, color=color, linewidth=1, alpha=0.5)
  if np.isfinite([low, high]).all():
    axes.plot([low, high], [place] * 2, color=color, linewidth=1.8)
  axes.plot(mean, place, "o", color=color, markersize=5.5, markeredgecolor="white")


def _style(axes: Axes, gains: bool) -> None:
  axes.tick_params(axis="y", length=0)
  axes.grid(color="#E6E6E6", linewidth=0.8)
  axes.set_axisbelow(True)
  axes.spines["left"].set_visible(False)
  if gains:
    axes.axvline(0, color=_INK, linewidth=1)


def verdicts(claims: Mapping[str, Sequence[tuple[float, str]]]) -> Figure:
  """Plots claims, a row a statement, by difference over half-width of its interval.

  Args:
    claims: by statement, the quotient and the verdict of each claim. Claims without a
      quotient stand at the right, under "no interval".
  """
  from matplotlib.ticker import NullLocator

  figure, (axes,) = panels([""], 1, 4.4)
  axes.axvspan(-1, 1, color="#EEEEEE", linewidth=0)
  verdict_colors = zip(results.VERDICTS, (_BLUE, _ORANGE, _GREY), strict=True)
  colors: dict[str, str] = dict(verdict_colors)
  for place, tests in enumerate(claims.values()):
    points = sorted((300 if math.isnan(at) else at, verdict) for at, verdict in tests)
    heights = place + np.linspace(-0.35, 0.35, len(points) + 2)[1:-1]
    for height, (at, verdict) in zip(heights, points, strict=True):
      axes.plot(at, height, "o", color=colors[verdict], markersize=4, alpha=0.8)
  axes.set_xscale("symlog", linthresh=3, linscale=1.2)
  ticks = (-30, -10, -3, -1, 0, 1, 3, 10, 30, 100)
  axes.set_xticks((*ticks, 300), (*(f"{x}" for x in ticks), "no\ninterval"))
  axes.xaxis.set_minor_locator(NullLocator())
  axes.set_yticks(range(len(claims)), claims)
  axes.set_ylim(len(claims) - 0.5, -0.5)
  _style(axes, gains=True)
  for name, color in colors.items():
    axes.plot([], [], "o", color=color, markersize=4, label=name)
  figure.legend(loc="outside upper right", ncols=3, frameon=False, fontsize=9)
  axes.set_xlabel("difference, in half-widths of its 95 % interval", fontsize=9)
  return figure


def save(figures: Figures, output: pathlib.Path, suffix: str = ".png") -> list[str]:
  """Writes figures, PNG by default and SVG for plots of lines; returns file names."""
  return [
    plotting.save(figure, output / f"{name}{suffix}").name
    for name, figure in figures.items()
  ]
