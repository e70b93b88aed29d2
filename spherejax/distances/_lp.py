"""Distances in the norms l1, l2 and l-infinity, and nearest points by these norms."""

import functools
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Int, Integer

from spherejax import _checks, _compiled, _numerics
from spherejax.distances import _order, _pairs, _split

Norm = Literal["linf", "l2", "l1"]


class Neighbours(NamedTuple):
  """Result of `k_nearest`."""

  indices: Int[Array, "queries k"]
  """Rows of the references, nearest first, ties to the lowest."""
  distances: Float[Array, "queries k"]
  """From differences; inf for references that are left out or not finite."""


def lp_norm(x: Float[ArrayLike, "*batch dim"], *, norm: Norm) -> Float[Array, "*batch"]:
  """Norm of vectors: l1, l2 or l-infinity.

      (sum_i |x_i|^p)^(1/p),    max_i |x_i| for p = inf

  Args:
    x: [..., dim], floating.
    norm: "linf", "l2" or "l1". Static.

  Returns:
    [...], dtype of `x`.

  Raises:
    TypeError: x is not floating.
    ValueError: x has no axis, or an unknown norm.

  Differentiable in: x; derivative 0 at 0.

  Source: DIST chapter 1.

  Example:
    >>> spherejax.distances.lp_norm(jnp.array([3.0, -4.0]), norm="l1")
    Array(7., dtype=float32)
  """
  _checks.one_of("norm", norm, Norm)
  x = _checks.array("x", x)
  x, _, dtype = _pairs.operands(x, x)
  return _norm(x, norm).astype(dtype)


def _norm(x: Array, norm: Norm) -> Array:
  if norm == "l2":
    return _numerics.norm(x, -1)
  if norm == "l1":
    return jnp.sum(jnp.abs(jnp.where(x == 0, 0, x)), -1)  # derivative 0 at 0
  return _largest_size(x)


@jax.custom_jvp
def _largest_size(x: Array) -> Array:
  """Largest |x_i| of the last axis; the first of a tie has the derivative, 0 at 0."""
  return jnp.max(jnp.abs(x), -1, initial=0)


@_largest_size.defjvp
def _(primals, tangents):
  (x,), (dx,) = primals, tangents
  if not x.shape[-1]:
    return _largest_size(x), jnp.zeros(x.shape[:-1], x.dtype)
  # Only the derivative searches for the index, which is slower than the maximum.
  place = jnp.argmax(jnp.abs(x), -1, keepdims=True)
  signs, moves = (jnp.take_along_axis(v, place, -1)[..., 0] for v in (jnp.sign(x), dx))
  return _largest_size(x), signs * moves


def pairwise_lp(
  x: Float[ArrayLike, "n dim"],
  y: Float[ArrayLike, "m dim"] | None = None,
  *,
  norm: Norm,
  block_size: int = 2,
) -> Float[Array, "n m"]:
  """Distances of all pairs of rows in the l1, l2 or l-infinity norm, by differences.

      D_ij = ||x_i - y_j||_p

  For l2, `pairwise_euclidean` is many times faster, but rounds small distances.

  Args:
    x: [n, dim], floating.
    y: [m, dim], floating. None compares `x` with itself.
    norm: "linf", "l2" or "l1". Static.
    block_size: static. Rows of x at once; few, so that their differences stay in the
      cache.

  Returns:
    [n, m], dtype of the arguments; exactly 0 for equal rows.

  Raises:
    TypeError: an argument is not floating.
    ValueError: x or y is not a matrix, their row lengths differ, an unknown norm, or
      block_size below 1.

  Differentiable in: x, y; derivative 0 where the distance is 0. Cost: O(n m dim) time,
  without matrix products.

  Source: DIST chapter 1.

  Example:
    >>> x = jnp.array([[3.0, 0.0], [0.0, 4.0]])
    >>> spherejax.distances.pairwise_lp(x, norm="l1")
    Array([[0., 7.],
           [7., 0.]], dtype=float32)
  """
  _checks.one_of("norm", norm, Norm)
  _checks.count("block_size", block_size)
  x, y, dtype = _pairs.rows(x, y)
  distances = jax.lax.map(
    # Differences are computed again for the derivative: they take `dim` times the
    # memory.
    jax.checkpoint(lambda row: _norm(row[None] - y, norm)),
    x,
    batch_size=max(1, min(block_size, len(x))),
  )
  return distances.astype(dtype)


def k_nearest(
  queries: Float[ArrayLike, "queries dim"],
  references: Float[ArrayLike, "references dim"],
  *,
  k: int,
  norm: Norm = "l2",
  exclude: Integer[ArrayLike, " queries"] | None = None,
  apart: tuple[Integer[ArrayLike, " queries"], Integer[ArrayLike, " references"]]
  | None = None,
  block_size: int = 128,
) -> Neighbours:
  """Finds the k nearest references of each query and their distances, by blocks.

      k smallest of ||x_i - y_j||_p over j,    in the order of (distance, j)

  For l2 a matrix product selects a few more than k references, which float64
  differences then put in order. Where rounding of the product could hide a nearer
  reference, all references of the query are compared by differences. The order follows
  the distances before they are rounded to float32. For l1 and l-infinity all distances
  come from differences in the dtype of the points, and determine the order.

  Args:
    queries: [queries, dim], floating.
    references: [references, dim], floating. Rows that are not finite rank last. For l2
      they may be split over devices by a `jax.NamedSharding` of a mesh with automatic
      axes; each device searches its own rows.
    k: static. References returned for each query.
    norm: "linf", "l2" or "l1". Static.
    exclude: [queries], integer: a reference that the query leaves out, such as itself,
      or -1. None leaves out none.
    apart: (labels of the queries, labels of the references), integers: a query leaves
      out the references of its own label. None leaves out none.
    block_size: static. Queries at once; memory is block_size x references.

  Returns:
    Neighbours(indices, distances).

  Raises:
    TypeError: points not floating, `exclude` or `apart` not integers.
    ValueError: shapes do not match, an unknown norm, k above the number of references,
      or references that are split over two axes of devices, or along their columns.

  Differentiable in: nothing. Cost: O(queries references dim) time; for l2, dozens of
  times as much for a query whose k-th neighbour has 16 rivals within rounding.

  Source: DIST III 2 (the sites that bound a Voronoi cell).

  Example:
    >>> x = jnp.array([[0.0], [1.0], [3.0]])
    >>> spherejax.distances.k_nearest(x, x, k=1, exclude=jnp.arange(3))
    Neighbours(indices=Array([[1], [0], [1]], dtype=int32),
      distances=Array([[1.], [1.], [2.]], dtype=float32))
  """
  _checks.one_of("norm", norm, Norm)
  _checks.count("k", k)
  _checks.count("block_size", block_size)
  sharding = _compiled.peek(_split.over, "references", references)
  references = _checks.array(
    "references", references
  )  # None would mean the queries themselves
  wide, known, dtype = _pairs.rows(queries, references, ("queries", "references"))
  if k > len(known):
    raise ValueError(f"k must be at most the {len(known)} references, got {k}")
  left_out = (
    jnp.full(len(wide), -1) if exclude is None else _checks.integers("exclude", exclude)
  )
  _checks.labels(left_out, wide, "exclude")
  query_names, reference_names = (None, None)
  if apart is not None:
    first, second = _checks.pair("apart", apart)
    query_names, reference_names = _checks.names(
      ("apart[0]", first), ("apart[1]", second)
    )
    _checks.labels(query_names, wide, "apart[0]")
    _checks.labels(reference_names, known, "apart[1]")
  block_size = max(1, min(block_size, len(wide)))
  neighbours = _k_nearest(
    wide,
    known,
    left_out,
    query_names,
    reference_names,
    k=k,
    norm=norm,
    block_size=block_size,
    sharding=sharding,
  )
  return Neighbours(neighbours.indices, neighbours.distances.astype(dtype))


@functools.partial(jax.jit, static_argnames=("k", "norm", "block_size", "sharding"))
def _k_nearest(
  queries: Array,
  references: Array,
  left_out: Array,
  query_names: Array | None,
  reference_names: Array | None,
  *,
  k: int,
  norm: Norm,
  block_size: int,
  sharding: jax.NamedSharding | None,
) -> Neighbours:
  columns = jnp.arange(len(references), dtype=jnp.int32)

  def keys_of(
    query: Array,
    rows: Array,
    columns: Array,
    left_out: Array,
    query_names: Array | None,
  ) -> Array:
    keys = _norm(query[None] - rows, norm)
    banned = columns == left_out
    if reference_names is not None:
      banned |= reference_names[columns] == query_names
    return jnp.where(banned | jnp.isnan(keys), jnp.inf, keys)

  if norm == "l2":
    if sharding is None:
      search = _order.nearest
    else:
      search = functools.partial(_split.nearest, sharding=sharding)
    indices = search(
      queries,
      references,
      left_out,
      query_names,
      reference_names,
      k=k,
      distance="squared_euclidean",
      block_size=block_size,
    )
    rows = queries, references[indices], indices, left_out, query_names
    return Neighbours(indices, jax.vmap(keys_of)(*rows))

  def search(query: Array, left_out: Array, query_names: Array | None) -> Neighbours:
    keys = keys_of(query, references, columns, left_out, query_names)
    indices = jax.lax.top_k(-keys, k)[1]
    keys, indices = jax.lax.sort((keys[indices], indices), num_keys=2)
    return Neighbours(indices.astype(jnp.int32), keys)

  # Without products, small blocks stay in the cache.
  return jax.lax.map(
    lambda row: search(*row),
    (queries, left_out, query_names),
    batch_size=min(block_size, 16),
  )
