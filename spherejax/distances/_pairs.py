"""Shared parts of the pairwise forms: checks, types, the diagonal, row blocks."""

from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from spherejax import _checks, _numerics

Method = Literal["gram", "difference"]


def operands(
  x: ArrayLike, y: ArrayLike, names: tuple[str, str] = ("x", "y")
) -> tuple[Array, Array, jnp.dtype]:
  """Operands of an elementwise form in their computing type, and the result's type."""
  x, y = (_checks.array(*pair) for pair in zip(names, (x, y), strict=True))
  for name, array in zip(names, (x, y), strict=True):
    _checks.expect(name, array, "floating")
    if array.ndim == 0:
      raise ValueError(f"{name} must have a last axis of components, got shape ()")
  if x.shape != y.shape:
    both = " and ".join(names)
    raise ValueError(f"{both} must have one shape, got {x.shape} and {y.shape}")
  dtype = jnp.result_type(x, y)
  wide = _numerics.compute_dtype(dtype)
  return x.astype(wide), y.astype(wide), dtype


def rows(
  x: ArrayLike, y: ArrayLike | None, names: tuple[str, str] = ("x", "y")
) -> tuple[Array, Array, jnp.dtype]:
  """Rows of x and y in their computing type, and the type of the result."""
  x = _checks.array(names[0], x)
  y = x if y is None else _checks.array(names[1], y)
  for name, array in zip(names, (x, y), strict=True):
    _checks.expect(name, array, "floating", rank=2)
  if x.shape[1] != y.shape[1]:
    both, shapes = " and ".join(names), f"{x.shape} and {y.shape}"
    raise ValueError(f"{both} must have rows of one length, got shapes {shapes}")
  dtype = jnp.result_type(x, y)
  wide = _numerics.compute_dtype(dtype)
  return x.astype(wide), y.astype(wide), dtype


def product(x: Array, y: Array) -> Array:
  """Product x y^T at full precision: [n, d], [m, d] -> [n, m]."""
  return _numerics.product(x, y.T)


def fill_diagonal(matrix: Array, value: Array | float | int) -> Array:
  """Puts `value` (a scalar, or an entry per row) on the diagonal of a square matrix."""
  count = matrix.shape[0]
  on_diagonal = jnp.eye(count, dtype=bool)
  column = jnp.broadcast_to(jnp.asarray(value, matrix.dtype), (count,))[:, None]
  return jnp.where(on_diagonal, column, matrix)


def _squared_norms(rows: Array) -> Array:
  norms = jnp.sum(rows**2, axis=-1)
  # Never negative. The maximum only keeps XLA on a CPU from merging the reduction with
  # later operations into a kernel that writes [n, m] sums of norms to memory.
  return _numerics.keep(norms, ~(norms < 0))


def squared_distances(
  x: Array, y: Array, method: Method, block_size: int | None
) -> Array:
  """|x_i - y_j|^2, from the matrix product or from explicit differences."""
  power = _numerics.shrinking(x, y)
  grow = 1 / power  # XLA would merge two divisions into one, by a square that may be 0
  return _squares(x * power, y * power, method, block_size) * grow * grow


def euclidean_distances(
  x: Array, y: Array, method: Method, block_size: int | None
) -> Array:
  """|x_i - y_j|, also where the square is infinite."""
  power = _numerics.shrinking(x, y, grow=True)
  squares = _squares(x * power, y * power, method, block_size)
  return _numerics.sqrt(squares) / power


def _check(method: Method, block_size: int | None) -> None:
  _checks.one_of("method", method, Method)
  if block_size is not None:
    _checks.count("block_size", block_size)


def _squares(x: Array, y: Array, method: Method, block_size: int | None) -> Array:
  _check(method, block_size)
  if method == "gram":
    norms = _squared_norms(x)[:, None] + _squared_norms(y)[None]
    return _without_noise(norms - 2 * product(x, y), norms, x.shape[1])

  def from_row(row: Array) -> Array:
    return jnp.sum((row[None] - y) ** 2, axis=-1)

  if block_size is None:
    return jax.vmap(from_row)(x)
  return jax.lax.map(from_row, x, batch_size=min(block_size, max(x.shape[0], 1)))


def _without_noise(squares: Array, norms: Array, dim: int) -> Array:
  """Squares, 0 where rounding the norms' sum may have left no digit right.

  Such rows count as coincident, so that duplicates have distance 0 and gradient 0 in
  whatever order the product is summed.
  """
  noise = _numerics.rounding(dim, squares.dtype) * norms
  # NaN stays NaN, and inf inf.
  return _numerics.keep(squares, ~((squares <= noise) & (noise < jnp.inf)))


def unit_squares(
  u: Array, v: Array, method: Method, block_size: int | None
) -> tuple[Array, Array]:
  """|u_i - v_j|^2 and |u_i + v_j|^2 of rows of length 1 or 0."""
  _check(method, block_size)
  if method != "gram":
    return _squares(u, v, method, block_size), _squares(u, -v, method, block_size)
  norms = _squared_norms(u)[:, None] + _squared_norms(v)[None]
  cosines, dim = product(u, v), u.shape[1]
  minus, plus = norms - 2 * cosines, norms + 2 * cosines
  return _without_noise(minus, norms, dim), _without_noise(plus, norms, dim)
