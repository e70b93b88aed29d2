"""An empty figure for pictures that only an experiment draws, and writing pictures."""

import math
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from spherejax import plotting

if TYPE_CHECKING:
  import matplotlib.figure

# Okabe and Ito 2008, as in `spherejax.plotting`, and black at last.
COLORS = (
  "#0072B2", "#D55E00", "#009E73", "#CC79A7",
  "#E69F00", "#56B4E9", "#7F7F7F", "#222222",
)  # fmt: skip


def new_figure(width: float, height: float) -> "matplotlib.figure.Figure":
  """Creates a figure of a size in inches, without pyplot's state or a display."""
  from matplotlib.figure import Figure

  return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def curve_panels(
  panels: Mapping[str, Mapping[str, np.ndarray]],
  steps: np.ndarray,
  *,
  xlabel: str,
  ylabel: str,
  columns: int = 4,
) -> "matplotlib.figure.Figure":
  """Plots curves [steps] in small panels that share their axes and colours.

  Later curves are thinner, so that equal curves show below each other.
  """
  columns = min(columns, len(panels))
  lines = math.ceil(len(panels) / columns)
  figure = new_figure(7.2, 1.7 * lines + 0.9)
  grid = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
  names = list(dict.fromkeys(name for curves in panels.values() for name in curves))
  drawn = {}
  for axes, (title, curves) in zip(grid.flat, panels.items(), strict=False):
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
  for axes in grid.flat[len(panels) :]:
    axes.set_visible(False)
  for axes in grid.flat[max(0, len(panels) - columns) : len(panels)]:
    axes.tick_params(labelbottom=True)  # also where nothing is below
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
  """Writes figures as PNG, or as SVG where they are lines; the names of the files."""
  return [
    plotting.save(figure, output / f"{name}{suffix}").name
    for name, figure in figures.items()
  ]
