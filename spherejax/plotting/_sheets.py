"""Sheets of images: retrieved images, and weights of poolings."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Num

from spherejax import _checks
from spherejax.plotting import _figure

if TYPE_CHECKING:
  import matplotlib.axes
  import matplotlib.cm
  import matplotlib.figure

# Inches.
_CELL = 1.0  # height of an image
_GAP = 0.06  # gap between images
_APART = 0.14  # further gap between a query and its references
_EDGE = 0.12
_LETTER = 0.085  # width of an average letter at 9 points
_LINE = 0.24  # height of a line at 10 points


def retrieval_sheet(
  images: Num[ArrayLike, "images height width *channels"],
  queries: Integer[ArrayLike, " queries"],
  retrieved: Integer[ArrayLike, "queries k"],
  correct: Bool[ArrayLike, "queries k"],
  *,
  reference_images: Num[ArrayLike, "references height width *channels"] | None = None,
  names: Sequence[str] | None = None,
  title: str = "",
) -> "matplotlib.figure.Figure":
  """Draws a row for each query: its image, then its nearest references, right or wrong.

  Right references have a blue frame and a check mark, wrong ones an orange frame and a
  cross, so the sheet is readable without colour.

  Args:
    images: [images, height, width] or [..., 1 or 3], in [0, 1] or bytes.
    queries: [queries], rows of `images`.
    retrieved: [queries, k], rows of `reference_images`, nearest first; see
      `metrics.nearest`.
    correct: [queries, k], boolean, True where the class is the query's.
    reference_images: images that `retrieved` indexes; None: `images`.
    names: a text for each query, written beside it (such as its class).
    title: text above the sheet.

  Returns:
    A matplotlib Figure.

  Raises:
    ValueError: shapes do not match, nothing to show, an index out of range, or values
      outside [0, 1].
    TypeError: indices not integer, `correct` not boolean.

  Source: none.

  Example:
    >>> figure = spherejax.plotting.retrieval_sheet(
    ...   jnp.zeros((3, 8, 8)), jnp.array([0]), jnp.array([[2, 1]]),
    ...   jnp.array([[True, False]]))
    >>> len(figure.axes)
    3
  """
  images = _figure.pictures("images", images)
  references = images
  if reference_images is not None:
    references = _figure.pictures("reference_images", reference_images)
  queries = _checks.host("queries", queries)
  retrieved = _checks.host("retrieved", retrieved)
  correct = _checks.host("correct", correct)
  _checks.expect("queries", queries, "integer", rank=1)
  _checks.expect("retrieved", retrieved, rank=2)
  _checks.shape("retrieved", retrieved, (len(queries), retrieved.shape[1]), "queries")
  _checks.mask(correct, retrieved.shape, "correct")
  if not correct.size:
    raise ValueError(f"retrieved must hold at least one, got shape {retrieved.shape}")
  _indices("queries", queries, len(images))
  _indices("retrieved", retrieved, len(references))
  if names is not None and len(names) != len(queries):
    raise ValueError(f"names must be {len(queries)}, one per query, got {len(names)}")

  rows, k = retrieved.shape
  figure, cells = _grid(
    rows,
    1 + k,
    ratio=images.shape[2] / images.shape[1],
    gap=_APART,
    left=_name_margin(names or ()),
    top=_LINE + _above(title),
    bottom=1.5 * _LINE,
    right=_EDGE,
  )
  for row in range(rows):
    _figure.show(cells[row, 0], images[queries[row]])
    _frame(cells[row, 0], _figure.INK, 1.0)
    if names is not None:
      _name(cells[row, 0], names[row])
    for place in range(k):
      cell = cells[row, 1 + place]
      _figure.show(cell, references[retrieved[row, place]])
      _mark(cell, bool(correct[row, place]))
  for cell, head in zip(cells[0], ["query", *range(1, k + 1)], strict=True):
    cell.set_title(f"{head}", fontsize=10, pad=4)
  _sign_legend(figure)
  _title(figure, title)
  return figure


def weight_maps(
  images: Num[ArrayLike, "images height width *channels"],
  weights: Mapping[str, Float[ArrayLike, "images rows columns"]],
  *,
  names: Sequence[str] | None = None,
  title: str = "",
) -> "matplotlib.figure.Figure":
  """Draws pooling weights as heat maps over the images they pool.

  The first row shows the images, each further row the weights of one pooling. A weight
  is drawn relative to average pooling, weight x rows x columns: 1 is the weight in
  average pooling, 0 means ignored. All maps share one scale.

  Args:
    images: [images, height, width] or [..., 1 or 3], in [0, 1] or bytes.
    weights: for each pooling's name [images, rows, columns], non-negative, sum 1 over
      an image, such as `GSPResult.weights`.
    names: a text for each image, written above it.
    title: text above the sheet.

  Returns:
    A matplotlib Figure.

  Raises:
    TypeError: weights not a mapping.
    ValueError: shapes do not match, no image, no map, or values outside their range.

  Source: the attention maps of DML 5.3.2 and figure 5.5.

  Example:
    >>> figure = spherejax.plotting.weight_maps(
    ...   jnp.zeros((2, 8, 8)), {"GAP": jnp.full((2, 4, 4), 1 / 16)})
    >>> len(figure.axes)  # images, maps, colour bar
    5
  """
  from matplotlib.cm import ScalarMappable
  from matplotlib.colors import Normalize

  images = _figure.pictures("images", images)
  if not len(images):
    raise ValueError(f"images must hold at least one image, got shape {images.shape}")
  _checks.mapping("weights", weights)
  if not weights:
    raise ValueError("weights must name at least one pooling, got none")
  maps = {
    name: _relative(name, values, len(images)) for name, values in weights.items()
  }
  if names is not None and len(names) != len(images):
    raise ValueError(f"names must be {len(images)}, one per image, got {len(names)}")

  figure, cells = _grid(
    1 + len(maps),
    len(images),
    ratio=images.shape[2] / images.shape[1],
    left=_name_margin(["image", *maps]),
    top=_above(title) + (_LINE if names is not None else 0),
    bottom=_EDGE,
    right=0.85,
  )
  highest = max(float(values.max(initial=0)) for values in maps.values())
  gray = images.mean(-1, keepdims=True)
  height, width = images.shape[1:3]
  scale = ScalarMappable(Normalize(0, max(highest, 1)), "inferno")
  for column in range(len(images)):
    _figure.show(cells[0, column], images[column])
    if names is not None:
      cells[0, column].set_title(names[column], fontsize=10, pad=4)
    for row, values in enumerate(maps.values(), start=1):
      cell = cells[row, column]
      _figure.show(cell, gray[column])
      cell.imshow(
        values[column],
        cmap=scale.cmap,
        norm=scale.norm,
        alpha=0.75,
        interpolation="bilinear",
        extent=(-0.5, width - 0.5, height - 0.5, -0.5),
      )
  for row, name in enumerate(["image", *maps]):
    _name(cells[row, 0], name)
  _color_bar(figure, scale, "weight relative to GAP")
  _title(figure, title)
  return figure


def _indices(name: str, indices: np.ndarray, rows: int) -> None:
  _checks.expect(name, indices, "integer")
  if indices.size and not (indices.min() >= 0 and indices.max() < rows):
    raise ValueError(
      f"{name} must be in [0, {rows}), got values in [{indices.min()}, {indices.max()}]"
    )


def _relative(name: str, values: ArrayLike, count: int) -> np.ndarray:
  weights = _checks.host(f"weights[{name!r}]", values).astype(np.float32)
  _checks.expect(f"weights[{name!r}]", weights, rank=3)
  _checks.shape(f"weights[{name!r}]", weights, (count, *weights.shape[1:]), "images")
  if not np.all(weights >= 0):
    raise ValueError(f"weights[{name!r}] must be non-negative, got {weights.min():g}")
  return weights * weights[0].size


def _grid(
  rows: int,
  columns: int,
  *,
  ratio: float,
  left: float,
  top: float,
  bottom: float,
  right: float,
  gap: float = 0,
) -> tuple["matplotlib.figure.Figure", np.ndarray]:
  """Figure with axes [rows, columns] of one size, whatever text is around them."""
  wide, high = _CELL * ratio + _GAP, _CELL + _GAP
  width = left + columns * wide - _GAP + gap + right
  height = top + rows * high - _GAP + bottom
  figure = _figure.new_figure(width, height, layout=None)
  cells = np.empty((rows, columns), object)
  for row, column in np.ndindex(rows, columns):
    x = left + column * wide + gap * (column > 0)
    y = bottom + (rows - 1 - row) * high
    cells[row, column] = figure.add_axes(
      (x / width, y / height, _CELL * ratio / width, _CELL / height)
    )
  return figure, cells


def _name_margin(names: Iterable[str]) -> float:
  return _EDGE + _LETTER * max((len(name) + 1 for name in names), default=0)


def _above(title: str) -> float:
  return _EDGE / 2 + (1.2 * _LINE if title else 0)


def _name(cell: "matplotlib.axes.Axes", name: str) -> None:
  cell.set_ylabel(name, rotation=0, ha="right", va="center", labelpad=6, fontsize=9)


def _title(figure: "matplotlib.figure.Figure", title: str) -> None:
  if title:
    figure.suptitle(
      title, fontsize=12, y=1 - 0.5 * _EDGE / figure.get_figheight(), va="top"
    )


def _color_bar(
  figure: "matplotlib.figure.Figure", scale: "matplotlib.cm.ScalarMappable", text: str
) -> None:
  """Draws a colour bar at the right of the grid, as high as the grid."""
  boxes = [axes.get_position() for axes in figure.axes]
  low, high = min(box.y0 for box in boxes), max(box.y1 for box in boxes)
  left = max(box.x1 for box in boxes) + 0.15 / figure.get_figwidth()
  axes = figure.add_axes((left, low, 0.12 / figure.get_figwidth(), high - low))
  figure.colorbar(scale, cax=axes).set_label(text, fontsize=9)
  axes.tick_params(labelsize=8, length=2)
  axes.spines[:].set_visible(False)


def _frame(cell: "matplotlib.axes.Axes", color: str, width: float) -> None:
  cell.spines[:].set(visible=True, color=color, linewidth=width)


def _mark(cell: "matplotlib.axes.Axes", right: bool) -> None:
  color = _figure.RIGHT if right else _figure.WRONG
  _frame(cell, color, 2.5)
  cell.text(
    0.97,
    0.03,
    "✓" if right else "✗",
    transform=cell.transAxes,
    ha="right",
    va="bottom",
    color="white",
    fontsize=10,
    fontweight="bold",
    bbox={"boxstyle": "square,pad=0.15", "facecolor": color, "edgecolor": "none"},
  )


def _sign_legend(figure: "matplotlib.figure.Figure") -> None:
  from matplotlib.lines import Line2D

  signs = [
    Line2D([], [], color=color, marker=f"${sign}$", linestyle="none", markersize=8)
    for color, sign in ((_figure.RIGHT, "✓"), (_figure.WRONG, "✗"))
  ]
  figure.legend(
    signs,
    ["query's class", "another class"],
    loc="lower center",
    borderpad=0.2,
    ncols=2,
    frameon=False,
    fontsize=9,
  )
