"""Ranks of the relevant references of large classes, by NumPy on the host.

On a CPU it selects and sorts a row many times as fast as XLA does.
"""

import concurrent.futures
import math
import os

import jax.numpy as jnp
import numpy as np
from jax import Array, core

from spherejax.metrics import _plan, _ranks

# Ranking a row here costs as much as comparing it with this many relevant references,
# times log2 of its length (measured for rows of 15,000).
_SORT_COST = 10
_SAMPLE = 8  # one reference in so many tells about where the R-th nearest is
_EXACT = 2048  # pairs whose differences are in memory at once


def blocks(queries: Array, references: Array, plan: _plan.Plan) -> int:
  """How many of the plan's first blocks, those of the largest classes, to rank here.

  0 on accelerators, for embeddings that are traced, and for float64, whose keys leave
  no room for an index.
  """
  operands = queries, references
  if any(isinstance(x, core.Tracer) or x.dtype == jnp.float64 for x in operands):
    return 0
  if any(device.platform != "cpu" for x in operands for device in x.devices()):
    return 0
  limit = _SORT_COST * math.ceil(math.log2(len(references) + 1))
  return int(np.sum(plan.blocks.relevant.max(axis=1) > limit))


class Ranker:
  """Ranks the relevant references of blocks of queries, all in NumPy arrays.

  Args:
    queries: [queries, dim], as they were given.
    references: [references, dim], likewise.
    plan: which are relevant to which.
    distance: its name.
  """

  def __init__(
    self, queries: np.ndarray, references: np.ndarray, plan: _plan.Plan, distance: str
  ):
    self._queries, self._references = queries, references
    self._by_class, self._distance = plan.by_class, distance
    # Where each reference is among its class: relevant are those of one slice.
    self._place = np.full(len(references), -1, np.int32)
    members = plan.by_class[: np.sum(~plan.excluded)]
    self._place[members] = np.arange(len(members))

  def ranks(
    self, values: np.ndarray, error: np.ndarray, block: _plan.Block, most: int
  ) -> np.ndarray:
    """[block, most], ascending exact ranks up to R, and the first; then `NEVER`.

    `values` [block, references] are keys up to `error` [block], inf where none is.
    """
    found = np.full((len(values), most), _ranks.NEVER, np.int32)
    block = _plan.Block(*map(np.asarray, block))
    lines = [_plan.Block(*line) for line in zip(*block, strict=True)]

    def some(rows: np.ndarray) -> None:
      near = [self._near(values[row], float(error[row]), lines[row]) for row in rows]
      lengths = [len(columns) for columns, _, _ in near]
      columns, relevant, apart = map(np.concatenate, zip(*near, strict=True))
      query = np.repeat(block.query[rows], lengths)
      self._settle(columns, relevant, apart[:-1], query)
      stops = np.cumsum(lengths)[:-1]
      for row, part in zip(rows, np.split(relevant, stops), strict=True):
        ranks = np.flatnonzero(part) + 1
        found[row, : len(ranks)] = ranks

    asked = np.flatnonzero(block.relevant)
    cores = min(os.cpu_count() or 1, len(asked))
    with concurrent.futures.ThreadPoolExecutor(cores) as pool:  # NumPy leaves the lock
      list(pool.map(some, np.array_split(asked, cores)))
    return found

  def _near(
    self, values: np.ndarray, error: float, query: _plan.Block
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What may be among the R nearest, or not behind the nearest relevant one.

    Columns by their keys, whether each is relevant, and whether the following one is
    surely behind it.
    """
    number = int(query.relevant)
    columns = _ordered(values, _least(values, number) + 2 * error)
    relevant = self._is_relevant(columns, query)
    if not relevant.any():
      place = np.arange(number)
      members = self._by_class[query.start + place + (place >= query.skip)]
      columns = _ordered(values, float(values[members].min()) + 2 * error)
      relevant = self._is_relevant(columns, query)
    apart = np.ones(len(columns), bool)
    if error:  # exact keys are in order, ties too
      keys = values.take(columns)
      np.greater(keys[1:] - keys[:-1], 2 * error, out=apart[:-1])
    return columns, relevant, apart

  def _is_relevant(self, columns: np.ndarray, query: _plan.Block) -> np.ndarray:
    place = self._place.take(columns) - query.start
    # One class less the query itself, which has no key.
    stop = query.relevant + (query.skip <= query.relevant)
    return (place >= 0) & (place < stop)

  def _settle(
    self,
    columns: np.ndarray,
    relevant: np.ndarray,
    apart: np.ndarray,
    query: np.ndarray,
  ) -> None:
    """Puts what is relevant into exact order where neighbours are not surely apart."""
    mixed = np.flatnonzero(~apart & (relevant[1:] != relevant[:-1]))
    if not mixed.size:
      return
    # Runs of neighbours that are not surely apart, those that hold both kinds.
    ends = np.concatenate([[-1], np.flatnonzero(apart), [len(apart)]])
    run = np.unique(np.searchsorted(ends, mixed))
    start, length = ends[run - 1] + 1, ends[run] - ends[run - 1]
    run = np.repeat(np.arange(len(run)), length)
    place = np.arange(len(run)) + (start - np.cumsum(length) + length)[run]
    keys = np.concatenate(
      [
        self._exact(query[part], columns[part])
        for part in np.array_split(place, -(-len(place) // _EXACT))
      ]
    )
    order = np.lexsort((columns[place], keys, run))
    relevant[place] = relevant[place[order]]

  def _exact(self, queries: np.ndarray, references: np.ndarray) -> np.ndarray:
    """[pairs] float64 keys, as `_order` has them."""
    x = self._queries[queries].astype(np.float64)
    y = self._references[references].astype(np.float64)
    if self._distance == "squared_euclidean":
      y -= x
      return np.einsum("ij,ij->i", y, y)
    product = -np.einsum("ij,ij->i", y, x)
    if self._distance == "dot":
      return product
    length = np.sqrt(np.einsum("ij,ij->i", y, y))
    return np.divide(product, length, out=np.zeros_like(length), where=length != 0)


def _ordered(values: np.ndarray, limit: float) -> np.ndarray:
  """Columns of the values up to the limit, ascending; the lower one of equals first."""
  columns = np.flatnonzero(values <= min(limit, np.finfo(values.dtype).max))
  bits = (values.take(columns) + np.float32(0)).view(np.int32)  # -0 ties with 0
  # A negative float's magnitude bits grow as the float falls: flip them.
  ordered = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).astype(np.int64) << 32
  ordered |= columns
  ordered.sort()
  return ordered & 0xFFFFFFFF


def _least(values: np.ndarray, number: int) -> float:
  """At least the value that `number` are not above; of an eighth as a rule."""
  some = values[::_SAMPLE]
  expected = number / _SAMPLE
  place = int(expected + 2 * math.sqrt(expected))
  if place < len(some):
    limit = np.partition(some, place)[place]
    if np.count_nonzero(values <= limit) >= number:
      return float(limit)
  return float(np.partition(values, number - 1)[number - 1])
