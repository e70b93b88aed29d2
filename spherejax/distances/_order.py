"""Exact order of references around queries, at the cost of a matrix product.

A product of float32 rows rounds: `|y|^2 / 2 - x.y` orders references around x up to a
known error. So the product only gives a lower and an upper bound of each key. Where the
bounds of two references overlap, float64 differences (or products) of the original rows
compare them again. A reference has no key, and comes after all others, if its row or
the query is not finite.
"""

import functools
from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from spherejax import _checks, _numerics, _versions

Distance = Literal["squared_euclidean", "cosine", "dot"]
_MORE = 16  # references proposed beyond the requested number
CENTRAL = 31  # references whose median is the origin


def check(queries: Array, references: Array | np.ndarray, distance: Distance) -> None:
  """Raises unless both are floating matrices of one width and the name is known."""
  _checks.expect("queries", queries, "floating", rank=2)
  _checks.expect("references", references, "floating", rank=2)
  if references.shape[1] != queries.shape[1]:
    raise ValueError(
      f"references must have the {queries.shape[1]} columns of queries "
      f"{queries.shape}, got shape {references.shape}"
    )
  _checks.one_of("distance", distance, Distance)


class Proposal(NamedTuple):
  """Rows to multiply, and bounds on the errors of their products.

  With p = queries @ references.T, the key of reference j for query i lies in
  [low_j - p_ij - slack_i, high_j - p_ij + slack_i], up to a constant of the query.

  Attributes:
    queries: [queries, dim].
    references: [references, dim].
    low: [references], NaN where a reference takes no part.
    high: [references], likewise.
    slack: [queries], NaN where the query has no order.
    certain: boolean: all entries are whole multiples of one unit and so small that
      products and keys are exact. Then low and high are the key.
  """

  queries: Array
  references: Array
  low: Array
  high: Array
  slack: Array
  certain: Array


@functools.partial(jax.jit, static_argnames="distance")
def propose(
  queries: Array, references: Array, distance: Distance, excluded: Array | None = None
) -> Proposal:
  """Scales queries and references by powers of two, around one origin if Euclidean.

  `excluded` [references] marks the references that take no part.
  """
  queries, references = _numerics.upcast(queries), _numerics.upcast(references)
  dtype = jnp.result_type(queries, references)
  queries, references = queries.astype(dtype), references.astype(dtype)
  usable = jnp.all(jnp.isfinite(references), axis=1)
  if excluded is not None:
    usable &= ~excluded
  asked = jnp.all(jnp.isfinite(queries), axis=1)
  queries = jnp.where(asked[:, None], queries, 0)
  references = jnp.where(usable[:, None], references, 0)
  if distance == "squared_euclidean":
    x, y, certain = _around_one_origin(queries, references, asked, usable)
    base = spread = jnp.sum(y**2, axis=1) / 2
    slack = jnp.sum(x**2, axis=1) / 2
  else:
    x, y, certain = _in_unit_balls(queries, references, distance)
    spread = _numerics.norm(y)
    base, slack = jnp.zeros_like(spread), jnp.zeros_like(x[:, 0])
  info, dim = jnp.finfo(dtype), queries.shape[1]
  # Rounding of a sum of dim products in any order, and of all steps before and after.
  error = jnp.where(certain, 0, jnp.asarray((dim + 16) * float(info.eps) / 2, dtype))
  # An entry that became 0 in scaling or in a product was at most this large.
  least = jnp.asarray(dim * float(info.smallest_normal) * 64, dtype)
  slack = error * slack + jnp.where(certain, 0, least)
  return Proposal(
    x,
    y,
    jnp.where(usable, base - error * spread, jnp.nan),
    jnp.where(usable, base + error * spread, jnp.nan),
    jnp.where(asked, slack, jnp.nan),
    certain,
  )


def _around_one_origin(
  queries: Array, references: Array, asked: Array, usable: Array
) -> tuple[Array, Array, Array]:
  """Queries and references about a reference as origin, and whether all are exact.

  Far from the origin the squares of lengths would drown the differences of points.
  """
  size = jnp.maximum(largest(queries), largest(references))
  scaled = [_scaled(rows, size) for rows in (queries, references)]
  # A gather, not a slice: for split rows XLA would make each device go over all rows.
  some = scaled[1][jnp.arange(min(CENTRAL, len(references)))]
  # An entry of some row, so that whole numbers stay whole.
  middle = jnp.sort(some, axis=0)[len(some) // 2][None]
  x = jnp.where(asked[:, None], scaled[0] - middle, 0)
  y = jnp.where(usable[:, None], scaled[1] - middle, 0)
  size = jnp.maximum(largest(x), largest(y))
  # With finer units the differences may round.
  unit = jnp.maximum(_unit(size, x.shape[1]), jnp.finfo(x.dtype).eps)
  certain = _is_whole(scaled[0], queries, unit) & _is_whole(scaled[1], references, unit)
  return x, y, certain | (size == 0)


def _in_unit_balls(
  queries: Array, references: Array, distance: Distance
) -> tuple[Array, Array, Array]:
  """Queries and references scaled into unit balls, and whether all are exact."""
  x = _scaled(queries, jnp.max(jnp.abs(queries), axis=1, keepdims=True, initial=0))
  x = _scaled(x, _numerics.norm(x, keepdims=True))
  if distance == "cosine":
    return x, _numerics.normalize(references), jnp.bool_(False)
  y = _scaled(references, largest(references))
  units = [
    _unit(size, x.shape[1])
    for size in (jnp.max(jnp.abs(x), axis=1, keepdims=True, initial=0), largest(y))
  ]
  return (x, y, _is_whole(x, queries, units[0]) & _is_whole(y, references, units[1]))


def largest(x: Array) -> Array:
  """Largest size of an entry."""
  return jnp.max(jnp.abs(x), initial=0)


def _scaled(x: Array, size: Array) -> Array:
  """Multiplies by the power of two that brings `size` into [1/2, 1)."""
  exponent = jnp.frexp(size)[1]
  half = exponent // 2  # a single factor might not be finite
  unit = jnp.ones((), x.dtype)
  return x * jnp.ldexp(unit, -half) * jnp.ldexp(unit, half - exponent)


def _unit(size: Array, dim: int) -> Array:
  """Unit, a power of two: sums of dim products of multiples up to `size` are exact."""
  bits = (jnp.finfo(size.dtype).nmant - 1) // 2
  exponent = jnp.frexp(size * dim**0.5)[1]
  return jnp.ldexp(jnp.ones((), size.dtype), exponent - bits)


def _is_whole(scaled: Array, unscaled: Array, unit: Array) -> Array:
  """True if all are multiples of the unit, and none became 0 when it was scaled."""
  return jnp.all(
    (jnp.round(scaled / unit) * unit == scaled) & ((scaled != 0) == (unscaled != 0))
  )


def products(queries: Array, references: Array) -> Array:
  """Products [block, references]; all compared keys must come from ONE product."""
  return _numerics.product(queries, references.T)


def _exact(queries: Array, references: Array, distance: Distance) -> Array:
  """[...] float64 keys of broadcast rows; call with 64-bit types switched on."""
  # An order has no derivative. Without the barrier, XLA keeps all references in float64
  # while a loop goes over the queries.
  x, y = jax.lax.optimization_barrier(jax.lax.stop_gradient((queries, references)))
  x, y = x.astype(jnp.float64), y.astype(jnp.float64)
  if distance == "squared_euclidean":
    return jnp.sum((x - y) ** 2, axis=-1)
  product = -jnp.sum(x * y, axis=-1)
  if distance == "dot":
    return product
  return _numerics.divide(product, jnp.sqrt(jnp.sum(y**2, axis=-1)))


def is_before(
  queries: Array, first: Array, second: Array, lower: Array, distance: Distance
) -> Array:
  """[rows], whether `first` is nearer than `second`; `lower` settles ties."""
  with _versions.enable_x64(True):
    both = jnp.stack([first, second], axis=1)
    keys = _exact(queries[:, None], both, distance)
    return (keys[:, 0] < keys[:, 1]) | ((keys[:, 0] == keys[:, 1]) & lower)


def order(
  query: Array, references: Array, excluded: Array, distance: Distance
) -> Array:
  """[references], their indices in exact order around one query.

  Excluded references come last, and before them those without a key, both by index.
  """
  with _versions.enable_x64(True):
    keys = _exact_row(query, references, excluded, distance)
    return jax.lax.sort((keys, _columns(references)), num_keys=2)[1]


def ranks(
  query: Array, references: Array, excluded: Array, chosen: Array, distance: Distance
) -> Array:
  """[chosen], ranks from 1 of some references in the exact order around one query."""
  with _versions.enable_x64(True):
    keys = _exact_row(query, references, excluded, distance)
    columns = _columns(references)

    def rank(index: Array) -> Array:
      before = (keys < keys[index]) | ((keys == keys[index]) & (columns < index))
      return 1 + jnp.sum(before, dtype=jnp.int32)

    return jax.lax.map(rank, chosen)


def _exact_row(
  query: Array, references: Array, excluded: Array, distance: Distance
) -> Array:
  keys = _exact(query[None], references, distance)
  usable = jnp.isfinite(query).all() & jnp.isfinite(references).all(axis=1)
  return jnp.where(excluded, jnp.nan, jnp.where(usable, keys, jnp.inf))


def _columns(references: Array) -> Array:
  return jnp.arange(len(references), dtype=jnp.int32)


@functools.partial(jax.jit, static_argnames=("k", "distance", "block_size"))
def nearest(
  queries: Array,
  references: Array,
  left_out: Array,
  query_names: Array | None = None,
  reference_names: Array | None = None,
  *,
  k: int,
  distance: Distance,
  block_size: int,
) -> Array:
  """[queries, k], the nearest references in exact order, then those without a key.

  A query leaves out the reference `left_out`, or none for -1, and the references whose
  entry of `reference_names` equals its own of `query_names`; they come last.
  """
  proposal = propose(queries, references, distance)
  number = len(references)
  columns = _columns(references)
  without = float(jnp.finfo(proposal.queries.dtype).max)

  def banned(left_out: Array, query_names: Array | None) -> Array:
    out = columns == left_out
    return out if reference_names is None else out | (reference_names == query_names)

  def propose_row(
    query: Array, row: Array, slack: Array, left_out: Array, query_names: Array | None
  ) -> tuple[Array, Array]:
    """Nearest of the candidates, and whether another reference could be as near."""
    product = products(row[None], proposal.references)[0]
    low = proposal.low - product - slack
    low = jnp.where(jnp.isnan(low), without, low)
    low = jnp.where(banned(left_out, query_names), jnp.inf, low)
    least, among = jax.lax.top_k(-low, min(k + _MORE, number))
    with _versions.enable_x64(True):
      keys = _exact(query[None], references[among], distance)
      # A float64 key may exceed all of float32; references without a key come after it.
      behind = jnp.where(jnp.isinf(least), jnp.nan, jnp.inf)
      keys = jnp.where(least > -without, keys, behind)
      neighbours = jax.lax.sort((keys, among), num_keys=2)[1][:k]
    last = neighbours[-1]
    above = proposal.high[last] - product[last] + slack
    # Not a slice of the selection, for which XLA would sort all entries.
    clear = (above < jnp.max(-least)) | (low[last] >= without) | proposal.certain
    return neighbours, ~clear

  def in_order(query: Array, left_out: Array, query_names: Array | None) -> Array:
    return order(query, references, banned(left_out, query_names), distance)[:k]

  rows = queries, proposal.queries, proposal.slack, left_out, query_names
  neighbours, doubt = jax.lax.map(
    lambda row: propose_row(*row), rows, batch_size=block_size
  )
  if k + _MORE >= number or not len(queries):
    return neighbours
  return _again(neighbours, doubt, in_order, (queries, left_out, query_names))


def keys(
  queries: Array,
  references: Array,
  among: Array,
  left_out: Array,
  query_names: Array | None = None,
  reference_names: Array | None = None,
  *,
  distance: Distance,
  block_size: int,
) -> Array:
  """[queries, k] in float64, exact keys of the references `among`, for `merge`.

  Infinite without a key, NaN for references that the query leaves out, as in `nearest`.
  """

  def row(args: tuple[Array, Array, Array, Array | None]) -> Array:
    query, among, left_out, query_names = args
    banned = among == left_out
    if reference_names is not None:
      banned |= reference_names[among] == query_names
    return _exact_row(query, references[among], banned, distance)

  with _versions.enable_x64(True):
    rows = queries, among, left_out, query_names
    return jax.lax.map(row, rows, batch_size=block_size)


def merge(keys: Array, indices: Array, *, k: int) -> Array:
  """[queries, k], the first of several lists in the order of (key, index)."""
  with _versions.enable_x64(True):
    return jax.lax.sort((keys, indices), num_keys=2)[1][:, :k]


def closest(queries: Array, references: Array, *, block_size: int) -> Array:
  """[queries], the nearest reference of each by Euclidean distances.

  Gives the result of `nearest` with k = 1; makes no selection, for few references.
  """
  proposal = propose(queries, references, "squared_euclidean")
  columns = _columns(references)
  none = jnp.zeros(len(references), bool)

  def propose_row(row: Array, slack: Array) -> tuple[Array, Array]:
    """Nearest reference by its bound, and whether another could be as near."""
    product = products(row[None], proposal.references)[0]
    high, low = proposal.high - product, proposal.low - product
    first = jnp.argmin(jnp.where(jnp.isnan(high), jnp.inf, high)).astype(jnp.int32)
    others = jnp.where((columns == first) | jnp.isnan(low), jnp.inf, low)
    clear = high[first] + 2 * slack < jnp.min(others)
    return first, ~(clear | proposal.certain | jnp.isnan(slack))

  rows = proposal.queries, proposal.slack
  nearest_reference, doubt = jax.lax.map(
    lambda row: propose_row(*row), rows, batch_size=block_size
  )

  def in_order(query: Array) -> Array:
    return order(query, references, none, "squared_euclidean")[0]

  return _again(nearest_reference, doubt, in_order, (queries,))


def _again(
  results: Array, doubt: Array, search: Callable[..., Array], rows: tuple
) -> Array:
  """Repeats the search for the rows in doubt and returns all results."""
  places, number = jnp.argsort(~doubt), jnp.sum(doubt)

  def search_next(state: tuple[Array, Array]) -> tuple[Array, Array]:
    # One row at a time: its differences take the memory of the references.
    count, results = state
    row = places[count]
    return count + 1, results.at[row].set(search(*jax.tree.map(lambda v: v[row], rows)))

  start = jnp.zeros((), number.dtype)
  return jax.lax.while_loop(
    lambda state: state[0] < number, search_next, (start, results)
  )[1]
