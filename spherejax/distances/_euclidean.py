"""Euclidean distances and their squares, elementwise and for all pairs."""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from spherejax import _numerics
from spherejax.distances import _pairs
from spherejax.distances._pairs import Method


def squared_euclidean(
  x: Float[ArrayLike, "*batch dim"], y: Float[ArrayLike, "*batch dim"]
) -> Float[Array, "*batch"]:
  """Squared Euclidean distance of matching vectors.

      |x - y|^2

  Args:
    x: [..., dim], floating.
    y: [..., dim], floating, of the shape of `x`.

  Returns:
    [...], dtype of the arguments; at least 0.

  Raises:
    TypeError: an argument is not floating.
    ValueError: the shapes differ.

  Differentiable in: x, y.

  Source: textbook definition.

  Example:
    >>> x = jnp.array([3.0, 0.0])
    >>> spherejax.distances.squared_euclidean(x, jnp.array([0.0, 4.0]))
    Array(25., dtype=float32)
  """
  x, y, dtype = _pairs.operands(x, y)
  return jnp.sum((x - y) ** 2, axis=-1).astype(dtype)


def euclidean(
  x: Float[ArrayLike, "*batch dim"], y: Float[ArrayLike, "*batch dim"]
) -> Float[Array, "*batch"]:
  """Euclidean distance of matching vectors.

      |x - y|

  Args:
    x: [..., dim], floating.
    y: [..., dim], floating, of the shape of `x`.

  Returns:
    [...], dtype of the arguments; at least 0.

  Raises:
    TypeError: an argument is not floating.
    ValueError: the shapes differ.

  Differentiable in: x, y; derivative 0 where x = y.

  Source: textbook definition.

  Example:
    >>> spherejax.distances.euclidean(jnp.array([3.0, 0.0]), jnp.array([0.0, 4.0]))
    Array(5., dtype=float32)
  """
  x, y, dtype = _pairs.operands(x, y)
  return _numerics.norm(x - y).astype(dtype)


def pairwise_squared_euclidean(
  x: Float[ArrayLike, "n dim"],
  y: Float[ArrayLike, "m dim"] | None = None,
  *,
  method: Method = "gram",
  block_size: int | None = None,
) -> Float[Array, "n m"]:
  """Squared Euclidean distances of all pairs of rows.

      D2_ij = |x_i - y_j|^2

  Args:
    x: [n, dim], floating.
    y: [m, dim], floating. None compares `x` with itself and sets the diagonal to
      exactly 0.
    method: "gram" (one matrix product; distances below sqrt((4 + sqrt(dim)) eps) |x|
      become 0, in float32 1e-3 |x| for short and 2e-3 |x| for long rows) or
      "difference" (exact near zero, but many times slower). Static.
    block_size: static. Rows per block of "difference", whose memory is
      block_size x m x dim; None takes all rows at once.

  Returns:
    [n, m], dtype of the arguments; at least 0.

  Raises:
    TypeError: an argument is not floating.
    ValueError: x or y is not a matrix, their row lengths differ, an unknown
      method, or block_size below 1.

  Differentiable in: x, y. Cost: O(n m dim) time.

  Source: textbook definition.

  Example:
    >>> x = jnp.array([[3.0, 0.0], [0.0, 4.0]])
    >>> spherejax.distances.pairwise_squared_euclidean(x)
    Array([[ 0., 25.],
           [25.,  0.]], dtype=float32)
  """
  self_call = y is None
  x, y, dtype = _pairs.rows(x, y)
  squares = _pairs.squared_distances(x, y, method, block_size)
  return (_pairs.fill_diagonal(squares, 0) if self_call else squares).astype(dtype)


def pairwise_euclidean(
  x: Float[ArrayLike, "n dim"],
  y: Float[ArrayLike, "m dim"] | None = None,
  *,
  method: Method = "gram",
  block_size: int | None = None,
) -> Float[Array, "n m"]:
  """Euclidean distances of all pairs of rows.

      D_ij = |x_i - y_j|

  Args:
    x: [n, dim], floating.
    y: [m, dim], floating. None compares `x` with itself and sets the diagonal to
      exactly 0.
    method: "gram" (one matrix product; distances below sqrt((4 + sqrt(dim)) eps) |x|
      become 0, in float32 1e-3 |x| for short and 2e-3 |x| for long rows) or
      "difference" (exact near zero, but many times slower). Static.
    block_size: static. Rows per block of "difference", whose memory is
      block_size x m x dim; None takes all rows at once.

  Returns:
    [n, m], dtype of the arguments; at least 0.

  Raises:
    TypeError: an argument is not floating.
    ValueError: x or y is not a matrix, their row lengths differ, an unknown
      method, or block_size below 1.

  Differentiable in: x, y; derivative 0 where the distance is 0. Cost: O(n m dim) time.

  Source: textbook definition.

  Example:
    >>> spherejax.distances.pairwise_euclidean(jnp.array([[3.0, 0.0], [0.0, 4.0]]))
    Array([[0., 5.],
           [5., 0.]], dtype=float32)
  """
  self_call = y is None
  x, y, dtype = _pairs.rows(x, y)
  matrix = _pairs.euclidean_distances(x, y, method, block_size)
  return (_pairs.fill_diagonal(matrix, 0) if self_call else matrix).astype(dtype)
