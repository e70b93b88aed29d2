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
  image: Any = None
  for axes, (title, values) in zip(cells, maps.items(), strict=True):
    image = axes.imshow(values, cmap="RdBu_r", vmin=-1, vmax=1)
    for edge in np.flatnonzero(np.diff(groups)) + 0.5:
      axes.axhline(edge, color="#222222", linewidth=0.6)
      axes.axvline(edge, color="#222222", linewidth=0.6)
    axes.set(xticks=[], yticks=[])
    axes.set_title(title, fontsize=9.5, loc="left")
  figure.supxlabel(xlabel, fontsize=9)
  figure.colorbar(image, ax=cells, label="cosine", shrink=0.8)
  return figure


def save(
  figures: Mapping[str, Any], output: pathlib.Path, suffix: str = ".png"
) -> list[str]:
  """Writes figures, PNG by default and SVG for plots of lines; returns file names."""
  return [
    plotting.save(figure, output / f"{name}{suffix}").name
    for name, figure in figures.items()
  ]
