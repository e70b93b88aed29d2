"""The quickstart's figure: collages, and where each pooling puts its weight."""

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.frame import pictures
from experiments.gsp import quick
from experiments.gsp.collages import foreground_weight
from experiments.gsp.quick import GRID
from spherejax import data

_LETTERS = 16  # of a label above a collage
_CELL = 1.08  # inches
_FRAME, _WEIGHT = "#0072B2", (213, 94, 0)
_OPACITY = 0.85  # opacity of the largest weight
_CAPTION = (
  "Blue frame: the tile that the label is about. Orange: the pooling's weight.\n"
  "Percentage: the share of it on the framed tile."
)


def draw(
  collages: data.Collages,
  trained: Mapping[str, quick.Trained],
  names: Sequence[str],
  most: int,
) -> pictures.Figure:
  """The first collage of each of at most `most` classes, above the weights on it.

  They are not hand-picked. `collages` consist of pixels.
  """
  classes, chosen = (x[:most] for x in np.unique(collages.labels, return_index=True))
  images, foreground = (
    np.asarray(x)[chosen] for x in (collages.images, collages.foreground)
  )
  weights = {name: result.weights[chosen] for name, result in trained.items()}
  count, side = len(images), images.shape[1]
  rows = {"collage": None, **weights}
  figure = pictures.new_figure(0.7 + _CELL * count, 0.5 + (_CELL + 0.2) * len(rows))
  cells = figure.subplots(len(rows), count, squeeze=False)
  largest = max(float(values.max()) for values in weights.values())
  for (title, values), row in zip(rows.items(), cells, strict=True):
    row[0].set_ylabel(title, fontsize=10)
    for n, axes in enumerate(row):
      axes.set(xticks=[], yticks=[])
      axes.spines[:].set_visible(False)
      axes.imshow(_with_gaps(np.broadcast_to(images[n], (side, side, 3)), 255))
      tile = np.argwhere(foreground[n])[0]
      if values is None:
        axes.set_title(f"label: {_short(names[int(classes[n])])}", fontsize=9.5)
      else:
        opacity = _OPACITY * values[n] / largest
        opacity = np.kron(opacity, np.ones((side // len(opacity),) * 2))
        color = np.broadcast_to(np.array(_WEIGHT) / 255, (side, side, 3))
        axes.imshow(_with_gaps(np.dstack([color, opacity]), 0))
        share = foreground_weight(values[n : n + 1], foreground[n : n + 1])
        axes.set_xlabel(f"{100 * share:.0f} %", fontsize=9.5, labelpad=3)
      _frame(axes, tile, side // GRID)
  figure.supxlabel(_CAPTION, fontsize=9)
  return figure


def _short(name: str) -> str:
  name = name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…"
  return name.replace("$", r"\$")  # which would begin a formula


def _gap(tile: int) -> int:
  return max(1, tile // 8)


def _with_gaps(image: np.ndarray, fill: int) -> np.ndarray:
  tile, channels = len(image) // GRID, image.shape[-1]
  gap = _gap(tile)
  tiles = image.reshape(GRID, tile, GRID, tile, channels)
  around = [(0, 0), (gap, gap), (0, 0), (gap, gap), (0, 0)]
  side = GRID * (tile + 2 * gap)
  return np.pad(tiles, around, constant_values=fill).reshape(side, side, channels)


def _frame(axes: pictures.Axes, place: np.ndarray, tile: int) -> None:
  from matplotlib.patches import Rectangle

  gap = _gap(tile)
  top, left = place * (tile + 2 * gap) + gap / 2 - 0.5
  side = tile + gap
  axes.add_patch(Rectangle((left, top), side, side, fill=False, ec=_FRAME, lw=2.5))
