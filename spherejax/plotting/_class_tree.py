"""Plot of a class tree, from the root on the left to the classes on the right."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Integer

from spherejax import _checks, hierarchy
from spherejax.plotting import _figure

if TYPE_CHECKING:
  import matplotlib.axes
  import matplotlib.figure

_ROW = 0.155  # inches from one leaf to the next: names of 8 points do not touch
_LETTER = 0.068  # largest width of a letter of a leaf's name, in inches


def class_tree(
  tree: hierarchy.ClassTree,
  *,
  groups: Integer[ArrayLike, " classes"] | None = None,
  max_depth: int | None = None,
  title: str = "",
) -> "matplotlib.figure.Figure":
  """Draws a class tree from left to right, with its leaves one below the other.

  Edges are drawn to scale: 1 in a tree of classes, the estimated length in an inferred
  tree, where a negative edge turns back. Names of inner nodes are above their edges.
  The figure grows with the number of leaves, so that all names can be read.

  Args:
    tree: a ClassTree.
    groups: [classes], integer: a colour for each class's name and edge, such as
      its branch in another tree; the colours repeat after seven. None: by the branches
      below the root.
    max_depth: nodes of this depth are drawn as leaves, with the number of classes
      below; for trees of hundreds of classes. Static.
    title: text above the tree.

  Returns:
    A matplotlib Figure.

  Raises:
    TypeError: groups are not integers.
    ValueError: groups of another length, or max_depth below 1.

  Source: none.

  Example:
    >>> tree = spherejax.hierarchy.from_mapping({"animal": ["cat", "dog"], "car": None})
    >>> figure = spherejax.plotting.class_tree(tree)
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['animal', 'car', 'cat', 'dog']
  """
  depths = hierarchy.depths(tree)
  below = hierarchy.ancestors(tree)
  shown = np.ones(len(depths), bool)
  if max_depth is not None:
    _checks.count("max_depth", max_depth)
    shown = depths <= max_depth
  colours = _colours(tree, below, groups)
  children: list[list[int]] = [[] for _ in depths]
  for node in np.flatnonzero(shown)[1:]:
    children[tree.parents[node]].append(int(node))
  rows, leaves = _rows(children)
  across = np.zeros(len(depths))
  for node in range(1, len(depths)):
    across[node] = across[tree.parents[node]] + tree.lengths[node]
  labels = _labels(tree, below, shown, children)

  extent = float(np.ptp(across[shown])) or 1.0
  wide = _inches_per_unit(tree, labels, children, shown, extent)
  label_width = _LETTER * max((len(labels[leaf]) for leaf in leaves), default=1) + 0.15
  figure = _figure.new_figure(
    wide * extent + label_width + 0.3, _ROW * len(leaves) + (0.55 if title else 0.25)
  )
  axes = figure.subplots()
  _edges(axes, tree, across, rows, colours, children, shown)
  for node in np.flatnonzero(shown):
    leaf = not children[node]
    if labels[node] and (leaf or node):
      axes.annotate(
        labels[node],
        (across[node], rows[node]),
        (4, 0) if leaf else (-2, 1.5),
        textcoords="offset points",
        ha="left" if leaf else "right",
        va="center" if leaf else "bottom",
        fontsize=8 if leaf else 7.5,
        color=colours[node],
      )
  left, right = across[shown].min(), across[shown].max()
  axes.set_xlim(left - 0.05 / wide, right + label_width / wide)
  axes.set_ylim(len(leaves) - 0.4, -0.9)
  axes.axis("off")
  if title:
    axes.set_title(title, fontsize=12, loc="left")
  return figure


def _colours(
  tree: hierarchy.ClassTree, below: np.ndarray, groups: ArrayLike | None
) -> list[str]:
  """Colour of each node: that of its classes if they agree."""
  if groups is None:
    top = np.flatnonzero(tree.parents == 0)
    named = below[:, top].argmax(axis=1) if len(top) else np.zeros(len(below), int)
  else:
    named = np.asarray(groups)
    _checks.expect("groups", named, "integer")
    _checks.shape("groups", named, tree.classes.shape, "the classes")
  colours = []
  for column in below.T:
    inside = np.unique(named[column])
    colours.append(_figure.color(int(inside[0])) if len(inside) == 1 else _figure.INK)
  return colours


def _rows(children: list[list[int]]) -> tuple[np.ndarray, list[int]]:
  """Height of each node, in leaves from the top, and the leaves in that order."""
  rows, leaves, stack = np.zeros(len(children)), [], [0]
  while stack:
    node = stack.pop()
    if children[node]:
      stack.extend(reversed(children[node]))
    else:
      rows[node] = len(leaves)
      leaves.append(node)
  for node in range(len(children) - 1, -1, -1):
    if children[node]:
      rows[node] = (rows[children[node][0]] + rows[children[node][-1]]) / 2
  return rows, leaves


def _labels(
  tree: hierarchy.ClassTree,
  below: np.ndarray,
  shown: np.ndarray,
  children: list[list[int]],
) -> list[str]:
  """Names of the nodes; an inner node drawn as a leaf adds its number of classes."""
  inner = set(tree.parents.tolist())
  texts = list(tree.names)
  for node in np.flatnonzero(shown):
    if node in inner and not children[node]:
      texts[node] = f"{tree.names[node]} ({below[:, node].sum()} classes)"
  return texts


def _inches_per_unit(
  tree: hierarchy.ClassTree,
  labels: list[str],
  children: list[list[int]],
  shown: np.ndarray,
  extent: float,
) -> float:
  """Inches per unit of length, so that inner names fit over their edges."""
  needed = [
    0.067 * len(labels[node]) / float(tree.lengths[node])
    for node in np.flatnonzero(shown)[1:]
    if children[node] and tree.lengths[node] > 0
  ]
  steps = bool((tree.lengths[1:] == 1).all())
  least, most = (1.0, 2.5) if steps else (4 / extent, 10 / extent)
  return min(max([least, *needed]), most)


def _edges(
  axes: "matplotlib.axes.Axes",
  tree: hierarchy.ClassTree,
  across: np.ndarray,
  rows: np.ndarray,
  colours: list[str],
  children: list[list[int]],
  shown: np.ndarray,
) -> None:
  style: dict[str, Any] = {"linewidth": 1.0, "solid_capstyle": "round"}
  for node in np.flatnonzero(shown)[1:]:
    start = across[tree.parents[node]]
    axes.plot([start, across[node]], [rows[node]] * 2, color=colours[node], **style)
  for node, below in enumerate(children):
    if len(below) > 1:
      ends = [rows[below[0]], rows[below[-1]]]
      axes.plot([across[node]] * 2, ends, color=colours[node], **style)
