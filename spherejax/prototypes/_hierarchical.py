"""Fixed prototypes from similarities between classes, such as a tree's."""

from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Key, Real

from spherejax import _checks, solvers

Method = Literal["cholesky", "spectral", "classical", "stress"]


class HierarchicalPrototypes(NamedTuple):
  """Result of `hierarchical_prototypes`."""

  prototypes: Float[Array, "classes dim"]
  """Rows of length 1, except for "classical"."""
  stress: Float[Array, ""]
  """|D_W - D|_F / |D|_F, relative error of the distances."""
  converged: Bool[Array, ""]
  """Convergence of `solvers.sphere_mds`; True for the other methods."""


def hierarchical_prototypes(
  similarities: Real[ArrayLike, "classes classes"],
  dim: int,
  *,
  method: Method = "stress",
  key: Key[ArrayLike, ""] | None = None,
  steps: int = 1000,
  learning_rate: float = 1e-3,
) -> HierarchicalPrototypes:
  """Prototypes whose cosines match given similarities S between the classes.

      "cholesky"    rows of L, S = L L^T: exact; S positive definite, dim >= classes
      "spectral"    rows of Q sqrt(E) for the largest eigenvalues E of S, normalised
      "classical"   like "spectral" for -J D^2 J / 2, D^2 = 2 - 2 S, J centring; off
                    the sphere
      "stress"      least normalised stress by `solvers.sphere_mds`

  "stress" from random points is the paper's method; "cholesky" gives at once the exact
  solution that "stress" approximates. With fewer dimensions than classes, "stress"
  comes nearest to the distances themselves. "spectral" keeps their order better, but
  merges classes that only the dropped eigenvectors tell apart: siblings, in a tree.

  Args:
    similarities: [classes, classes], in [-1, 1], symmetric, 1 on the diagonal:
      `hierarchy.chordal_similarities`, or one minus `hierarchy.lca_distances`. Host
      values, not traced.
    dim: static. Length of the prototypes; components that are not needed are 0.
    method: one of the four above. Static.
    key: a typed key, for "stress" only.
    steps: of "stress".
    learning_rate: of "stress".

  Returns:
    HierarchicalPrototypes(prototypes, stress, converged), in the default type. Keep the
    prototypes fixed while a network learns to reach them.

  Raises:
    ValueError: not a matrix of cosines; "cholesky" with fewer dimensions than classes
      or a matrix that is not positive definite; "spectral" that leaves a class at the
      origin; "stress" without a key; an unknown method.
    TypeError: dim or steps not static integers.

  Differentiable in: nothing. Cost: O(classes^3) on the host; "stress" O(steps
  classes^2 dim).

  Source: DIST IV eq. 13 ("stress"); Barz and Denzler 2019, "Hierarchy-based image
  embeddings for semantic image retrieval" ("cholesky"); Torgerson 1952,
  "Multidimensional scaling" ("classical").

  Example:
    >>> tree = spherejax.hierarchy.from_mapping({"animal": ["cat", "dog"], "car": None})
    >>> similarities = 1 - spherejax.hierarchy.lca_distances(tree)
    >>> found = spherejax.prototypes.hierarchical_prototypes(
    ...   similarities, 3, method="cholesky")
    >>> found.prototypes
    Array([[1.       , 0.       , 0.       ],
           [0.5      , 0.8660254, 0.       ],
           [0.       , 0.       , 1.       ]], dtype=float32)
  """
  _checks.count("steps", steps)
  _checks.positive("learning_rate", learning_rate)
  if key is not None:
    _checks.key("key", key)
  cosines = _cosines(similarities)
  _checks.count("dim", dim)
  _checks.one_of("method", method, Method)
  chords = np.sqrt(2 - 2 * cosines)
  if method == "stress":
    if key is None:
      raise ValueError('method "stress" needs a key, got None')
    solution = solvers.sphere_mds(
      jnp.asarray(chords, jnp.result_type(float)),
      dim,
      key=key,
      steps=steps,
      learning_rate=learning_rate,
    )
    return HierarchicalPrototypes(solution.points, solution.stress, solution.converged)
  if method == "cholesky":
    points = _cholesky(cosines, dim)
  elif method == "spectral":
    points = _principal(cosines, dim)
    size = np.linalg.norm(points, axis=1, keepdims=True)
    lost = np.flatnonzero(size[:, 0] < 1e-6)
    if lost.size:
      raise ValueError(
        f'method "spectral" leaves class {lost[0]} at the origin in {dim} dimensions; '
        'use more, or "stress"'
      )
    points /= size
  else:
    centre = np.eye(len(chords)) - 1 / len(chords)
    points = _principal(-centre @ chords**2 @ centre / 2, dim)
  points = np.pad(points, ((0, 0), (0, dim - points.shape[1])))
  square = (points**2).sum(axis=1)
  reached = np.sqrt(
    np.maximum(square[:, None] + square[None] - 2 * points @ points.T, 0)
  )
  np.fill_diagonal(reached, 0)
  size = np.linalg.norm(chords)
  stress = np.linalg.norm(reached - chords) / size if size else 0.0
  dtype = jnp.result_type(float)
  return HierarchicalPrototypes(
    jnp.asarray(points, dtype), jnp.asarray(stress, dtype), jnp.asarray(True)
  )


def _cosines(similarities: ArrayLike) -> np.ndarray:
  """Checked matrix in float64; the asymmetry of rounded entries is averaged out."""
  matrix = _checks.numbers_of("similarities", similarities)
  _checks.expect("similarities", matrix, rank=2, empty=False)
  _checks.shape("similarities", matrix, matrix.shape[:1] * 2, "its rows")
  wrong = matrix[~(np.abs(matrix) <= 1 + 1e-5)]
  if wrong.size:
    raise ValueError(f"similarities must be in [-1, 1], got {wrong[0]:g}")
  if np.abs(matrix - matrix.T).max() > 1e-5:
    raise ValueError("similarities must be symmetric")
  diagonal = np.diagonal(matrix)
  if (np.abs(diagonal - 1) > 1e-5).any():
    raise ValueError(f"similarities must be 1 on the diagonal, got {diagonal.min():g}")
  cosines = np.clip((matrix + matrix.T) / 2, -1, 1)
  np.fill_diagonal(cosines, 1)
  return cosines


def _cholesky(cosines: np.ndarray, dim: int) -> np.ndarray:
  if dim < len(cosines):
    raise ValueError(
      f'method "cholesky" needs as many dimensions as the {len(cosines)} classes, got '
      f'{dim}; use "stress"'
    )
  least = np.linalg.eigvalsh(cosines)[0]
  if least <= 1e-12:
    raise ValueError(
      f"similarities must be positive definite, got the eigenvalue {least:.3g}; use "
      'method "stress"'
    )
  return np.linalg.cholesky(cosines)


def _principal(matrix: np.ndarray, dim: int) -> np.ndarray:
  """[classes, min(dim, classes)]: eigenvectors times roots, largest first."""
  values, vectors = np.linalg.eigh(matrix)
  values, vectors = values[::-1][:dim], vectors[:, ::-1][:, :dim]
  # The sign of an eigenvector is arbitrary: its largest entry is made positive.
  largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=0)[None], axis=0)
  return vectors * np.where(largest < 0, -1, 1) * np.sqrt(np.maximum(values, 0))[None]
