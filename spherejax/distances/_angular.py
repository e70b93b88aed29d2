"""Dot products, cosines and angles, elementwise and for all pairs."""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from spherejax import _numerics
from spherejax.distances import _pairs
from spherejax.distances._pairs import Method


def dot(
  x: Float[ArrayLike, "*batch dim"], y: Float[ArrayLike, "*batch dim"]
) -> Float[Array, "*batch"]:
  """Dot product of matching vectors.

      <x, y>

  Args:
    x: [..., dim], floating.
    y: [..., dim], floating, of the shape of `x`.

  Returns:
    [...], dtype of the arguments.

  Raises:
    TypeError: an argument is not floating.
    ValueError: the shapes differ.

  Differentiable in: x, y.

  Source: textbook definition.

  Example:
    >>> spherejax.distances.dot(jnp.array([3.0, 0.0]), jnp.array([0.0, 4.0]))
    Array(0., dtype=float32)
  """
  x, y, dtype = _pairs.operands(x, y)
  return jnp.sum(x * y, axis=-1).astype(dtype)


def cosine(
  x: Float[ArrayLike, "*batch dim"], y: Float[ArrayLike, "*batch dim"]
) -> Float[Array, "*batch"]:
  """Cosine similarity of matching vectors.

      <x, y> / (|x| |y|),    0 where x or y is zero

  Args:
    x: [..., dim], floating.
    y: [..., dim], floating, of the shape of `x`.

  Returns:
    [...], dtype of the arguments, in [-1, 1] up to rounding (never clipped).

  Raises:
    TypeError: an argument is not floating.
    ValueError: the shapes differ.

  Differentiable in: x, y; derivative 0 through a zero vector.

  Source: textbook definition.

  Example:
    >>> spherejax.distances.cosine(jnp.array([3.0, 0.0]), jnp.array([0.0, 4.0]))
    Array(0., dtype=float32)
  """
  x, y, dtype = _pairs.operands(x, y)
  return jnp.sum(_numerics.normalize(x) * _numerics.normalize(y), axis=-1).astype(dtype)


def cosine_distance(
  x: Float[ArrayLike, "*batch dim"], y: Float[ArrayLike, "*batch dim"]
) -> Float[Array, "*batch"]:
  """Cosine distance, 1 minus the cosine similarity, of matching vectors.

      1 - <x, y> / (|x| |y|),    1 where x or y is zero

  Args:
    x: [..., dim], floating.
    y: [..., dim], floating, of the shape of `x`.

  Returns:
    [...], dtype of the arguments, in [0, 2] up to rounding.

  Raises:
    TypeError: an argument is not floating.
    ValueError: the shapes differ.

  Differentiable in: x, y; derivative 0 through a zero vector.

  Source: textbook definition.

  Example:
    >>> x = jnp.array([3.0, 0.0])
    >>> spherejax.distances.cosine_distance(x, jnp.array([0.0, 4.0]))
    Array(1., dtype=float32)
  """
  x, y, dtype = _pairs.operands(x, y)
  cosines = jnp.sum(_numerics.normalize(x) * _numerics.normalize(y), axis=-1)
  return (1 - cosines).astype(dtype)


def chordal(
  x: Float[ArrayLike, "*batch dim"], y: Float[ArrayLike, "*batch dim"]
) -> Float[Array, "*batch"]:
  """Euclidean distance of the normalised vectors.

      |x/|x| - y/|y|| = sqrt(2 - 2 cos) = 2 sin(angle / 2)

  Args:
    x: [..., dim], floating.
    y: [..., dim], floating, of the shape of `x`.

  Returns:
    [...], dtype of the arguments, in [0, 2].

  Raises:
    TypeError: an argument is not floating.
    ValueError: the shapes differ.

  Differentiable in: x, y; derivative 0 where the directions agree.

  Source: textbook definition.

  Example:
    >>> spherejax.distances.chordal(jnp.array([3.0, 0.0]), jnp.array([0.0, 4.0]))
    Array(1.4142135, dtype=float32)
  """
  x, y, dtype = _pairs.operands(x, y)
  return _numerics.norm(_numerics.normalize(x) - _numerics.normalize(y)).astype(dtype)


def angle(
  x: Float[ArrayLike, "*batch dim"], y: Float[ArrayLike, "*batch dim"]
) -> Float[Array, "*batch"]:
  """Angle between matching vectors.

      2 atan2(|u - v|, |u + v|),    u = x/|x|, v = y/|y|

  Exact near 0 and pi, unlike the arccos of a rounded cosine, which returns 0 at 1e-4
  radians in float32.

  Args:
    x: [..., dim], floating.
    y: [..., dim], floating, of the shape of `x`.

  Returns:
    [...], dtype of the arguments, radians in [0, pi]; pi/2 where x or y is zero.

  Raises:
    TypeError: an argument is not floating.
    ValueError: the shapes differ.

  Differentiable in: x, y; derivative 0 at the angles 0 and pi.

  Source: W. Kahan, "How futile are mindless assessments of roundoff", section 12.

  Example:
    >>> spherejax.distances.angle(jnp.array([3.0, 0.0]), jnp.array([0.0, 4.0]))
    Array(1.5707964, dtype=float32)
  """
  x, y, dtype = _pairs.operands(x, y)
  u, v = _numerics.normalize(x), _numerics.normalize(y)
  return _angle(_numerics.norm(u - v), _numerics.norm(u + v)).astype(dtype)


def _angle(difference: Array, total: Array) -> Array:
  """2 atan2(|u - v|, |u + v|); a right angle where both are 0 (two zero vectors)."""
  both_zero = (difference == 0) & (total == 0)
  return 2 * jnp.arctan2(
    jnp.where(both_zero, 1, difference), jnp.where(both_zero, 1, total)
  )


def pairwise_dot(
  x: Float[ArrayLike, "n dim"], y: Float[ArrayLike, "m dim"] | None = None
) -> Float[Array, "n m"]:
  """Dot products of all pairs of rows.

      S_ij = <x_i, y_j>

  Args:
    x: [n, dim], floating.
    y: [m, dim], floating. None compares `x` with itself and sets the diagonal to
      exactly |x_i|^2.

  Returns:
    [n, m], dtype of the arguments.

  Raises:
    TypeError: an argument is not floating.
    ValueError: x or y is not a matrix, or their row lengths differ.

  Differentiable in: x, y. Cost: O(n m dim) time.

  Source: textbook definition.

  Example:
    >>> spherejax.distances.pairwise_dot(jnp.array([[3.0, 0.0], [0.0, 4.0]]))
    Array([[ 9.,  0.],
           [ 0., 16.]], dtype=float32)
  """
  self_call = y is None
  x, y, dtype = _pairs.rows(x, y)
  products = _pairs.product(x, y)
  if self_call:
    products = _pairs.fill_diagonal(products, jnp.sum(x * x, axis=-1))
  return products.astype(dtype)


def pairwise_cosine(
  x: Float[ArrayLike, "n dim"], y: Float[ArrayLike, "m dim"] | None = None
) -> Float[Array, "n m"]:
  """Cosine similarities of all pairs of rows.

      S_ij = <x_i, y_j> / (|x_i| |y_j|),    0 where a row is zero

  Args:
    x: [n, dim], floating.
    y: [m, dim], floating. None compares `x` with itself and sets the diagonal to
      exactly 1 (0 for a zero row).

  Returns:
    [n, m], dtype of the arguments, in [-1, 1] up to rounding (never clipped).

  Raises:
    TypeError: an argument is not floating.
    ValueError: x or y is not a matrix, or their row lengths differ.

  Differentiable in: x, y; derivative 0 through a zero row. Cost: O(n m dim) time.

  Source: textbook definition.

  Example:
    >>> spherejax.distances.pairwise_cosine(jnp.array([[3.0, 0.0], [0.0, 4.0]]))
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
  """
  self_call = y is None
  x, y, dtype = _pairs.rows(x, y)
  u, v = _numerics.normalize(x), _numerics.normalize(y)
  cosines = _pairs.product(u, v)
  if self_call:
    cosines = _pairs.fill_diagonal(cosines, jnp.any(x != 0, axis=-1))
  return cosines.astype(dtype)


def pairwise_cosine_distance(
  x: Float[ArrayLike, "n dim"], y: Float[ArrayLike, "m dim"] | None = None
) -> Float[Array, "n m"]:
  """Cosine distance, 1 minus the cosine similarity, of all pairs of rows.

      1 - <x_i, y_j> / (|x_i| |y_j|),    1 where a row is zero

  Args:
    x: [n, dim], floating.
    y: [m, dim], floating. None compares `x` with itself and sets the diagonal to
      exactly 0 (1 for a zero row).

  Returns:
    [n, m], dtype of the arguments, in [0, 2] up to rounding.

  Raises:
    TypeError: an argument is not floating.
    ValueError: x or y is not a matrix, or their row lengths differ.

  Differentiable in: x, y; derivative 0 through a zero row. Cost: O(n m dim) time.

  Source: textbook definition.

  Example:
    >>> x = jnp.array([[3.0, 0.0], [0.0, 4.0]])
    >>> spherejax.distances.pairwise_cosine_distance(x)
    Array([[0., 1.],
           [1., 0.]], dtype=float32)
  """
  self_call = y is None
  x, y, dtype = _pairs.rows(x, y)
  cosines = pairwise_cosine(x) if self_call else pairwise_cosine(x, y)
  return (1 - cosines).astype(dtype)


def pairwise_chordal(
  x: Float[ArrayLike, "n dim"],
  y: Float[ArrayLike, "m dim"] | None = None,
  *,
  method: Method = "gram",
  block_size: int | None = None,
) -> Float[Array, "n m"]:
  """Euclidean distances of all pairs of normalised rows.

      |x_i/|x_i| - y_j/|y_j|| = sqrt(2 - 2 cos)

  Args:
    x: [n, dim], floating.
    y: [m, dim], floating. None compares `x` with itself and sets the diagonal to
      exactly 0.
    method: "gram" (one matrix product; distances of unit rows become 0 below
      sqrt((4 + sqrt(dim)) eps), in float32 1e-3 for short and 2e-3 for long rows) or
      "difference" (exact near zero, but many times slower). Static.
    block_size: static. Rows per block of "difference", whose memory is
      block_size x m x dim; None takes all rows at once.

  Returns:
    [n, m], dtype of the arguments, in [0, 2].

  Raises:
    TypeError: an argument is not floating.
    ValueError: x or y is not a matrix, their row lengths differ, an unknown
      method, or block_size below 1.

  Differentiable in: x, y; derivative 0 where the distance is 0. Cost: O(n m dim) time.

  Source: textbook definition.

  Example:
    >>> spherejax.distances.pairwise_chordal(jnp.array([[3.0, 0.0], [0.0, 4.0]]))
    Array([[0.       , 1.4142135],
           [1.4142135, 0.       ]], dtype=float32)
  """
  self_call = y is None
  x, y, dtype = _pairs.rows(x, y)
  u, v = _numerics.normalize(x), _numerics.normalize(y)
  squares = _pairs.squared_distances(u, v, method, block_size)
  squares = _pairs.fill_diagonal(squares, 0) if self_call else squares
  return _numerics.sqrt(squares).astype(dtype)


def pairwise_angle(
  x: Float[ArrayLike, "n dim"],
  y: Float[ArrayLike, "m dim"] | None = None,
  *,
  method: Method = "gram",
  block_size: int | None = None,
) -> Float[Array, "n m"]:
  """Angles between all pairs of rows.

      2 atan2(|u_i - v_j|, |u_i + v_j|),    u = x/|x|, v = y/|y|

  Args:
    x: [n, dim], floating.
    y: [m, dim], floating. None compares `x` with itself and sets the diagonal to
      exactly 0 (pi/2 for a zero row).
    method: "gram" (one matrix product; distances of unit rows become 0 below
      sqrt((4 + sqrt(dim)) eps), in float32 1e-3 for short and 2e-3 for long rows) or
      "difference" (exact near zero, but many times slower). Static.
    block_size: static. Rows per block of "difference", whose memory is
      block_size x m x dim; None takes all rows at once.

  Returns:
    [n, m], dtype of the arguments, radians in [0, pi]; pi/2 where a row is zero.

  Raises:
    TypeError: an argument is not floating.
    ValueError: x or y is not a matrix, their row lengths differ, an unknown
      method, or block_size below 1.

  Differentiable in: x, y; derivative 0 at the angles 0 and pi. Cost: O(n m dim) time.

  Source: W. Kahan, "How futile are mindless assessments of roundoff", section 12.

  Example:
    >>> spherejax.distances.pairwise_angle(jnp.array([[3.0, 0.0], [0.0, 4.0]]))
    Array([[0.       , 1.5707964],
           [1.5707964, 0.       ]], dtype=float32)
  """
  self_call = y is None
  x, y, dtype = _pairs.rows(x, y)
  u, v = _numerics.normalize(x), _numerics.normalize(y)
  squares, together = _pairs.unit_squares(u, v, method, block_size)
  squares = _pairs.fill_diagonal(squares, 0) if self_call else squares
  return _angle(_numerics.sqrt(squares), _numerics.sqrt(together)).astype(dtype)
