"""Ranks queries by NumPy on the host: those of large classes, and those in doubt.

On a CPU NumPy selects and sorts a row many times faster than XLA, and needs no compiled
program. The keys are float64 products, rounded to whole numbers of 31 bits. The last of
32 bits marks relevant references, so that a sorted row needs no index. Where rounding
may hide the order of a relevant and another reference, the references are looked up and
compared again.
"""

import concurrent.futures
import math
import os

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, core

from spherejax import _versions
from spherejax.distances import _order
from spherejax.distances._order import Distance
from spherejax.metrics import _plan

# Ranking a row here costs as much as comparing it with this many relevant references,
# times log2 of its length (measured for rows of 15,000).
_SORT_COST = 3
_ROWS = 16  # rows in a core's cache at once
_EXACT = 2048  # pairs with differences in memory at once
_DOUBTS = 2**23  # largest number of entries for which float64 copies are affordable
_NONE = np.int32(2**31 - 2)  # stands for no key; sorts after all keys


def can_rank(queries: Array, references: Array) -> bool:
  """True if these queries and references are ranked on the host.

  Ranking stays off the host on accelerators, and for arrays that are traced, split over
  devices, or float64, whose products are no more exact than the required order.
  """
  operands = queries, references
  if any(isinstance(x, core.Tracer) or x.dtype == jnp.float64 for x in operands):
    return False
  platforms = {device.platform for x in operands for device in x.devices()}
  return platforms == {"cpu"} and all(x.is_fully_replicated for x in operands)


def can_decide(references: Array) -> bool:
  """True if the host ranks rows in doubt faster than the program that counts.

  The program takes seconds to compile; here the references are copied to float64.
  """
  return references.size <= _DOUBTS


def blocks(references: Array, plan: _plan.Plan) -> int:
  """Number of the plan's first blocks, those of the largest classes, to rank here."""
  limit = _SORT_COST * math.ceil(math.log2(len(references) + 1))
  return int(np.sum(plan.blocks.relevant.max(axis=1) > limit))


def _operands(
  queries: np.ndarray, references: np.ndarray, excluded: np.ndarray, distance: Distance
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
  """Factors of the keys in float64, and masks of the rows that have keys.

  The factors are [queries, dim + 1] and [references, dim + 1]; their product is twice
  the keys. In float64 neither squares nor products of float32 leave the range.
  """
  asked, has = (
    np.isfinite(v).all(axis=1, keepdims=True) for v in (queries, references)
  )
  has &= ~excluded[:, None]
  x = np.where(asked, queries, 0).astype(np.float64)
  y = np.where(has, references, 0).astype(np.float64)
  if distance == "squared_euclidean":
    # Far from the origin, squares would drown the differences of points; so the origin
    # is one of the points.
    some = y[np.flatnonzero(has)[: _order.CENTRAL]]
    origin = np.sort(some, axis=0)[len(some) // 2] if len(some) else 0
    x, y = (x - origin) * asked, (y - origin) * has
  length = np.linalg.norm(y, axis=1)
  if distance == "cosine":
    y = np.divide(y, length[:, None], out=y, where=length[:, None] > 0)
    length = np.minimum(length, 1)
  size, longest = np.linalg.norm(x, axis=1), length.max(initial=0)
  spread, base = size * longest, np.zeros_like(length)
  if distance == "squared_euclidean":
    base = np.einsum("ij,ij->i", y, y) / 2  # no root, so that whole numbers stay whole
    spread = (size**2 + longest**2) / 2
  reach = size * longest + base.max(initial=0)
  # A power of two, so that whole numbers of float32 remain whole.
  unit = np.ldexp(1.0, np.frexp(np.maximum(reach * 1.0001, 1e-290))[1] - 30)
  # Differences in float64 also round, by a few times as much.
  unit = np.maximum(unit, 8 * (y.shape[1] + 16) * np.finfo(float).eps * spread)
  scale = 2 / unit[:, None]
  return (
    np.concatenate([-x * scale, scale], axis=1),
    np.concatenate([y, base[:, None]], axis=1),
    np.ravel(asked),
    np.ravel(has),
  )


@np.errstate(invalid="ignore")  # of rows that have no key
def exact_keys(
  queries: np.ndarray, references: np.ndarray, distance: Distance
) -> np.ndarray:
  """[pairs] float64 keys of float32 rows, as `_order` has them.

  The key of a pair does not depend on the other pairs.
  """
  if distance == "squared_euclidean":
    away = np.subtract(queries, references, dtype=np.float64)
    return np.einsum("ij,ij->i", away, away)
  x, y = queries.astype(np.float64), references.astype(np.float64)
  product = -np.einsum("ij,ij->i", y, x)
  if distance == "dot":
    return product
  length = np.sqrt(np.einsum("ij,ij->i", y, y))
  return np.divide(product, length, out=np.zeros_like(length), where=length != 0)


@jax.jit
def _keys(left: Array, right: Array, query: Array) -> Array:
  """Keys [block, references]. Done in JAX: NumPy's threads would wait busily."""
  return _order.products(left[query], right).astype(jnp.int32)


class Ranker:
  """Ranks the relevant references of blocks of queries.

  Args:
    queries: [queries, dim], as they were given.
    references: [references, dim], likewise.
    plan: relevant references of each query.
    distance: "squared_euclidean", "cosine" or "dot".
  """

  def __init__(
    self, queries: Array, references: Array, plan: _plan.Plan, distance: Distance
  ):
    self._inputs = np.asarray(queries, np.float32), np.asarray(references, np.float32)
    self._distance: Distance = distance
    self._exact = bool(
      _order.propose(queries, references, distance, plan.excluded).certain
    )
    left, right, self._ordered, known = _operands(
      *self._inputs, plan.excluded, distance
    )
    # In the order of the classes, the references relevant to a query form one slice.
    members = plan.by_class[: np.sum(~plan.excluded)]
    self._columns = members[known[members]]
    with _versions.enable_x64(True):
      self._operands = jnp.asarray(left), jnp.asarray(right[self._columns])
    self._bounds = np.concatenate([[0], np.cumsum(known[members])])
    self._place = np.full(len(known) + 1, -1)  # the last entry stands for no reference
    self._place[self._columns] = np.arange(len(self._columns))
    # Allocating memory for each block would take as long as the products.
    shape = plan.blocks.query.shape[1], len(self._columns)
    self._rows = np.empty(shape, np.int32)

  def score(self, block: _plan.Block) -> np.ndarray:
    """[block, 4], P@1, P@R, MAP@R and first rank."""
    scores = np.zeros((len(block.query), 4))
    asked = int(np.count_nonzero(block.relevant))  # the rest is padding
    if not asked or not len(self._columns):
      return scores
    inverse = 1 / np.arange(1, 1 + int(block.relevant.max()))
    with _versions.enable_x64(True):
      keys = np.asarray(_keys(*self._operands, block.query))

    def rank(rows: slice) -> None:
      part = _plan.Block(*(field[rows] for field in block))
      even = np.bitwise_and(keys[rows], -2, out=self._rows[rows])
      hits, first = self._hits(even, part)
      # Float64, so that other block sizes give the same result after rounding.
      count = np.cumsum(hits, axis=1, dtype=np.float64)
      precision = np.einsum("ij,j->i", count * hits, inverse[: hits.shape[1]])
      number = np.count_nonzero(hits, axis=1)
      scores[rows] = np.stack([first == 1, number, precision, first], axis=1)

    parts = [slice(i, min(i + _ROWS, asked)) for i in range(0, asked, _ROWS)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
      list(pool.map(rank, parts))  # NumPy releases the lock
    scores[:, 1:3] /= np.maximum(block.relevant, 1)[:, None]
    return scores * self._ordered[block.query][:, None]

  def _hits(self, keys: np.ndarray, part: _plan.Block) -> tuple[np.ndarray, np.ndarray]:
    """Mask [rows, largest R] of relevant ranks k <= R, and the first rank [rows]."""
    self._mark(keys, part)
    rows, numbers = np.arange(len(keys)), part.relevant
    last = min(numbers.max(), keys.shape[1] - 1)
    near = np.partition(keys, last, axis=1)[:, : last + 1]
    near.sort(axis=1)
    hits = (near[:, : numbers.max()] & 1).astype(bool)
    for hit, number in zip(hits, numbers, strict=True):
      hit[number:] = False
    first = np.where(hits.any(axis=1), hits.argmax(axis=1) + 1, 0)
    limit = near[rows, np.minimum(numbers - 1, last)]
    # A relevant reference beside another one, at most one unit away.
    doubt = ((near[:, 1:] - near[:, :-1]) & ~2 == 1).any(axis=1)
    doubt |= near[rows, np.minimum(numbers, last)] - limit <= 3
    without = first == 0
    again = np.flatnonzero(doubt | without)
    if again.size:
      keys, limit = keys[again], limit[again]
      nearest = np.min(keys, axis=1, where=keys & 1 == 1, initial=_NONE)
      limit = np.where(without[again], nearest, limit)
      row, relevant = self._in_order(keys, limit, np.asarray(part.query)[again])
      place = np.arange(len(row)) - np.searchsorted(row, row)
      row, place = again[row[relevant]], place[relevant]
      first[row[::-1]] = place[::-1] + 1  # the last that is written is the first
      hits[again] = False
      among = place < numbers[row]
      hits[row[among], place[among]] = True
    return hits, first

  def _mark(self, keys: np.ndarray, part: _plan.Block) -> None:
    """Makes the even keys odd where the reference is relevant."""
    # The slice of one class also holds the query itself, which has no key.
    count = part.relevant + (part.skip <= part.relevant)
    start, stop = self._bounds[part.start], self._bounds[part.start + count]
    for key, some, end in zip(keys, start.tolist(), stop.tolist(), strict=True):
      key[some:end] |= 1
    left_out = self._place[part.left_out]
    row = np.flatnonzero(left_out >= 0)
    keys[row, left_out[row]] = _NONE

  def _in_order(
    self, keys: np.ndarray, limit: np.ndarray, queries: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    """Rows and relevance flags of all references up to the limits, in exact order."""
    limit = np.minimum(limit | 1, _NONE - 3) + 2  # the next unit's end
    row, columns = np.nonzero(keys <= limit[:, None])
    chosen, columns = keys[row, columns], self._columns[columns]
    ordered = (chosen >> 1).astype(np.int64) << 32 | columns
    order = np.lexsort((ordered, row))
    columns, chosen = columns[order], chosen[order]
    relevant = (chosen & 1).astype(bool)
    if not self._exact:  # exact keys are already in order, including ties
      chosen >>= 1
      close = (chosen[1:] - chosen[:-1] <= 1) & (row[1:] == row[:-1])
      self._settle(queries[row], columns, relevant, close)
    return row, relevant

  def _settle(
    self,
    queries: np.ndarray,
    columns: np.ndarray,
    relevant: np.ndarray,
    close: np.ndarray,
  ) -> None:
    """Puts relevance flags into exact order where neighbours may be out of order."""
    mixed = np.flatnonzero(close & (relevant[1:] != relevant[:-1]))
    if not mixed.size:
      return
    # Runs of neighbours in doubt, with relevant and other references.
    ends = np.concatenate([[-1], np.flatnonzero(~close), [len(close)]])
    run = np.unique(np.searchsorted(ends, mixed))
    start, length = ends[run - 1] + 1, ends[run] - ends[run - 1]
    run = np.repeat(np.arange(len(run)), length)
    place = np.arange(len(run)) + (start - np.cumsum(length) + length)[run]
    keys = np.concatenate(
      [
        exact_keys(
          self._inputs[0][queries[part]], self._inputs[1][columns[part]], self._distance
        )
        for part in np.array_split(place, -(-len(place) // _EXACT))
      ]
    )
    order = np.lexsort((columns[place], keys, run))
    relevant[place] = relevant[place[order]]
