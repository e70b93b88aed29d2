"""Plots of points in the plane by class, with the hull of each class."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Real

from spherejax import _checks
from spherejax.plotting import _figure

if TYPE_CHECKING:
  import matplotlib.axes
  import matplotlib.figure

Classes = Sequence[Real[ArrayLike, "_ 2"]] | Real[ArrayLike, "_ _ 2"]


def class_hulls(
  panels: Mapping[str, Classes],
  *,
  dots: Mapping[str, Classes] | None = None,
  others: Mapping[str, Real[ArrayLike, "_ 2"]] | None = None,
  other_label: str = "",
) -> "matplotlib.figure.Figure":
  """Plots the points of every class in the plane and their convex hulls, in panels.

  A class has the same colour in all panels.

  Args:
    panels: for each title the points of each class, [points, 2]; a class may have
      fewer than three points, or none.
    dots: for each title further points of each class, drawn small, such as samples.
    others: for each title points [points, 2] of no class, drawn as crosses.
    other_label: label of the crosses.

  Returns:
    A matplotlib Figure.

  Raises:
    TypeError: panels not a mapping, dots or others not arrays.
    ValueError: no panel, points that are not [points, 2], titles in `dots` or `others`
      that no panel has, or dots of more classes than the panel has.

  Source: none; after DML figure 5.4.

  Example:
    >>> triangle = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    >>> figure = spherejax.plotting.class_hulls({"GAP": jnp.array([triangle] * 2)})
    >>> len(figure.axes[0].patches)
    2
  """
  for name, mapping in (("panels", panels), ("dots", dots), ("others", others)):
    if mapping is not None or name == "panels":
      _checks.mapping(name, mapping)
  if not panels:
    raise ValueError("panels must name at least one, got none")
  for name in {**(dots or {}), **(others or {})}:
    _checks.one_of("a name in dots or others", name, list(panels))
  figure = _figure.new_figure(4.2 * len(panels) + 0.2, 4.9)
  figure.set_layout_engine("compressed")  # leaves room for titles above square panels
  row = np.atleast_1d(figure.subplots(1, len(panels), sharex=True, sharey=True))
  crosses = None
  items: Any = panels.items()
  for axes, (title, classes) in zip(row, items, strict=True):
    colors = _colors(len(classes))
    small: Any = () if dots is None else dots.get(title, ())
    if len(small) > len(colors):
      raise ValueError(
        f"dots[{title!r}] must be of at most {len(colors)} classes, got {len(small)}"
      )
    for color, points in zip(colors, small, strict=False):
      points = _points(f"dots[{title!r}]", points)
      axes.plot(*points.T, ".", color=color, markersize=2, alpha=0.5)
    for number, (color, points) in enumerate(zip(colors, classes, strict=True)):
      _class(axes, _points(f"panels[{title!r}]", points), color, number)
    if others is not None and title in others:
      (crosses,) = axes.plot(
        *_points(f"others[{title!r}]", others[title]).T,
        "X",
        color=_figure.INK,
        markersize=9,
        markeredgecolor="white",
      )
    axes.set_title(title, fontsize=12, loc="left")
    axes.set_aspect("equal")
    _figure.soften(axes)
  if crosses is not None and other_label:
    figure.legend(
      [crosses], [other_label], loc="outside lower center", frameon=False, fontsize=9
    )
  return figure


def _points(name: str, points: ArrayLike) -> np.ndarray:
  points = np.asarray(points, np.float64)
  _checks.expect(name, points, rank=2)
  _checks.shape(name, points, (len(points), 2))
  return points


def _colors(number: int) -> list[Any]:
  """Returns `number` distinct colours, from the palette if there are few."""
  if number <= len(_figure.PALETTE):
    return [_figure.color(i) for i in range(number)]
  import matplotlib

  return list(matplotlib.colormaps["turbo"](np.linspace(0.03, 0.97, number)))


def _class(
  axes: "matplotlib.axes.Axes", points: np.ndarray, color: Any, number: int
) -> None:
  """Points and hull of one class; a hull of two points is a segment."""
  marker = _figure.MARKERS[number % len(_figure.MARKERS)]
  corners = _hull(points)
  axes.fill(*corners.T, facecolor=color, edgecolor=color, alpha=0.25, linewidth=1.5)
  axes.plot(
    *points.T,
    marker,
    color=color,
    markersize=5,
    markeredgecolor="white",
    markeredgewidth=0.5,
  )


def _hull(points: np.ndarray) -> np.ndarray:
  """Corners of the convex hull in order; the points themselves if they span no area."""
  from scipy import spatial

  if len(points) < 3 or np.linalg.matrix_rank(points - points[:1], tol=1e-9) < 2:
    return points
  return points[spatial.ConvexHull(points).vertices]
