"""Ranks of the relevant references of large classes, by NumPy on the host.

On a CPU it selects and sorts a row many times as fast as XLA does.
"""

import concurrent.futures
import math
import os

import jax.numpy as jnp
import numpy as np
from jax import Array, core

from spherejax.distances._order import Distance
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
    self,
    queries: np.ndarray,
    references: np.ndarray,
    plan: _plan.Plan,
    distance: Distance,
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

    def some(rows: np.ndarray) -> None:
      part = _plan.Block(*(field[rows] for field in block))
      row, relevant = self._near(values[rows], 2 * error[rows], part)
      hits = np.flatnonzero(relevant)
      own, every = row[hits], np.arange(len(rows))
      place = np.arange(len(hits)) - np.searchsorted(own, every)[own]
      found[rows[own], place] = hits - np.searchsorted(row, every)[own] + 1

    asked = np.flatnonzero(block.relevant)
    cores = min(os.cpu_count() or 1, len(asked))
    with concurrent.futures.ThreadPoolExecutor(cores) as pool:  # NumPy leaves the lock
      list(pool.map(some, np.array_split(asked, cores)))
    return found

  def _near(
    self, values: np.ndarray, slack: np.ndarray, part: _plan.Block
  ) -> tuple[np.ndarray, np.ndarray]:
    """What may be among the R nearest, or not behind the nearest relevant one.

    The row of each and whether it is relevant, in exact order within the rows.
    """
    queries, numbers = np.asarray(part.query), np.asarray(part.relevant)
    limit = _limits(values, numbers)
    row, columns, relevant = self._up_to(values, limit + slack, part)
    without = np.setdiff1d(np.arange(len(values)), row[relevant])
    if without.size:
      for i in without:
        place = np.arange(int(numbers[i]))
        members = self._by_class[part.start[i] + place + (place >= part.skip[i])]
        limit[i] = values[i, members].min()
      row, columns, relevant = self._up_to(values, limit + slack, part)
    if slack.any():  # exact keys are in order, ties too
      keys = values.ravel().take(row * values.shape[1] + columns)
      close = (keys[1:] - keys[:-1] <= slack[row[1:]]) & (row[1:] == row[:-1])
      self._settle(queries[row], columns, relevant, close)
    return row, relevant

  def _up_to(
    self, values: np.ndarray, limit: np.ndarray, part: _plan.Block
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns and relevance of the keys up to each row's limit, in their order.

    The lower column of equals is first.
    """
    limit = np.minimum(limit, np.finfo(values.dtype).max)
    below = values <= limit[:, None]
    counts = np.count_nonzero(below, axis=1)
    row = np.repeat(np.arange(len(values)), counts)
    flat = np.flatnonzero(below)
    bits = (values.ravel().take(flat) + np.float32(0)).view(np.int32)  # -0 ties with 0
    # A negative float's magnitude bits grow as the float falls: flip them.
    ordered = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).astype(np.int64) << 32
    ordered |= flat - row * values.shape[1]
    stops = np.cumsum(counts)
    for start, stop in zip(stops - counts, stops, strict=True):
      ordered[start:stop].sort()
    columns = ordered & 0xFFFFFFFF
    place = self._place.take(columns) - part.start[row]
    # One class less the query itself, which has no key.
    count = part.relevant + (part.skip <= part.relevant)
    return row, columns, (place >= 0) & (place < count[row])

  def _settle(
    self,
    queries: np.ndarray,
    columns: np.ndarray,
    relevant: np.ndarray,
    close: np.ndarray,
  ) -> None:
    """Puts what is relevant into exact order where neighbours are not surely apart."""
    mixed = np.flatnonzero(close & (relevant[1:] != relevant[:-1]))
    if not mixed.size:
      return
    # Runs of neighbours that are not surely apart, those that hold both kinds.
    ends = np.concatenate([[-1], np.flatnonzero(~close), [len(close)]])
    run = np.unique(np.searchsorted(ends, mixed))
    start, length = ends[run - 1] + 1, ends[run] - ends[run - 1]
    run = np.repeat(np.arange(len(run)), length)
    place = np.arange(len(run)) + (start - np.cumsum(length) + length)[run]
    keys = np.concatenate(
      [
        self._exact(queries[part], columns[part])
        for part in np.array_split(place, -(-len(place) // _EXACT))
      ]
    )
    order = np.lexsort((columns[place], keys, run))
    relevant[place] = relevant[place[order]]

  def _exact(self, queries: np.ndarray, references: np.ndarray) -> np.ndarray:
    """[pairs] float64 keys, as `_order` has them."""
    x, y = self._queries[queries], self._references[references]
    if self._distance == "squared_euclidean":
      away = np.subtract(x, y, dtype=np.float64)
      return np.einsum("ij,ij->i", away, away)
    x, y = x.astype(np.float64), y.astype(np.float64)
    product = -np.einsum("ij,ij->i", y, x)
    if self._distance == "dot":
      return product
    length = np.sqrt(np.einsum("ij,ij->i", y, y))
    return np.divide(product, length, out=np.zeros_like(length), where=length != 0)


def _limits(values: np.ndarray, numbers: np.ndarray) -> np.ndarray:
  """[rows], keys that at least `numbers` [rows] of each row do not exceed.

  Of a sample as a rule, which is quicker than to look for the very one.
  """
  some = values[:, ::_SAMPLE]
  expected = numbers.max() / _SAMPLE
  place = min(int(expected + 2 * math.sqrt(expected)), some.shape[1] - 1)
  limit = np.partition(some, place, axis=1)[:, place]
  short = np.count_nonzero(values <= limit[:, None], axis=1) < numbers
  for i in np.flatnonzero(short):
    limit[i] = np.partition(values[i], numbers[i] - 1)[numbers[i] - 1]
  return limit
