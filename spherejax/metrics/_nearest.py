"""Nearest references of queries, in exact order."""

from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Int, Integer

from spherejax import _checks
from spherejax.distances import _order, _split, _tiles
from spherejax.distances._order import Distance


def nearest(
  queries: Float[ArrayLike, "queries dim"],
  references: Float[ArrayLike, "references dim"] | _tiles.Stored,
  *,
  k: int,
  exclude: Integer[ArrayLike, " queries"] | None = None,
  distance: Distance = "squared_euclidean",
  block_size: int = 128,
) -> Int[Array, "queries k"]:
  """Finds the k nearest references of each query; returns indices, nearest first.

  The order is that of `retrieval`: increasing (distance, index) by float64 differences
  or products of the rows, ties to the lowest index; references with a NaN or infinite
  entry are last, in the order of their indices. To search for rows within their own
  set, `nearest(x[rows], x, k=5, exclude=rows)` leaves each row out of its own list.

  Args:
    queries: [queries, dim], floating.
    references: [references, dim], floating. Their rows may be split over devices or be
      in a file, as in `retrieval`; the file is read once. Pad the last device's rows
      with NaN if they do not divide evenly: such rows rank last.
    k: static. References returned for each query.
    exclude: [queries], integer, index of one reference that the query leaves out, or
      -1. None leaves out none.
    distance: "squared_euclidean", "cosine" or "dot", as in `retrieval`. Static.
    block_size: static. Queries ranked at once; memory is block_size x references, where
      references are those of one device if split, of a tile if in a file.

  Returns:
    [queries, k], integer.

  Raises:
    TypeError: embeddings not floating, `exclude` not integer; one of queries and
      `exclude` is traced, and the references are in a file.
    ValueError: shapes do not match, an unknown distance, a known `exclude` that is no
      reference, or k exceeds the number of references that a query may have;
      references are split over two axes, differ between processes, or are in a file
      that was cut short.

  Differentiable in: nothing.
  Cost: O(queries references dim) time; dozens of times as much for a query whose k-th
  neighbour has 16 rivals that the product cannot tell apart.

  Source: DML 1.2 (the ranking behind its retrieval figures).

  Example:
    >>> x = jnp.array([[0.0], [1.0], [3.0]])
    >>> spherejax.metrics.nearest(x, x, k=2, exclude=jnp.arange(3))
    Array([[1, 2],
           [0, 2],
           [1, 0]], dtype=int32)
  """
  queries = _checks.array("queries", queries)
  file = references if _tiles.in_file(references) else None
  others: Any = _checks.array("references", references) if file is None else file
  _order.check(queries, others, distance)
  _checks.count("k", k)
  _checks.count("block_size", block_size)
  _checks.expect("references", others, empty=False)
  available = others.shape[0] - (exclude is not None)
  if k > available:
    raise ValueError(
      f"k must be at most {available}, the references a query may have, got {k}"
    )
  if exclude is None:
    exclude = jnp.full(queries.shape[0], -1, jnp.int32)
  exclude = _checks.integers("exclude", exclude)
  _checks.labels(exclude, queries, "exclude")
  _checks.known_labels(exclude, others.shape[0], name="exclude", low=-1)
  options = {"k": k, "distance": distance, "block_size": block_size}
  if file is not None:
    _checks.host("queries", queries)
    return _tiles.nearest(queries, file, _checks.host("exclude", exclude), **options)
  queries, others, sharding = _split.place(queries, others)
  if sharding is None:
    return _order.nearest(queries, others, exclude, **options)
  _split.agree(others)
  exclude = _split.whole(exclude, sharding)
  neighbours = _split.nearest(queries, others, exclude, sharding=sharding, **options)
  return _split.local(neighbours)
