"""Class tree: its nodes, its checks, and properties of its shape."""

import reprlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int, Integer

from spherejax import _checks


class ClassTree(NamedTuple):
  """Rooted tree in which every class is a node, usually a leaf.

  The readers of this module build and check it; the functions of this module rely on
  parents coming before their children. A class may be above another class.

  Attributes:
    names: of the nodes, root first, parents before children, by depth. A name may
      occur twice, and that of an inner node may be empty.
    parents: [nodes], index of each node's parent; -1 for the root.
    classes: [classes], the node of each class.
    lengths: [nodes], length of the edge to the parent; 0 for the root. 1 for a tree of
      classes; estimated, and possibly negative, for an inferred tree.
  """

  names: tuple[str, ...]
  parents: Int[np.ndarray, " nodes"]
  classes: Int[np.ndarray, " classes"]
  lengths: Float[np.ndarray, " nodes"]

  @property
  def class_names(self) -> tuple[str, ...]:
    """Names of the classes in the order of their labels."""
    return tuple(self.names[node] for node in self.classes)


def from_parents(
  parents: Integer[ArrayLike, " nodes"] | Sequence[int],
  *,
  names: Sequence[str] | None = None,
  classes: Sequence[str] | None = None,
) -> ClassTree:
  """Builds a tree from the index of each node's parent.

  Args:
    parents: [nodes], integer, in any order; -1 for the root.
    names: [nodes]. None: "0", "1", ...
    classes: names of the classes in the order of their labels. A name stands for the
      leaf of that name, or else for the inner node. None: the leaves, in the order of
      the nodes.

  Returns:
    ClassTree.

  Raises:
    TypeError: parents are not integers.
    ValueError: no node, none or several roots, a parent that is no node, a cycle,
      lengths that differ; a leaf without a name; without `classes` two leaves of one
      name; a class that is no node, names two nodes or occurs twice, a leaf that is no
      class (`restrict` leaves such leaves out).

  Source: none.

  Example:
    >>> tree = spherejax.hierarchy.from_parents([-1, 0, 0, 1, 1])
    >>> tree.class_names
    ('2', '3', '4')
  """
  above = np.asarray(parents)
  _checks.expect("parents", above, rank=1, empty=False)
  above = above.astype(int) if not above.size else above
  _checks.expect("parents", above, "integer")
  if names is not None:
    _checks.texts("names", names)
  called = [str(node) for node in range(len(above))] if names is None else list(names)
  if len(called) != len(above):
    raise ValueError(f"names must have {len(above)} entries, got {len(called)}")
  for node, parent in enumerate(above):
    if not -1 <= parent < len(above):
      raise ValueError(f"parent {parent} of {called[node]!r} is no node")
  return build(called, [int(parent) for parent in above], classes)


def restrict(tree: ClassTree, classes: Sequence[str]) -> ClassTree:
  """Restricts a tree to some of its nodes, which become the classes in this order.

  Nodes without a chosen class at or below them are left out. The remaining nodes keep
  their parents, also where a parent has only one child left.

  Args:
    tree: a ClassTree.
    classes: names of nodes, each once. A name stands for the leaf of that name, or
      else for the inner node.

  Returns:
    ClassTree whose class c is `classes[c]`.

  Raises:
    TypeError: tree not a `ClassTree`, classes not names.
    ValueError: no class, a class that is no node, names two nodes or occurs twice.

  Source: none.

  Example:
    >>> tree = spherejax.hierarchy.from_mapping({"animal": ["cat", "dog"], "car": None})
    >>> spherejax.hierarchy.restrict(tree, ["dog"]).names
    ('root', 'animal', 'dog')
  """
  _checks.instance("tree", tree, ClassTree)
  _checks.texts("classes", classes)
  if not len(classes):
    raise ValueError("classes must hold a name, got none")
  chosen = _find(tree.names, tree.parents, classes)
  mask = np.any(below(tree.parents, np.asarray(chosen)), axis=0)
  number = np.cumsum(mask) - 1
  parents = tree.parents[mask]
  return _tree(
    [tree.names[node] for node in np.flatnonzero(mask)],
    np.where(parents < 0, -1, number[parents]),
    number[chosen],
    tree.lengths[mask],
  )


def as_leaves(tree: ClassTree) -> ClassTree:
  """Adds a leaf of its own for every class that is above another class.

  Losses over a tree need classes that are leaves. The new leaf has the name of its
  class, and an edge of length 1.

  Args:
    tree: a ClassTree.

  Returns:
    ClassTree with the same classes.

  Raises:
    TypeError: tree not a `ClassTree`.

  Source: none.

  Example:
    >>> tree = spherejax.hierarchy.from_paths(["furca", "furca/duplets"])
    >>> spherejax.hierarchy.as_leaves(tree).names
    ('root', 'furca', 'duplets', 'furca')
  """
  _checks.instance("tree", tree, ClassTree)
  names, parents = list(tree.names), [int(parent) for parent in tree.parents]
  lengths, classes = list(tree.lengths), tree.classes.copy()
  inner = set(parents)
  for label, node in enumerate(tree.classes):
    if int(node) in inner:
      classes[label] = len(names)
      names.append(tree.names[node])
      parents.append(int(node))
      lengths.append(1.0)
  return arrange(names, parents, classes, lengths)


def build(
  names: list[str],
  parents: list[int],
  classes: Sequence[str] | None,
  lengths: list[float] | None = None,
) -> ClassTree:
  """Builds a checked tree from nodes in any order; classes None takes the leaves."""
  if not names:
    raise ValueError("a tree must have a node, got none")
  inner = set(parents)
  leaves = [node for node in range(len(names)) if node not in inner]
  _check_shape(names, parents)
  for node in leaves:
    if not names[node]:
      raise ValueError(f"a leaf must have a name, got an empty one as node {node}")
  if classes is None:
    chosen = leaves
    visited = set()
    for node in leaves:
      if names[node] in visited:
        raise ValueError(f"leaves must have different names, got {names[node]!r} twice")
      visited.add(names[node])
  else:
    _checks.texts("classes", classes)
    chosen = _find(names, parents, classes)
    for node in sorted(set(leaves) - set(chosen)):
      raise ValueError(
        f"leaf {names[node]!r} must be a class, got {reprlib.repr(list(classes))}; "
        "to leave it out, read the tree without classes and `restrict` it"
      )
  return arrange(names, parents, chosen, lengths)


def _check_shape(names: Sequence[str], parents: Sequence[int]) -> None:
  """Raises unless there is one root, above all nodes."""
  roots = [names[node] for node, parent in enumerate(parents) if parent < 0]
  if len(roots) > 1:
    raise ValueError(f"a tree must have one root, got {roots[0]!r} and {roots[1]!r}")
  safe: set[int] = set()
  for start in range(len(names)):
    path: list[int] = []
    visited: set[int] = set()
    node = start
    while node >= 0 and node not in safe:
      if node in visited:
        cycle = [*path[path.index(node) :], node]
        way = " -> ".join(repr(names[v]) for v in cycle)
        raise ValueError(f"a tree must have no cycle, got {way}")
      path.append(node)
      visited.add(node)
      node = parents[node]
    safe |= visited


def _find(
  names: Sequence[str], parents: Sequence[int] | np.ndarray, classes: Sequence[str]
) -> list[int]:
  """Finds the node of each class; raises for a missing, ambiguous or repeated class."""
  inner = {int(parent) for parent in parents}
  nodes: dict[str, list[int]] = {}
  for node, name in enumerate(names):
    nodes.setdefault(name, []).append(node)
  chosen: list[int] = []
  labels: dict[str, int] = {}
  for label, name in enumerate(classes):
    if name in labels:
      raise ValueError(f"class {name!r} occurs twice, as {labels[name]} and {label}")
    labels[name] = label
    same = nodes.get(name, [])
    fitting = [node for node in same if node not in inner] or same
    if not fitting:
      raise ValueError(f"class {name!r} is no node of the tree")
    if len(fitting) > 1:
      raise ValueError(f"class {name!r} must name one node, got {len(fitting)}")
    chosen.append(fitting[0])
  return chosen


def arrange(
  names: Sequence[str],
  parents: Sequence[int],
  classes: Sequence[int] | np.ndarray,
  lengths: Sequence[float] | None,
) -> ClassTree:
  """Sorts the nodes of a tree by depth, otherwise in their order."""
  level = np.full(len(names), -1)
  for start in range(len(names)):
    path, node = [], start
    while node >= 0 and level[node] < 0:
      path.append(node)
      node = parents[node]
    base = -1 if node < 0 else level[node]
    for step, visited in enumerate(reversed(path), start=1):
      level[visited] = base + step
  order = np.argsort(level, kind="stable")
  place = np.empty_like(order)
  place[order] = np.arange(len(order))
  above = np.asarray(parents)[order]
  edges = np.ones(len(order)) if lengths is None else np.array(lengths, float)[order]
  edges[0] = 0
  return _tree(
    [names[int(node)] for node in order],
    np.where(above < 0, -1, place[above]),
    place[np.asarray(classes, int)],
    edges,
  )


def _tree(
  names: list[str], parents: np.ndarray, classes: np.ndarray, lengths: np.ndarray
) -> ClassTree:
  for array in (parents, classes, lengths):
    array.flags.writeable = False
  return ClassTree(tuple(names), parents, classes, lengths)


def below(parents: np.ndarray, chosen: np.ndarray) -> np.ndarray:
  """[chosen, nodes]: the node is the chosen one or above it."""
  mask = np.zeros((len(chosen), len(parents)), bool)
  mask[np.arange(len(chosen)), chosen] = True
  columns = mask.T.copy()  # one row per node: the loop reads and writes whole rows
  for node in range(len(parents) - 1, 0, -1):
    columns[parents[node]] |= columns[node]
  return columns.T.copy()
