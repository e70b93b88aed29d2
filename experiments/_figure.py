"""An empty figure for pictures that only an experiment draws."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
  import matplotlib.figure


def new_figure(width: float, height: float) -> "matplotlib.figure.Figure":
  """Of the size in inches, outside pyplot: no display, no state."""
  from matplotlib.figure import Figure

  return Figure(figsize=(width, height), layout="constrained", facecolor="white")
