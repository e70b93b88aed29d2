"""An empty figure for pictures that only an experiment draws, and writing pictures."""

import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from spherejax import plotting

if TYPE_CHECKING:
  import matplotlib.figure


def new_figure(width: float, height: float) -> "matplotlib.figure.Figure":
  """Creates a figure of a size in inches, without pyplot's state or a display."""
  from matplotlib.figure import Figure

  return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def save(figures: Mapping[str, Any], output: pathlib.Path) -> list[str]:
  """Writes pictures as PNG; the names of the files."""
  return [
    plotting.save(figure, output / f"{name}.png").name
    for name, figure in figures.items()
  ]
