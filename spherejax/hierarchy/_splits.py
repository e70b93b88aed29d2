"""Agreement of two trees, by the bipartitions of the classes at their edges."""

import numpy as np

from spherejax import _checks
from spherejax.hierarchy import _nodes, _tree

Splits = frozenset[frozenset[int]]


def splits(tree: _tree.ClassTree, *, tol: float | None = None) -> Splits:
  """Splits of the classes by the tree's edges, with two or more classes on both sides.

  Args:
    tree: a ClassTree. The position of its root does not matter.
    tol: edges of at most this length are contracted first, so they split nothing.
      Consecutive edges with the same split, such as the two edges of a root with two
      children, count as one edge. None keeps all edges, also those of negative length.

  Returns:
    A frozenset with the side without class 0 of each split, as a frozenset of labels.

  Raises:
    TypeError: tree not a `ClassTree`, or tol not a static number.
    ValueError: tol not finite.

  Cost: O(classes nodes).

  Source: Robinson and Foulds 1981, "Comparison of phylogenetic trees".

  Example:
    >>> tree = spherejax.hierarchy.from_newick("((a,b),(c,d),e);")
    >>> sorted(sorted(side) for side in spherejax.hierarchy.splits(tree))
    [[2, 3], [2, 3, 4]]
  """
  if tol is not None:
    _checks.between("tol", tol)
    tol = _checks.static("tol", tol)
  below = _nodes.ancestors(tree).T[1:]
  sides = below ^ below[:, :1]
  if tol is not None and len(sides):
    edge = np.unique(sides, axis=0, return_inverse=True)[1].ravel()
    lengths = np.bincount(edge, weights=tree.lengths[1:])
    sides = sides[lengths[edge] > tol]
  size = sides.sum(axis=1)
  inner = (size >= 2) & (len(tree.classes) - size >= 2)
  return frozenset(frozenset(np.flatnonzero(row).tolist()) for row in sides[inner])


def robinson_foulds(first: Splits, second: Splits, *, normalize: bool = False) -> float:
  """Robinson-Foulds distance of two trees: number of splits that only one of them has.

      RF = |S1 ^ S2|,    normalised |S1 ^ S2| / (|S1| + |S2|)

  A tree from `neighbor_joining` has C - 3 splits; a tree of classes often has fewer,
  and then even the right tree is not at distance 0. Contract its short edges (`tol` of
  `splits`), or report `split_recall`.

  Args:
    first: `splits` of a tree.
    second: those of another tree of the same classes, labelled alike.
    normalize: divides by the number of splits of both. Static.

  Returns:
    At least 0; normalised in [0, 1], nan if neither tree has a split.

  Raises:
    TypeError: first or second not a set of splits, normalize not boolean.

  Source: Robinson and Foulds 1981, "Comparison of phylogenetic trees".

  Example:
    >>> given = spherejax.hierarchy.from_newick("((a,b),(c,d),e);")
    >>> other = spherejax.hierarchy.from_newick("((a,b),c,(d,e));")
    >>> spherejax.hierarchy.robinson_foulds(
    ...   spherejax.hierarchy.splits(given), spherejax.hierarchy.splits(other))
    2.0
  """
  _checks.flag("normalize", normalize)
  _checks.instance("first", first, frozenset)
  _checks.instance("second", second, frozenset)
  only = float(len(first ^ second))
  if not normalize:
    return only
  both = len(first) + len(second)
  return only / both if both else float("nan")


def split_recall(predicted: Splits, reference: Splits) -> float:
  """Share of the splits of a given tree that an inferred tree has.

      |S_predicted & S_reference| / |S_reference|

  Args:
    predicted: `splits` of the inferred tree.
    reference: those of the given tree of the same classes, labelled alike.

  Returns:
    In [0, 1]; nan if the given tree has no split.

  Raises:
    TypeError: predicted or reference not a set of splits.

  Source: Robinson and Foulds 1981, "Comparison of phylogenetic trees", for splits.

  Example:
    >>> given = spherejax.hierarchy.from_newick("((a,b),(c,d),e);")
    >>> other = spherejax.hierarchy.from_newick("((a,b),c,(d,e));")
    >>> spherejax.hierarchy.split_recall(
    ...   spherejax.hierarchy.splits(other), spherejax.hierarchy.splits(given))
    0.5
  """
  _checks.instance("predicted", predicted, frozenset)
  _checks.instance("reference", reference, frozenset)
  if not reference:
    return float("nan")
  return len(predicted & reference) / len(reference)
