"""Distances and similarities between classes, from a tree or from mistakes."""

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int, Real

from spherejax import _checks
from spherejax.hierarchy import _nodes, _tree


def path_distances(tree: _tree.ClassTree) -> Int[np.ndarray, "classes classes"]:
  """Number of edges on the path between two classes.

      D_ij = dep_i + dep_j + 2 - 2 (A A^T)_ij

  with A the `ancestors` and dep the depth.

  Args:
    tree: a ClassTree. Its lengths are ignored.

  Returns:
    [classes, classes], integer; 0 on the diagonal only. It is a metric.

  Raises:
    TypeError: tree not a `ClassTree`.

  Cost: O(classes^2 nodes).

  Source: DIST IV; Garnot and Landrieu 2021, "Leveraging class hierarchies with
  metric-guided prototype learning".

  Example:
    >>> tree = spherejax.hierarchy.from_mapping({"animal": ["cat", "dog"], "car": None})
    >>> spherejax.hierarchy.path_distances(tree)
    array([[0, 2, 3],
           [2, 0, 3],
           [3, 3, 0]])
  """
  above = _nodes.ancestors(tree).astype(np.float32)  # counts below 2^24 are exact
  shared = (above @ above.T).astype(int)
  depths = np.diagonal(shared)
  return depths[:, None] + depths[None] - 2 * shared


def additive_distances(tree: _tree.ClassTree) -> Float[np.ndarray, "classes classes"]:
  """Length of the path between two classes: the sum over its edges.

  Args:
    tree: a ClassTree, such as `neighbor_joining` makes.

  Returns:
    [classes, classes], float64.

  Raises:
    TypeError: tree not a `ClassTree`.

  Cost: O(classes^2 nodes).

  Source: Saitou and Nei 1987, "The neighbor-joining method".

  Example:
    >>> tree = spherejax.hierarchy.from_newick("((cat:1,dog:2):0.5,car:3);")
    >>> spherejax.hierarchy.additive_distances(tree)
    array([[0. , 3. , 4.5],
           [3. , 0. , 5.5],
           [4.5, 5.5, 0. ]])
  """
  above = _nodes.ancestors(tree).astype(float)
  return (above * tree.lengths[None]) @ (1 - above).T + (1 - above) @ (
    above * tree.lengths[None]
  ).T


def lca_heights(tree: _tree.ClassTree) -> Int[np.ndarray, "classes classes"]:
  """Height of the lowest common ancestor of two classes.

      H_ij = min {height_v : A_iv A_jv = 1},   H_ii = 0

  Args:
    tree: a ClassTree.

  Returns:
    [classes, classes], integer. It is an ultrametric.

  Raises:
    TypeError: tree not a `ClassTree`.

  Cost: the sum over the nodes of the squared number of classes below.

  Source: Bertinetto et al. 2020, "Making better mistakes", as the severity of a
  mistake; DIST 4.1.

  Example:
    >>> tree = spherejax.hierarchy.from_mapping({"animal": ["cat", "dog"], "car": None})
    >>> spherejax.hierarchy.lca_heights(tree)
    array([[0, 1, 2],
           [1, 0, 2],
           [2, 2, 0]])
  """
  height, above = _nodes.heights(tree), _nodes.ancestors(tree)
  matrix = np.zeros((len(tree.classes),) * 2, int)
  for node in range(len(height)):  # from the root down, so the lowest node writes last
    below = np.flatnonzero(above[:, node])
    matrix[np.ix_(below, below)] = height[node]
  np.fill_diagonal(matrix, 0)
  return matrix


def lca_distances(tree: _tree.ClassTree) -> Float[np.ndarray, "classes classes"]:
  """Height of the lowest common ancestor of two classes, as a share of the root's.

      d_ij = H_ij / height(root)

  1 minus this distance is a positive definite similarity with ones on its diagonal.

  Args:
    tree: a ClassTree.

  Returns:
    [classes, classes], float64, in [0, 1]; zeros for a tree of one node.

  Raises:
    TypeError: tree not a `ClassTree`.

  Cost: the sum over the nodes of the squared number of classes below.

  Source: Barz and Denzler 2019, "Hierarchy-based image embeddings for semantic image
  retrieval", eq. 1; DIST 4.1, which prints the shortest path as the height although the
  longest is needed.

  Example:
    >>> tree = spherejax.hierarchy.from_mapping({"animal": ["cat", "dog"], "car": None})
    >>> spherejax.hierarchy.lca_distances(tree)
    array([[0. , 0.5, 1. ],
           [0.5, 0. , 1. ],
           [1. , 1. , 0. ]])
  """
  return lca_heights(tree) / max(1, _nodes.heights(tree)[0])


def chordal_distances(
  distances: Real[ArrayLike, "classes classes"], *, beta: float = 1.0
) -> Float[np.ndarray, "classes classes"]:
  """Chordal distances: distances between classes mapped to chords of a sphere.

      t_ij = sqrt(2) d_ij / (beta + d_ij)      in [0, sqrt(2))

  The largest chord spans a right angle. The result is a metric whenever d is one.
  `prototypes.hierarchical_prototypes` finds points with these distances.

  Args:
    distances: [classes, classes], at least 0, such as `path_distances`.
    beta: positive. The distance that maps to half of the largest chord.

  Returns:
    [classes, classes], float64.

  Raises:
    TypeError: distances or beta not numbers.
    ValueError: not a square matrix of distances, or beta that is not positive.

  Source: DIST IV eq. 13, whose D_T has these entries.

  Example:
    >>> spherejax.hierarchy.chordal_distances(jnp.array([[0, 2], [2, 0]])).round(4)
    array([[0.    , 0.9428],
           [0.9428, 0.    ]])
  """
  _checks.positive("beta", beta)
  _checks.single("beta", beta)
  matrix = checked(distances)
  return np.sqrt(2) * matrix / (beta + matrix)


def chordal_similarities(
  distances: Real[ArrayLike, "classes classes"], *, beta: float = 1.0
) -> Float[np.ndarray, "classes classes"]:
  """Cosines between the points of the sphere at `chordal_distances`.

      s_ij = 1 - t_ij^2 / 2 = 1 - (d_ij / (beta + d_ij))^2      in (0, 1]

  Args:
    distances: [classes, classes], at least 0, such as `path_distances`.
    beta: positive. The distance whose similarity is 3/4.

  Returns:
    [classes, classes], float64.

  Raises:
    TypeError: distances or beta not numbers.
    ValueError: not a square matrix of distances, or beta that is not positive.

  Source: DIST IV eq. 14.

  Example:
    >>> spherejax.hierarchy.chordal_similarities(jnp.array([[0, 2], [2, 0]])).round(4)
    array([[1.    , 0.5556],
           [0.5556, 1.    ]])
  """
  _checks.positive("beta", beta)
  _checks.single("beta", beta)
  matrix = checked(distances)
  return 1 - (matrix / (beta + matrix)) ** 2


def confusion_distances(
  confusion: Real[ArrayLike, "classes predictions"],
) -> Float[np.ndarray, "classes classes"]:
  """Distances between classes, from the mistakes of a classifier.

      d_ij = sum_k |r_ik - r_jk|,   r_ik = n_ik / sum_l n_il

  Classes that are confused with the same classes are near. A class without examples has
  the uniform row.

  Args:
    confusion: [classes, predictions], at least 0: counts of the examples of each class
      by their predicted class.

  Returns:
    [classes, classes], float64, in [0, 2]; a tree may be inferred from it.

  Raises:
    TypeError: confusion not numbers.
    ValueError: a negative or infinite count.

  Source: Godbole 2002, "Exploiting confusion matrices for automatic generation of
  topic hierarchies"; DIST 4.1, which does not state the norm.

  Example:
    >>> spherejax.hierarchy.confusion_distances(jnp.array([[3, 1], [2, 2]]))
    array([[0. , 0.5],
           [0.5, 0. ]])
  """
  _checks.expect("confusion", _checks.host("confusion", confusion), "real")
  counts = np.asarray(confusion, float)
  _checks.expect("confusion", counts, rank=2, empty=False)
  wrong = counts[~((counts >= 0) & np.isfinite(counts))]
  if wrong.size:
    raise ValueError(f"confusion must be at least 0 and finite, got {wrong[0]:g}")
  total = counts.sum(axis=1, keepdims=True)
  uniform = np.full_like(counts, 1 / max(1, counts.shape[1]))
  rows = np.divide(counts, total, out=uniform, where=total > 0)
  return np.stack([np.abs(rows - row[None]).sum(axis=1) for row in rows])


def checked(distances: ArrayLike) -> np.ndarray:
  """Converts to float64; raises unless square, symmetric and 0 on the diagonal.

  Asymmetry from rounding in single precision is allowed, and averaged out.
  """
  _checks.expect("distances", _checks.host("distances", distances), "real")
  matrix = np.asarray(distances, float)
  _checks.expect("distances", matrix, rank=2)
  _checks.shape("distances", matrix, matrix.shape[:1] * 2, "its rows")
  wrong = matrix[~((matrix >= 0) & np.isfinite(matrix))]
  if wrong.size:
    raise ValueError(f"distances must be at least 0 and finite, got {wrong[0]:g}")
  slack = 1e-5 * matrix.max(initial=0)
  uneven = np.argwhere(np.abs(matrix - matrix.T) > slack)
  if uneven.size:
    i, j = uneven[0]
    raise ValueError(
      f"distances must be symmetric, got {matrix[i, j]:g} from {i} to {j} and "
      f"{matrix[j, i]:g} back"
    )
  inside = np.flatnonzero(np.diagonal(matrix) > slack)
  if inside.size:
    i = inside[0]
    raise ValueError(
      f"distances must be 0 on the diagonal, got {matrix[i, i]:g} at {i}"
    )
  even = (matrix + matrix.T) / 2
  np.fill_diagonal(even, 0)
  return even
