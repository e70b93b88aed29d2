"""Prototypes on the sphere in closed form, as far apart as possible."""

import functools
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Key

from spherejax import _checks

Split = Literal["balanced", "one_large"]


def check_sizes(num_classes: int, dim: int) -> None:
  """Raises unless `num_classes` different unit vectors exist in `dim` dimensions."""
  _checks.count("num_classes", num_classes)
  _checks.count("dim", dim)
  if dim == 1 and num_classes > 2:
    raise ValueError(
      f"dim = 1 has room for at most 2 prototypes, got num_classes = {num_classes}"
    )


def simplex(
  key: Key[Array, ""] | None, num_classes: int, dim: int, *, rotate: bool = True
) -> Float[Array, "num_classes dim"]:
  """Simplex: prototypes at equal and largest possible distances.

      <p_i, p_j> = -1 / (C - 1) for i != j,    sum_i p_i = 0

  Let k = C - 1 and s_r^2 = (k - r)(k + 1) / (k (k - r + 1)). Coordinate r is 0 for the
  prototypes before r, s_r for prototype r, and -s_r / (k - r) for the prototypes after
  r. Other names are simplex equiangular tight frame and maximum class separation.

  Args:
    key: typed key of the orientation; ignored without `rotate`.
    num_classes: C. Static.
    dim: at least C - 1. Static.
    rotate: True turns the prototypes to a uniformly random orientation. False keeps the
      coordinates and sets the rest to 0. Static.

  Returns:
    [num_classes, dim], unit rows, float32 (float64 under x64). A unit vector for one
    class.

  Raises:
    TypeError: sizes that are not static integers, `rotate` without a key, rotate not
      boolean.
    ValueError: a size below 1, or dim below C - 1.

  Not differentiable. Cost: O(C^2 dim).

  Source: DL2P 2; Kasarla et al. 2022, "Maximum class separation as inductive bias in
  one matrix", whose recursion this closed form solves.

  Example:
    >>> spherejax.prototypes.simplex(None, 3, 2, rotate=False)
    Array([[ 1.       ,  0.       ],
           [-0.5      ,  0.8660254],
           [-0.5      , -0.8660254]], dtype=float32)
  """
  _checks.flag("rotate", rotate)
  check_sizes(num_classes, dim)
  if dim < num_classes - 1:
    raise ValueError(
      f"a simplex of num_classes = {num_classes} needs dim of at least "
      f"{num_classes - 1}, got {dim}"
    )
  return _place(_simplex(num_classes), dim, key, rotate)


def orthogonal_simplices(
  key: Key[Array, ""] | None,
  num_classes: int,
  dim: int,
  *,
  split: Split = "balanced",
  rotate: bool = True,
) -> Float[Array, "num_classes dim"]:
  """Simplices in orthogonal subspaces: prototypes at least 90 degrees apart.

  C - dim simplices share the coordinates; a simplex of d coordinates has d + 1
  prototypes. The largest cosine is 0 (within rounding), which is the least possible for
  C > dim + 1, and the prototypes add to 0. C = 2 dim gives the cross-polytope; C = dim
  + 1 gives the simplex.

  Args:
    key: typed key of the orientation; ignored without `rotate`.
    num_classes: C, from dim + 1 to 2 dim. Static.
    dim: length of a prototype. Static.
    split: "balanced" gives the simplices as equal sizes as possible. "one_large" makes
      pairs p, -p and one simplex of the rest: minimisers of `gaussian_potential` with t
      of 2 and above look like this. Static.
    rotate: True turns the prototypes to a uniformly random orientation. Static.

  Returns:
    [num_classes, dim], unit rows, float32 (float64 under x64). Prototypes of a simplex
    are adjacent rows.

  Raises:
    TypeError: sizes that are not static integers, `rotate` without a key, rotate not
      boolean.
    ValueError: num_classes outside [dim + 1, 2 dim], or an unknown `split`.

  Not differentiable. Cost: O(C dim^2).

  Source: Rankin 1955, "The closest packing of spherical caps in n dimensions".

  Example:
    >>> points = spherejax.prototypes.orthogonal_simplices(None, 5, 3, rotate=False)
    >>> jnp.round(points, 3) + 0
    Array([[ 1.   ,  0.   ,  0.   ],
           [-0.5  ,  0.866,  0.   ],
           [-0.5  , -0.866,  0.   ],
           [ 0.   ,  0.   ,  1.   ],
           [ 0.   ,  0.   , -1.   ]], dtype=float32)
  """
  _checks.flag("rotate", rotate)
  check_sizes(num_classes, dim)
  _checks.one_of("split", split, Split)
  if not dim < num_classes <= 2 * dim:
    raise ValueError(
      f"num_classes must be in [{dim + 1}, {2 * dim}] for dim = {dim}, "
      f"got {num_classes}"
    )
  blocks = num_classes - dim
  if split == "balanced":
    sizes = [dim // blocks + (block < dim % blocks) for block in range(blocks)]
  else:
    sizes = [dim - blocks + 1] + [1] * (blocks - 1)
  base, row, column = np.zeros((num_classes, dim)), 0, 0
  for size in sizes:
    base[row : row + size + 1, column : column + size] = _simplex(size + 1)
    row, column = row + size + 1, column + size
  return _place(base, dim, key, rotate)


def cross_polytope(
  key: Key[Array, ""] | None, num_classes: int, dim: int, *, rotate: bool = True
) -> Float[Array, "num_classes dim"]:
  """Cross-polytope: the first C of e_1, ..., e_dim, -e_1, ..., -e_dim.

  Orthonormal prototypes for C <= dim. For dim + 1 < C < 2 dim the largest cosine is 0,
  as with `orthogonal_simplices`, but the prototypes do not add to 0.

  Args:
    key: typed key of the orientation; ignored without `rotate`.
    num_classes: C, at most 2 dim. Static.
    dim: length of a prototype. Static.
    rotate: True turns the prototypes to a uniformly random orientation. Static.

  Returns:
    [num_classes, dim], unit rows, float32 (float64 under x64).

  Raises:
    TypeError: sizes that are not static integers, `rotate` without a key, rotate not
      boolean.
    ValueError: a size below 1, or num_classes above 2 dim.

  Not differentiable. Cost: O(C dim^2).

  Source: textbook definition.

  Example:
    >>> spherejax.prototypes.cross_polytope(None, 3, 2, rotate=False) + 0
    Array([[ 1.,  0.],
           [ 0.,  1.],
           [-1.,  0.]], dtype=float32)
  """
  _checks.flag("rotate", rotate)
  check_sizes(num_classes, dim)
  if num_classes > 2 * dim:
    raise ValueError(
      f"num_classes must be at most {2 * dim} for dim = {dim}, got {num_classes}"
    )
  base = np.concatenate([np.eye(dim), -np.eye(dim)])[:num_classes]
  return _place(base, dim, key, rotate)


def circle(
  key: Key[Array, ""] | None, num_classes: int, *, rotate: bool = True
) -> Float[Array, "num_classes 2"]:
  """Prototypes at equal angles on the circle, optimal in two dimensions.

      p_k = (cos(2 pi k / C), sin(2 pi k / C))

  Args:
    key: typed key of the orientation; ignored without `rotate`.
    num_classes: C. Static.
    rotate: True turns the prototypes, and reflects them or not, at random. Static.

  Returns:
    [num_classes, 2], unit rows, float32 (float64 under x64). Neighbours on the circle
    are adjacent rows.

  Raises:
    TypeError: a number that is not a static integer, `rotate` without a key, rotate not
      boolean.
    ValueError: num_classes below 1.

  Not differentiable. Cost: O(C).

  Source: textbook definition.

  Example:
    >>> jnp.round(spherejax.prototypes.circle(None, 4, rotate=False), 3) + 0
    Array([[ 1.,  0.],
           [ 0.,  1.],
           [-1.,  0.],
           [ 0., -1.]], dtype=float32)
  """
  _checks.flag("rotate", rotate)
  _checks.count("num_classes", num_classes)
  angles = 2 * np.pi * np.arange(num_classes) / num_classes
  return _place(np.stack([np.cos(angles), np.sin(angles)], axis=1), 2, key, rotate)


def _simplex(number: int) -> np.ndarray:
  """[number, number - 1] in float64; [[1]] for one point."""
  if number == 1:
    return np.ones((1, 1))
  last = number - 1
  row = np.arange(last)
  size = np.sqrt((last - row) * number / (last * (last - row + 1)))
  point = np.arange(number)[:, None]
  after = np.where(point > row[None], (-size / (last - row))[None], 0)
  return np.where(point == row[None], size[None], after)


def _place(
  base: np.ndarray, dim: int, key: Key[Array, ""] | None, rotate: bool
) -> Array:
  """Places rows of length at most `dim` in `dim` coordinates, turned at random."""
  if key is not None:
    _checks.key("key", key)
  if not rotate:
    return jnp.asarray(np.pad(base, ((0, 0), (0, dim - base.shape[1]))))
  if key is None:
    raise TypeError("key must be a typed key to rotate, got None")
  return _turn(jnp.asarray(base), key, dim)


@functools.partial(jax.jit, static_argnums=2)
def _turn(base: Array, key: Array, dim: int) -> Array:
  """Turns the rows into a uniform (Haar) frame of `dim` coordinates.

  Column i of the frame is a uniform direction orthogonal to the columns before it: the
  first i reflections are applied to a uniform direction in the coordinates from i on
  (Stewart 1980). This avoids a factorisation, whose threads wait for each other on a
  busy CPU.
  """
  width = base.shape[1]
  draws = jax.random.normal(key, (width, dim), base.dtype)
  draws = jnp.triu(draws)
  first = jnp.diagonal(draws)
  sign = jnp.where(first < 0, -1, 1).astype(base.dtype)
  lengths = jnp.linalg.norm(draws, axis=1)
  column = jnp.arange(dim)[None] == jnp.arange(width)[:, None]
  mirrors = draws + jnp.where(column, (sign * lengths)[:, None], 0)
  mirrors /= jnp.linalg.norm(mirrors, axis=1, keepdims=True)

  def reflect(rows: Array, mirror: Array) -> tuple[Array, None]:
    along = jnp.sum(rows * mirror[None], axis=1, keepdims=True)
    return rows - 2 * along * mirror[None], None

  start = jnp.pad(-sign[None] * base, ((0, 0), (0, dim - width)))
  rows, _ = jax.lax.scan(reflect, start, mirrors, reverse=True)
  return rows / jnp.linalg.norm(rows, axis=1, keepdims=True)
