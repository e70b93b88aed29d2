"""Creates figures for the experiments, draws common plots, and writes files."""

import math
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from spherejax import plotting

if TYPE_CHECKING:
  import matplotlib.axes
  import matplotlib.figure

# Okabe and Ito 2008, as in `spherejax.plotting`, with black last.
COLORS = (
  "#0072B2", "#D55E00", "#009E73", "#CC79A7",
  "#E69F00", "#56B4E9", "#7F7F7F", "#222222",
)  # fmt: skip


def new_figure(width: float, height: float) -> "matplotlib.figure.Figure":
  """Creates a figure of a size in inches, without pyplot's state or a display."""
  from matplotlib.figure import Figure

  return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def panels(
  number: int, columns: int, height: float, margin: float = 0.0, **options: Any
) -> tuple["matplotlib.figure.Figure", list["matplotlib.axes.Axes"]]:
  """Creates a figure 7.2 inches wide with `number` axes, row by row.

  `height` is that of a row; `options` go to `Figure.subplots`.
  """
  columns = min(columns, number)
  lines = math.ceil(number / columns)
  figure = new_figure(7.2, height * lines + margin)
  cells = figure.subplots(lines, columns, squeeze=False, **options).ravel()
  for axes in cells[number:]:
    axes.set_visible(False)
  return figure, list(cells[:number])


def cosine_maps(
  maps: Mapping[str, np.ndarray], groups: np.ndarray, xlabel: str, *, columns: int
) -> "matplotlib.figure.Figure":
  """Plots cosines of all pairs of classes, with lines between groups of neighbours."""
  figure, cells = panels(len(maps), columns, 7.2 / columns)
  shown: Any = None
  for axes, (title, values) in zip(cells, maps.items(), strict=True):
    shown = axes.imshow(values, cmap="RdBu_r", vmin=-1, vmax=1)
    for edge in np.flatnonzero(np.diff(groups)) + 0.5:
      axes.axhline(edge, color="#222222", linewidth=0.6)
      axes.axvline(edge, color="#222222", linewidth=0.6)
    axes.set(xticks=[], yticks=[])
    axes.set_title(title, fontsize=9.5, loc="left")
  figure.supxlabel(xlabel, fontsize=9)
  figure.colorbar(shown, ax=cells, label="cosine", shrink=0.8)
  return figure


def curve_panels(
  curves_of: Mapping[str, Mapping[str, np.ndarray]],
  steps: np.ndarray,
  *,
  xlabel: str,
  ylabel: str,
  columns: int = 4,
) -> "matplotlib.figure.Figure":
  """Plots curves [steps] in small panels that share their axes and colours.

  Later curves are thinner, so that equal curves remain visible below each other.
  """
  number = len(curves_of)
  figure, cells = panels(number, columns, 1.7, 0.9, sharex=True, sharey=True)
  names = list(dict.fromkeys(name for curves in curves_of.values() for name in curves))
  drawn = {}
  for axes, (title, curves) in zip(cells, curves_of.items(), strict=True):
    for name, values in curves.items():
      place = names.index(name)
      width = max(1.0, 3.0 - 0.4 * place)
      drawn[name] = axes.plot(
        steps, values, color=COLORS[place % len(COLORS)], linewidth=width
      )[0]
    axes.set_title(title, fontsize=9.5, loc="left")
    axes.tick_params(labelsize=8.5)
    axes.locator_params(axis="x", nbins=3)
    axes.grid(axis="y", color="#E6E6E6", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
  for axes in cells[max(0, number - columns) :]:
    axes.tick_params(labelbottom=True)  # also above an empty cell
  figure.supxlabel(xlabel, fontsize=9)
  figure.supylabel(ylabel, fontsize=9)
  figure.legend(
    drawn.values(), drawn, loc="outside upper center", ncols=4, fontsize=8.5,
    frameon=False, handlelength=1.2, columnspacing=1.2,
  )  # fmt: skip
  return figure


def save(
  figures: Mapping[str, Any], output: pathlib.Path, suffix: str = ".png"
) -> list[str]:
  """Writes figures, PNG by default and SVG for plots of lines; returns file names."""
  return [
    plotting.save(figure, output / f"{name}{suffix}").name
    for name, figure in figures.items()
  ]
