"""Exact precision at 1, R-precision and MAP@R, streaming over blocks of queries."""

import contextlib
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, core
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int, Integer

from spherejax import _checks, _compiled
from spherejax.distances import _order, _split, _tiles
from spherejax.distances._order import Distance
from spherejax.metrics import _host_ranks, _plan, _ranks, _tile_ranks


class RetrievalResult(NamedTuple):
  """Retrieval scores of every query, from its ranking of the references.

  Attributes:
    precision_at_1: [queries], 1 where the nearest reference is relevant.
    r_precision: [queries], share of relevant ones among the R nearest (P@R).
    map_at_r: [queries], precision averaged over the R nearest (MAP@R).
    first_rank: [queries], integer, rank of the nearest relevant reference from 1 on;
      0 where `counted` is False or no relevant reference has a distance from the query.
      `recall_at_k` reads it.
    relevant: [queries], integer, R: references of the query's class, without itself.
    counted: [queries], boolean, True where the query is kept and R > 0. The other
      three measures are 0 where it is False; average with `mean_where`.
  """

  precision_at_1: Float[Array, " queries"]
  r_precision: Float[Array, " queries"]
  map_at_r: Float[Array, " queries"]
  first_rank: Integer[Array, " queries"]
  relevant: Int[Array, " queries"]
  counted: Bool[Array, " queries"]


def retrieval(
  queries: Float[ArrayLike, "queries dim"],
  query_labels: Integer[ArrayLike, " queries"],
  references: Float[ArrayLike, "references dim"] | _tiles.Stored | None = None,
  reference_labels: Integer[ArrayLike, " references"] | None = None,
  *,
  distance: Distance = "squared_euclidean",
  block_size: int = 128,
  where: Bool[ArrayLike, " queries"] | None = None,
  reference_where: Bool[ArrayLike, " references"] | None = None,
  exclude: Integer[ArrayLike, " queries"] | None = None,
) -> RetrievalResult:
  """Computes P@1, R-precision and MAP@R of every query, by counting exact ranks.

  References are ordered by increasing (distance, index): ties go to the lowest index.
  rel(k) is 1 if the k-th reference has the query's class; R is the number of such
  references.

      P@1   = rel(1)
      P@R   = 1/R sum_{k <= R} rel(k)
      MAP@R = 1/R sum_{k <= R} rel(k) (1/k sum_{l <= k} rel(l))

  Without `references` the queries are their own references, and query i leaves out
  reference i (by its index, never because it is close). With `references`, `exclude`
  names the reference that a query leaves out, if any. The rank of a relevant reference
  is one more than the number of references before it, so no list is cut and a class may
  have any size.

  The order is that of float64 differences of the rows (for "cosine" and "dot", of
  float64 products): a product in the dtype of the rows gives bounds, and where the
  bounds of two references overlap, both are compared again. Entries below the smallest
  normal number count as 0. A reference with a NaN or infinite entry is never retrieved,
  though it counts in R. A query with such an entry retrieves nothing: its metrics are
  0.

  Args:
    queries: [queries, dim], floating. May be traced unless the references are in a
      file.
    query_labels: [queries], integer: any values, only equality matters. Concrete:
      classes are grouped on the host.
    references: [references, dim], floating, or None: the queries. Their rows may be
      split over the devices of one or several processes, by a `jax.NamedSharding` over
      one axis of a mesh: each device then ranks its rows, and the counts add up to the
      same ranks. `reference_where` leaves out padding rows. Or the references are in a
      file and read in tiles of 128 MiB, one at a time: a `np.memmap`, or an object with
      its `shape`, `dtype`, `ndim`, slices and `__array__`, such as data sets of h5py
      and arrays of zarr.
    reference_labels: [references], integer, concrete; given with `references`.
    distance: "squared_euclidean", "cosine" (of the angle between rows; a zero row has
      cosine 0 with all) or "dot" (largest first). Static.
    block_size: static. Queries ranked at once; memory is block_size x references. With
      split references each device holds its share; with a file, only one tile is held.
    where: [queries], boolean, concrete, True keeps. Without `references` it is also the
      default of `reference_where`: only kept rows are searched.
    reference_where: [references], boolean, concrete, True keeps.
    exclude: [queries], integer, concrete, index of one reference that the query leaves
      out, or -1; given with `references`. With `x[rows]` as queries of references `x`,
      `exclude=rows` gives these rows of `retrieval(x, y)`. None leaves nothing out.

  Returns:
    RetrievalResult of arrays [queries] in the dtype of `queries` (float16 and
    bfloat16 are computed in float32, then cast back).

  Raises:
    TypeError: embeddings not floating, labels not integer, masks not boolean; labels or
      masks are traced, or queries are traced and the references in a file.
    ValueError: shapes do not match, one of `references` and `reference_labels`
      without the other, `exclude` without them or out of range, or an unknown distance;
      references are split over two axes, differ between processes, or are in a file
      that was cut short.

  Differentiable in: nothing (ranks are piecewise constant; gradients are 0).
  Cost: O(queries references (dim + R)) time. For classes so large that comparing with
  each relevant reference would dominate, the nearest references are sorted, on a CPU by
  NumPy if nothing is traced. If the product cannot tell dozens of references from a
  relevant one, the query is compared with all references again, which takes dozens of
  times as long. A file is read once per 4096 queries, and twice where products leave a
  rank in doubt. Compiled once per shape and power of two that bounds the largest R.

  Source: DML 1.2 with precision at k inside MAP@R, as Musgrave et al. 2020, "A metric
  learning reality check", define it. Differs from DML, whose text puts P@R there; MAP@R
  would then be the square of P@R.

  Example:
    >>> x = jnp.array([[0.0], [1.0], [3.0], [7.0]])
    >>> result = spherejax.metrics.retrieval(x, jnp.array([5, 9, 5, 5]))
    >>> result.map_at_r
    Array([0.25, 0.  , 0.25, 0.5 ], dtype=float32)
    >>> result.counted
    Array([ True, False,  True,  True], dtype=bool)
  """
  alone = references is None
  if alone != (reference_labels is None):
    raise ValueError("references and reference_labels go together, got only one")
  source = queries if references is None else references
  file = source if _tiles.in_file(source) else None
  queries = _checks.array("queries", queries)
  if alone or file is not None:
    references = queries
  else:
    references = _checks.array("references", references)
  others: Any = references if file is None else file
  _order.check(queries, others, distance)
  _checks.count("block_size", block_size)
  labels = _host_labels("query_labels", query_labels, queries)
  mask = _host_mask("where", where, queries)
  if reference_labels is None:
    other_labels = labels
    other_kept = _host_mask(
      "reference_where", where if reference_where is None else reference_where, queries
    )
  else:
    other_labels = _host_labels("reference_labels", reference_labels, others)
    other_kept = _host_mask("reference_where", reference_where, others)

  if alone and exclude is not None:
    raise ValueError(
      "exclude needs references, got None: queries leave themselves out without"
    )
  queries, references, sharding = _split.place(queries, references)
  if sharding is not None:
    _split.agree(references, labels, other_labels)
  out = np.arange(len(labels)) if alone else _host_exclude(exclude, queries, others)
  plan = _plan.make_plan(
    labels,
    mask,
    other_labels,
    other_kept,
    left_out=out,
    block_size=block_size,
    least=_ranks.TILE,
  )
  counted = jnp.asarray(mask & (plan.relevant > 0))
  if not len(labels) or not len(other_labels) or not plan.relevant.any():
    zero = jnp.zeros(len(labels), queries.dtype)
    none = jnp.zeros(len(labels), jnp.int32)
    return RetrievalResult(zero, zero, zero, none, jnp.asarray(plan.relevant), counted)
  if file is not None:
    scores = _score_tiles(queries, file, plan, distance=distance)
  elif _host_ranks.can_rank(queries, references):
    # Inside a program they are known too, if they are not its arguments.
    inside = _compiled.is_inside(queries, references)
    with jax.ensure_compile_time_eval() if inside else contextlib.nullcontext():
      scores = _score_on_host(queries, references, plan, distance=distance)
  else:
    if sharding is not None:
      parts = [_split.put(v, sharding) for v in (plan.by_class, plan.excluded)]
      plan = plan._replace(by_class=parts[0], excluded=parts[1])
    *scores, _ = _score_blocks(
      queries, references, plan, plan.blocks, plan.position, distance=distance
    )
    if sharding is not None:
      scores = [_split.local(score) for score in scores]
  precision, r_precision, map_at_r, first = scores
  return RetrievalResult(
    precision.astype(queries.dtype),
    r_precision.astype(queries.dtype),
    map_at_r.astype(queries.dtype),
    first,
    jnp.asarray(plan.relevant),
    counted,
  )


def recall_at_k(
  first_rank: Integer[ArrayLike, " queries"], *, k: Integer[ArrayLike, ""]
) -> Float[Array, " queries"]:
  """Recall@k: 1 where one of the k nearest references is relevant.

      recall@k = [1 <= first_rank <= k]

  After `retrieval` any k is free of cost; a k beyond the list means the whole list.

  Args:
    first_rank: [queries], integer, of a RetrievalResult; 0 where there is none.
    k: number of nearest references that count, at least 1; may be traced.

  Returns:
    [queries], float32. 0 where `first_rank` is 0; average with
    `mean_where(recall, result.counted)`.

  Raises:
    TypeError: `first_rank` not integer.
    ValueError: k is static and below 1.

  Differentiable in: nothing. Cost: O(queries).

  Source: DML 1.2; Jegou et al. 2011, "Product quantization for nearest neighbor
  search" (recall@R).

  Example:
    >>> spherejax.metrics.recall_at_k(jnp.array([1, 3, 0]), k=2)
    Array([1., 0., 0.], dtype=float32)
  """
  first_rank, k = _checks.integers("first_rank", first_rank), _checks.integers("k", k)
  for name, value, rank in (("first_rank", first_rank, 1), ("k", k, 0)):
    _checks.expect(name, value, "integer", rank=rank)
  _checks.between("k", k, 1)
  return ((first_rank > 0) & (first_rank <= k)).astype(jnp.float32)


def _host_labels(name: str, values: ArrayLike, rows: Array | np.ndarray) -> np.ndarray:
  """Keeps the labels in their type: jax would cut 64-bit labels to 32 bits."""
  values = _checks.host(name, values)
  _checks.labels(values, rows, name)
  return values


def _host_mask(
  name: str, values: ArrayLike | None, rows: Array | np.ndarray
) -> np.ndarray:
  if values is None:
    return np.ones(rows.shape[0], bool)
  values = _checks.host(name, values)
  _checks.mask(values, rows.shape[:1], name)
  return values


def _host_exclude(
  values: ArrayLike | None, queries: Array, references: Array | np.ndarray
) -> np.ndarray:
  if values is None:
    return np.full(queries.shape[0], -1)
  rows, count = _host_labels("exclude", values, queries), references.shape[0]
  wrong = rows[(rows < -1) | (rows >= count)]
  if wrong.size:
    raise ValueError(f"exclude must be in [-1, {count}), got {wrong[0]}")
  return rows


def _score_blocks(
  queries: Array,
  references: Array,
  plan: _plan.Plan,
  blocks: _plan.Block,
  position: np.ndarray,
  *,
  distance: str,
  decide: bool = True,
) -> tuple[Array, ...]:
  """Scores some of the plan's blocks by `_score`."""
  proposal = _order.propose(queries, references, distance, plan.excluded)
  certain = proposal.certain
  return _score(
    proposal,
    queries,
    references,
    blocks,
    plan.by_class,
    plan.excluded,
    position,
    most=_plan.bound(np.asarray(blocks.relevant), _ranks.TILE),
    distance=distance,
    certain=None if isinstance(certain, core.Tracer) else bool(certain),
    decide=decide,
  )


@functools.partial(jax.jit, static_argnames=("most", "distance", "certain", "decide"))
def _score(
  proposal: _order.Proposal,
  queries: Array,
  references: Array,
  blocks: _plan.Block,
  by_class: Array,
  excluded: Array,
  position: Array,
  *,
  most: int,
  distance: Distance,
  certain: bool | None,
  decide: bool,
) -> tuple[Array, ...]:
  """P@1, P@R, MAP@R, first rank, and whether they are in doubt, each [queries]."""
  dtype = queries.dtype

  def score(block: _plan.Block) -> tuple[Array, ...]:
    rows = _ranks.row_block(proposal, queries, references, excluded, block)
    ranks, doubt = _ranks.ranks(rows, block, by_class, most, distance, certain, decide)
    ranks = jnp.sort(ranks, axis=1)
    relevant = jnp.asarray(block.relevant)
    return *_measures(ranks, relevant, proposal.queries.dtype), doubt

  # From blocks in the order of R back to the order of the queries.
  *measures, first, doubt = (
    column.reshape(-1)[position] for column in jax.lax.map(score, blocks)
  )
  return *(measure.astype(dtype) for measure in measures), first, doubt


def _score_on_host(
  queries: Array, references: Array, plan: _plan.Plan, *, distance: Distance
) -> tuple[Array, ...]:
  """Scores like `_score`; the host ranks rows of large classes and rows in doubt."""
  width = plan.blocks.query.shape[1]
  large = width * _host_ranks.blocks(references, plan)
  flat = _plan.Block(*(np.asarray(field).reshape(-1) for field in plan.blocks))
  size = len(flat.query)
  columns, doubt = np.zeros((4, size)), np.arange(size) < large
  if large < size:
    rest = _plan.Block(*(field[large:].reshape(-1, width) for field in flat))
    place = np.arange(size - large, dtype=np.int32)
    *scores, unsure = _score_blocks(
      queries,
      references,
      plan,
      rest,
      place,
      distance=distance,
      decide=not _host_ranks.can_decide(references),
    )
    columns[:, large:], doubt[large:] = scores, unsure
  places = np.flatnonzero(doubt & (flat.relevant > 0))
  if places.size:
    ranker = _host_ranks.Ranker(queries, references, plan, distance)
    for part in np.split(places, range(width, len(places), width)):
      # Padded, so that one program serves all blocks.
      filled = _plan.Block(*(np.resize(field[part], width) for field in flat))
      asked = np.where(np.arange(width) < len(part), filled.relevant, 0)
      ranked = ranker.score(filled._replace(relevant=asked))
      columns[:, part] = ranked[: len(part)].T
  *measures, first = columns[:, plan.position]
  scores = [jnp.asarray(measure, queries.dtype) for measure in measures]
  return *scores, jnp.asarray(first, jnp.int32)


def _score_tiles(
  queries: Array, references: _tiles.Stored, plan: _plan.Plan, *, distance: Distance
) -> tuple[Array, ...]:
  """Scores like `_score`, for references in a file."""
  _checks.host("queries", queries)
  scores_of_blocks, blocks = [], zip(*plan.blocks, strict=True)
  for several in _tile_ranks.ranks(queries, references, plan, distance):
    for ranks in several:
      relevant = jnp.asarray(_plan.Block(*next(blocks)).relevant)
      scores_of_blocks.append(
        _measures(jnp.sort(ranks), relevant, jnp.dtype("float32"))
      )
  *scores, first = (
    jnp.concatenate(c)[plan.position] for c in zip(*scores_of_blocks, strict=True)
  )
  return *(score.astype(queries.dtype) for score in scores), first


@functools.partial(jax.jit, static_argnames="dtype")
def _measures(
  ranks: Array, relevant: Array, dtype: jnp.dtype
) -> tuple[Array, Array, Array, Array]:
  """Metrics from the sorted ranks of the relevant references [block, most]."""
  retrieved = ranks <= relevant[:, None]
  # Up to the k-th of the sorted ranks there are k relevant references.
  k = jnp.arange(1, ranks.shape[1] + 1, dtype=dtype)[None]
  precision = jnp.where(retrieved, k / ranks.astype(dtype), 0)
  some = relevant > 0
  count = jnp.where(some, relevant, 1).astype(dtype)
  hits = jnp.sum(retrieved, axis=1, dtype=jnp.int32).astype(dtype)
  first = jnp.where(ranks[:, 0] < _ranks.NEVER, ranks[:, 0], 0)
  return (
    (first == 1).astype(dtype),
    hits / count,
    jnp.sum(precision, axis=1) / count,
    first,
  )
