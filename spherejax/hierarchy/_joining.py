"""Trees inferred from distances: neighbour joining and average linkage."""

import reprlib
from collections.abc import Sequence

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Real

from spherejax import _checks
from spherejax.hierarchy import _distances, _tree


def neighbor_joining(
  distances: Real[ArrayLike, "classes classes"], *, names: Sequence[str] | None = None
) -> _tree.ClassTree:
  """Unrooted tree of classes from their distances, by neighbour joining.

  Among the m remaining nodes, the two that are nearest to each other and farthest from
  all others become children of a new node k, until two are left:

      argmin_{i<j} (m - 2) d_ij - r_i - r_j,   r_i = sum_l d_il
      length_i = d_ij / 2 + (r_i - r_j) / (2 (m - 2)),   length_j = d_ij - length_i
      d_kl = (d_il + d_jl - d_ij) / 2

  If the distances come from a tree, its lengths are recovered exactly, and its edges
  are those of positive length in the result. Otherwise lengths may be negative; they
  are kept.

  Args:
    distances: [classes, classes], at least 0, symmetric, 0 on the diagonal.
    names: of the classes. None: "0", "1", ...

  Returns:
    ClassTree whose inner nodes have no names. The root is where the last nodes met and
    has no meaning: `splits` and `additive_distances` do not depend on it. Ties go to
    the lowest i, then j; the new node takes the place of i.

  Raises:
    TypeError: distances not numbers, names not text.
    ValueError: not a matrix of distances, the wrong number of names, or an empty one.

  Cost: O(classes^3) on the host.

  Source: Saitou and Nei 1987, "The neighbor-joining method", in the form of Studier
  and Keppler 1988.

  Example:
    >>> distances = jnp.array([[0, 3, 6, 6], [3, 0, 7, 7], [6, 7, 0, 4], [6, 7, 4, 0]])
    >>> tree = spherejax.hierarchy.neighbor_joining(distances, names=list("abcd"))
    >>> spherejax.hierarchy.to_newick(tree)
    '(c:2.0,d:2.0,(a:1.0,b:2.0):3.0);'
  """
  matrix = _distances.checked(distances)
  called = _names(names, len(matrix))
  size = len(matrix)
  nodes, parents = list(range(size)), [-1] * size
  lengths = [0.0] * size
  while len(nodes) > 2:
    m = len(nodes)
    total = matrix.sum(axis=1)
    score = (m - 2) * matrix
    score -= total[:, None] + total[None]  # symmetric to the last digit
    np.fill_diagonal(score, np.inf)
    i, j = divmod(int(score.argmin()), m)  # the first of equals, so i < j
    between = float(matrix[i, j])
    first = between / 2 + float(total[i] - total[j]) / (2 * (m - 2))
    for place, length in ((i, first), (j, between - first)):
      parents[nodes[place]], lengths[nodes[place]] = len(parents), length
    to_new = (matrix[i] + matrix[j] - between) / 2
    to_new[i] = 0
    matrix[i], matrix[:, i] = to_new, to_new
    matrix[j:-1] = matrix[j + 1 :]
    matrix[:, j:-1] = matrix[:, j + 1 :]
    matrix = matrix[:-1, :-1]
    nodes[i] = len(parents)
    del nodes[j]
    parents.append(-1)
    lengths.append(0.0)
  if len(nodes) == 2 and size == 2:
    parents, lengths = [2, 2, -1], [float(matrix[0, 1]) / 2] * 2 + [0.0]
  elif len(nodes) == 2:
    # The last new node is an inner node and becomes the root.
    end, root = sorted(nodes)
    parents[end], lengths[end] = root, float(matrix[0, 1])
  return _inferred(called, parents, lengths)


def upgma(
  distances: Real[ArrayLike, "classes classes"], *, names: Sequence[str] | None = None
) -> _tree.ClassTree:
  """Rooted tree of classes from their distances, by average linkage (UPGMA).

  The two groups with the smallest mean distance are joined, at half that distance above
  the classes. Every class is equally far from the root. The distances are recovered
  exactly only if they are an ultrametric.

  Args:
    distances: [classes, classes], at least 0, symmetric, 0 on the diagonal.
    names: of the classes. None: "0", "1", ...

  Returns:
    ClassTree whose inner nodes have no names.

  Raises:
    TypeError: distances not numbers, names not text.
    ValueError: not a matrix of distances, the wrong number of names, or an empty one.

  Cost: O(classes^2) on the host.

  Source: Sokal and Michener 1958, "A statistical method for evaluating systematic
  relationships".

  Example:
    >>> distances = jnp.array([[0, 2, 6], [2, 0, 8], [6, 8, 0]])
    >>> tree = spherejax.hierarchy.upgma(distances, names=list("abc"))
    >>> spherejax.hierarchy.to_newick(tree)
    '(c:3.5,(a:1.0,b:1.0):2.5);'
  """
  from scipy.cluster import hierarchy
  from scipy.spatial import distance

  matrix = _distances.checked(distances)
  called = _names(names, len(matrix))
  size = len(matrix)
  if size == 1:
    return _inferred(called, [-1], [0.0])
  merges = hierarchy.linkage(distance.squareform(matrix), method="average")
  parents, heights = [-1] * (2 * size - 1), np.zeros(2 * size - 1)
  for new, (first, second, mean, _) in enumerate(merges, start=size):
    parents[int(first)] = parents[int(second)] = new
    heights[new] = mean / 2
  lengths = [0.0 if p < 0 else heights[p] - heights[v] for v, p in enumerate(parents)]
  return _inferred(called, parents, lengths)


def _names(names: Sequence[str] | None, size: int) -> list[str]:
  if not size:
    raise ValueError("distances must have a class, got none")
  if names is not None:
    _checks.texts("names", names)
  called = [str(label) for label in range(size)] if names is None else list(names)
  if len(called) != size:
    raise ValueError(f"names must have {size} entries, got {len(called)}")
  if "" in called:
    raise ValueError(f"names must not be empty, got {reprlib.repr(called)}")
  return called


def _inferred(
  names: list[str], parents: Sequence[int], lengths: Sequence[float]
) -> _tree.ClassTree:
  inner = [""] * (len(parents) - len(names))
  return _tree.arrange([*names, *inner], parents, range(len(names)), lengths)
