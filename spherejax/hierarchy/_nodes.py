"""Nodes of a class tree: what lies above and below them, and how deep they are."""

import numpy as np
from jaxtyping import Bool, Int

from spherejax import _checks
from spherejax.hierarchy._tree import ClassTree, below


def ancestors(tree: ClassTree) -> Bool[np.ndarray, "classes nodes"]:
  """Mask of the nodes that are a class or above it, the root included.

      A_cv = 1 if v is c or above c

  `losses.hierarchical_cross_entropy` and `losses.conditional_softmax` take it, once
  all classes are leaves (`as_leaves`).

  Args:
    tree: a ClassTree.

  Returns:
    [classes, nodes], boolean; columns in the order of `tree.names`.

  Raises:
    TypeError: tree not a `ClassTree`.

  Cost: O(classes nodes).

  Source: DIST 4.2; Bertinetto et al. 2020, "Making better mistakes".

  Example:
    >>> tree = spherejax.hierarchy.from_mapping({"animal": ["cat", "dog"], "car": None})
    >>> tree.class_names
    ('cat', 'dog', 'car')
    >>> spherejax.hierarchy.ancestors(tree).astype(int)
    array([[1, 1, 0, 1, 0],
           [1, 1, 0, 0, 1],
           [1, 0, 1, 0, 0]])
  """
  _checks.instance("tree", tree, ClassTree)
  return below(tree.parents, tree.classes)


def depths(tree: ClassTree) -> Int[np.ndarray, " nodes"]:
  """Number of edges from the root to each node.

  Args:
    tree: a ClassTree.

  Returns:
    [nodes], integer; 0 for the root. `depths(tree)[tree.classes]` are the classes'.

  Raises:
    TypeError: tree not a `ClassTree`.

  Source: DIST 4.2.

  Example:
    >>> tree = spherejax.hierarchy.from_mapping({"animal": ["cat", "dog"], "car": None})
    >>> spherejax.hierarchy.depths(tree)
    array([0, 1, 1, 2, 2])
  """
  _checks.instance("tree", tree, ClassTree)
  result = np.zeros(len(tree.parents), int)
  for node, parent in enumerate(tree.parents[1:], start=1):
    result[node] = result[parent] + 1
  return result


def heights(tree: ClassTree) -> Int[np.ndarray, " nodes"]:
  """Number of edges on the longest path from each node down to a leaf.

  Args:
    tree: a ClassTree.

  Returns:
    [nodes], integer; 0 for a leaf.

  Raises:
    TypeError: tree not a `ClassTree`.

  Source: Barz and Denzler 2019, "Hierarchy-based image embeddings for semantic image
  retrieval". DIST 4.1 prints the shortest path. With it, distances by heights violate
  the ultrametric inequality, and the root need not be the highest node.

  Example:
    >>> tree = spherejax.hierarchy.from_mapping({"animal": ["cat", "dog"], "car": None})
    >>> spherejax.hierarchy.heights(tree)
    array([2, 1, 0, 0, 0])
  """
  _checks.instance("tree", tree, ClassTree)
  result = np.zeros(len(tree.parents), int)
  for node in range(len(tree.parents) - 1, 0, -1):
    parent = tree.parents[node]
    result[parent] = max(result[parent], result[node] + 1)
  return result


def classes_below(tree: ClassTree, *names: str) -> Bool[np.ndarray, " classes"]:
  """Mask of the classes at or below the nodes of some names.

  Args:
    tree: a ClassTree.
    *names: of nodes; a name that occurs twice stands for both.

  Returns:
    [classes], boolean.

  Raises:
    TypeError: tree not a `ClassTree`.
    ValueError: a name that no node has.

  Source: none.

  Example:
    >>> tree = spherejax.hierarchy.from_mapping({"animal": ["cat", "dog"], "car": None})
    >>> spherejax.hierarchy.classes_below(tree, "animal")
    array([ True,  True, False])
  """
  _checks.instance("tree", tree, ClassTree)
  for name in names:
    if name not in tree.names:
      raise ValueError(f"node {name!r} is not in the tree")
  wanted = np.array([name in names for name in tree.names])
  return np.any(ancestors(tree)[:, wanted], axis=1)


def at_depth(tree: ClassTree, depth: int) -> Int[np.ndarray, " classes"]:
  """Ancestor of each class at a depth; the class itself if it lies higher.

  Classes with one ancestor form a coarse class.

  Args:
    tree: a ClassTree.
    depth: number of edges from the root, at least 0.

  Returns:
    [classes], integer, nodes. `np.unique(nodes, return_inverse=True)[1]` are coarse
    labels.

  Raises:
    TypeError: tree not a `ClassTree`, depth not an integer.
    ValueError: depth below 0.

  Cost: O(classes nodes).

  Source: none.

  Example:
    >>> tree = spherejax.hierarchy.from_mapping({"animal": ["cat", "dog"], "car": None})
    >>> [tree.names[node] for node in spherejax.hierarchy.at_depth(tree, 1)]
    ['animal', 'animal', 'car']
  """
  _checks.instance("tree", tree, ClassTree)
  _checks.count("depth", depth, 0)
  above = ancestors(tree) & (depths(tree) <= depth)
  # A node comes after its ancestors, so the last one is the deepest.
  return above.shape[1] - 1 - np.argmax(above[:, ::-1], axis=1)
