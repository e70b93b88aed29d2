"""Training points as sites, each a different point of one class, and their checks."""

import functools
import math
from typing import Any, Literal, NamedTuple

import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Int, Integer

from spherejax import _checks, _compiled, distances
from spherejax.distances._lp import Norm

Conflicts = Literal["error", "drop"]


class Sites(NamedTuple):
  """Result of `merge_sites`, as NumPy arrays."""

  points: Float[np.ndarray, "sites *shape"]
  """Different points, in the order of their first rows."""
  labels: Int[np.ndarray, " sites"]
  rows: Int[np.ndarray, " n"]
  """Site of each given point; -1 for a dropped point."""


def merge_sites(
  points: Float[ArrayLike, "n ..."],
  labels: Integer[ArrayLike, " n"],
  *,
  conflicts: Conflicts = "error",
) -> Sites:
  """Merges a training set into sites: equal points of one class become one site.

  Equal points of different classes have no cells, and no classifier is right at both.

  Args:
    points: [n, ...], floating, concrete.
    labels: [n], integer, concrete.
    conflicts: "error" raises for equal points of different classes, "drop" leaves all
      of them out.

  Returns:
    Sites(points, labels, rows); `rows` are the `own_index` of the given points.

  Raises:
    TypeError: points not floating, labels not integers.
    ValueError: shapes do not match, a point is not finite, or with "error" equal
      points of different classes, which are named.

  Differentiable in: nothing (runs on the host). Cost: O(n entries).

  Source: DIST III 1.1 (its data form a set, so points differ).

  Example:
    >>> x, y = np.array([[0.0], [1.0], [0.0]], np.float32), np.array([5, 6, 5])
    >>> spherejax.voronoi.merge_sites(x, y).rows
    array([0, 1, 0])
  """
  x, y = _checks.host("points", points), _checks.host("labels", labels)
  _checks.expect("points", x, "floating")
  _checks.batched("points", x)
  _checks.labels(y, x)
  _checks.one_of("conflicts", conflicts, Conflicts)
  _finite("points", x)
  first = _first_rows(x)
  wrong = y != y[first]
  if wrong.any() and conflicts == "error":
    row = int(np.argmax(wrong))
    raise ValueError(
      f"equal points must have one label, got {y[first[row]]} and {y[row]} in rows "
      f"{first[row]} and {row}"
    )
  dropped = np.isin(first, first[wrong])
  mask = (first == np.arange(len(x))) & ~dropped
  number = np.cumsum(mask) - 1
  return Sites(x[mask], y[mask], np.where(dropped, -1, number[first]))


def _finite(name: str, points: np.ndarray) -> None:
  if not np.isfinite(points).all():
    row = int(np.argmin(np.isfinite(points).reshape(len(points), -1).all(1)))
    value = points[row].ravel()[:8]
    raise ValueError(f"{name} must be finite, got {value} in row {row}")


def _first_rows(points: np.ndarray) -> np.ndarray:
  """First row [n] that equals each point, which may be its own row."""
  # 0 and -0 are the same place but differ in bytes.
  flat = points.reshape(len(points), math.prod(points.shape[1:]))
  flat = np.ascontiguousarray(flat + points.dtype.type(0))
  first_of: dict[bytes, int] = {}
  return np.array(
    [first_of.setdefault(row.tobytes(), i) for i, row in enumerate(flat)], np.int64
  )


def check_different(sites: ArrayLike, labels: ArrayLike | None) -> None:
  """Raises for equal sites that are not known to be of one class."""
  points = np.asarray(sites)
  _finite("sites", points)
  first = _first_rows(points)
  known = np.arange(len(points)) if labels is None else np.asarray(labels)
  wrong = known != known[first]
  if wrong.any():
    row = int(np.argmax(wrong))
    value = points[row].ravel()[:8]
    if labels is None:
      raise ValueError(
        f"sites must be different points, got {value} in rows {first[row]} and {row};"
        " merge_sites makes one of them"
      )
    raise ValueError(
      f"equal sites must have one label, got {known[first[row]]} and {known[row]} for"
      f" {value} in rows {first[row]} and {row}"
    )


def check(
  points: Array, own_index: Array, sites: Array, labels: Array | None, name: str
) -> None:
  """Raises for known operands that do not belong to each other."""
  for title, array in ((name, points), ("sites", sites)):
    _checks.expect(title, array, "floating")
    _checks.batched(title, array)
  _checks.expect("sites", sites, empty=False)
  _checks.shape("sites", sites, (len(sites), *points.shape[1:]), name)
  _checks.labels(own_index, points, "own_index")
  _checks.known_labels(own_index, len(sites), name="own_index")
  if labels is not None:
    _checks.labels(labels, sites, "site_labels")


def check_rows(x: ArrayLike, own_index: ArrayLike, sites: ArrayLike) -> None:
  """Raises for a row of x that is not its site."""
  index = np.asarray(own_index)
  same = np.asarray(sites)[index] == np.asarray(x)
  same = same.all(tuple(range(1, same.ndim)))
  if not same.all():
    row = int(np.argmin(same))
    raise ValueError(f"x must be the site of own_index, row {row} is not {index[row]}")


def check_finite_cells(
  norm: Norm,
  epsilon: ArrayLike,
  low: ArrayLike,
  high: ArrayLike,
  x: ArrayLike,
  own_index: ArrayLike,
  sites: ArrayLike,
  labels: ArrayLike | None,
) -> None:
  """Raises for a sample whose radius, box and cell are all infinite.

  In l1 and l-infinity finite cells are not recognised: every cell counts as infinite.
  """
  shape = np.shape(x)
  box = np.broadcast_to(np.isinf(np.subtract(high, low)), shape)
  asked = np.isinf(np.asarray(epsilon)) & box.any(tuple(range(1, len(shape))))
  if not asked.any():
    return
  points, known = (
    np.asarray(a, np.float64).reshape(-1, math.prod(shape[1:])) for a in (x, sites)
  )
  index = np.asarray(own_index)
  names = np.arange(len(known)) if labels is None else np.asarray(labels)
  for row in np.flatnonzero(asked):
    others = known[names != names[index[row]]] - points[row]
    if norm != "l2" or not _surround(others):
      what = f"an infinite one in row {row}" if norm == "l2" else norm
      raise ValueError(
        f"epsilon inf needs a finite box or finite cells of l2, got {what}"
      )


def _surround(vectors: np.ndarray) -> bool:
  """True if every half-space through 0 holds one of the vectors [k, n].

  By Stiemke's lemma this holds if they span the space and 0 is a sum of all of them
  with positive weights.
  """
  from scipy import optimize

  k, n = vectors.shape
  if k <= n or np.linalg.matrix_rank(vectors) < n:
    return False
  unit = vectors / np.abs(vectors).max(1, keepdims=True)
  solution = optimize.linprog(
    np.zeros(k), A_eq=unit.T, b_eq=np.zeros(n), bounds=(1, None), method="highs"
  )
  return solution.status == 0


def check_neighbours(nearest: Any, index: Array, count: int) -> None:
  """Raises for nearest sites that are not such of these points."""
  _checks.instance("nearest", nearest, distances.Neighbours)
  for name in ("distances", "indices"):
    part = _checks.array(f"nearest.{name}", getattr(nearest, name))
    _checks.expect(f"nearest.{name}", part, rank=2)
    _checks.shape(f"nearest.{name}", part, (len(index), part.shape[1]), "the points")
  _checks.shape("nearest.indices", nearest.indices, nearest.distances.shape)
  _checks.expect("nearest.indices", nearest.indices, "integer")
  check = functools.partial(_check_neighbours, count)
  _compiled.known(check, nearest.distances, nearest.indices, index)


def _check_neighbours(
  count: int, gaps: ArrayLike, indices: ArrayLike, index: ArrayLike
) -> None:
  gaps, indices, index = map(np.asarray, (gaps, indices, index))
  if np.isnan(gaps).any():
    raise ValueError("nearest.distances must be numbers, got nan")
  used = np.isfinite(gaps)
  outside = indices[used & ((indices < 0) | (indices >= count))]
  if outside.size:
    raise ValueError(f"nearest.indices must be in [0, {count}), got {outside[0]}")
  itself = (used & (indices == index[:, None])).any(axis=1)
  if itself.any():
    row = int(itself.argmax())
    raise ValueError(
      f"nearest must exclude the site of each point, got site {index[row]} for point "
      f"{row}; k_nearest(..., exclude=own_index) does"
    )
