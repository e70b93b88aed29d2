"""Heat map: a table of numbers as colours, with the numbers in it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Real

from spherejax import _checks
from spherejax.plotting import _figure

if TYPE_CHECKING:
  import matplotlib.figure


def heat_map(
  values: Real[ArrayLike, "rows columns"] | Sequence[Sequence[float | int]],
  *,
  rows: Sequence[object],
  columns: Sequence[object],
  row_label: str,
  column_label: str,
  value_label: str,
  number_format: str = ".3f",
  title: str = "",
) -> "matplotlib.figure.Figure":
  """Plots a number for each pair of two hyperparameters, as colour and text.

  The cell with the largest number is framed.

  Args:
    values: [rows, columns]; NaN leaves a cell grey (such as a diverged run). With
      `training.grid` of two hyperparameters, pass the cells' means reshaped.
    rows: the value of each row, from the top.
    columns: the value of each column, from the left.
    row_label: the quantity of the rows.
    column_label: the quantity of the columns.
    value_label: the quantity of the values and its unit.
    number_format: format of the numbers in the cells.
    title: text above the map.

  Returns:
    A matplotlib Figure.

  Raises:
    TypeError: values not numbers, rows or columns not sequences.
    ValueError: shapes that do not match, or no number to show.

  Source: none; after DML figure 5.10.

  Example:
    >>> figure = spherejax.plotting.heat_map(
    ...   [[0.5, 0.6], [0.7, 0.4]], rows=[16, 64], columns=[0.5, 5.0],
    ...   row_label="prototypes", column_label="inverse temperature",
    ...   value_label="MAP@R")
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['0.500', '0.600', '0.700', '0.400']
  """
  figures = _checks.numbers_of("values", values)
  _checks.sequence("rows", rows)
  _checks.sequence("columns", columns)
  _checks.expect("values", figures, rank=2)
  expected = (len(rows), len(columns))
  _checks.shape("values", figures, expected, "rows and columns")
  if not np.isfinite(figures).any():
    raise ValueError(f"values must hold a number, got {figures.tolist()}")
  figures = np.where(np.isfinite(figures), figures, np.nan)
  width, height = 2.2 + 0.75 * len(columns), 1.3 + 0.5 * len(rows)
  figure = _figure.new_figure(width, height)
  axes = figure.subplots()
  axes.set_facecolor(_figure.FAINT)
  image = axes.imshow(np.ma.masked_invalid(figures), cmap="viridis", aspect="auto")
  for (row, column), value in np.ndenumerate(figures):
    if np.isfinite(value):
      dark = float(image.norm(value)) < 0.6  # pyright: ignore[reportArgumentType]
      axes.text(
        column,
        row,
        format(value, number_format),
        ha="center",
        va="center",
        fontsize=9,
        color="white" if dark else _figure.INK,
      )
  best = np.unravel_index(np.nanargmax(figures), figures.shape)
  frame = {
    "fill": False, "edgecolor": _figure.WRONG, "linewidth": 2.5, "clip_on": False
  }  # fmt: skip
  from matplotlib.patches import Rectangle

  axes.add_patch(Rectangle((best[1] - 0.5, best[0] - 0.5), 1, 1, **frame))
  axes.set_xticks(range(len(columns)), [str(name) for name in columns])
  axes.set_yticks(range(len(rows)), [str(name) for name in rows])
  axes.tick_params(length=0)
  axes.spines[:].set_visible(False)
  axes.set(xlabel=column_label, ylabel=row_label)
  figure.colorbar(image, ax=axes, label=value_label).outline.set_visible(False)  # pyright: ignore[reportCallIssue]
  if title:
    axes.set_title(title, fontsize=12, loc="left")
  return figure
