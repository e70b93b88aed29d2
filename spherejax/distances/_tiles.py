"""References in a file, read in tiles; the device holds one tile at a time."""

import concurrent.futures
import functools
import mmap
from collections.abc import Iterator
from typing import Any, Protocol, TypeGuard, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from spherejax.distances import _order
from spherejax.distances._order import Distance

_BYTES = 2**27  # bytes of a tile in float32; a smaller file is read as a whole
_STRETCH = 1024  # rows; one slice reads all that are looked up among them
_WAIT = 10  # seconds until a bar shows the progress


@runtime_checkable
class Stored(Protocol):
  """References read by slices: a `np.memmap`, an h5py data set, a zarr array."""

  shape: tuple[int, ...]
  dtype: Any
  ndim: int

  def __getitem__(self, rows: slice, /) -> Any: ...
  def __array__(self) -> np.ndarray: ...


def in_file(value: Any) -> TypeGuard[Stored]:
  """True if a value is read in tiles: not an array in memory, larger than a tile."""
  if isinstance(value, Array) or not isinstance(value, Stored) or value.ndim != 2:
    return False
  if isinstance(value, np.ndarray) and getattr(value, "_mmap", None) is None:
    return False
  # Values that are not floating go to the checks of arrays.
  if not isinstance(value.dtype, np.dtype) or not jnp.issubdtype(
    value.dtype, jnp.floating
  ):
    return False
  wide = jax.dtypes.canonicalize_dtype(value.dtype) == jnp.float64
  return not wide and value.shape[0] > _rows(value)


def _rows(references: Stored) -> int:
  return max(1, _BYTES // (4 * max(1, references.shape[1])))


def read(references: Stored, what: str) -> Iterator[tuple[int, np.ndarray]]:
  """Yields the first row and the rows of each tile in float32; a thread reads ahead.

  The last tile is filled up with NaN, so that one program serves all tiles. A pass of
  more than ten seconds shows a progress bar named `what`.
  """
  import tqdm

  count, rows = references.shape[0], _rows(references)

  def load(first: int) -> np.ndarray:
    part = take(references, slice(first, first + rows)).astype(np.float32, copy=False)
    missing = rows - len(part)
    return (
      np.pad(part, ((0, missing), (0, 0)), constant_values=np.nan) if missing else part
    )

  starts = range(0, count, rows)
  with concurrent.futures.ThreadPoolExecutor(1) as pool:
    following = pool.submit(load, 0)
    bar = tqdm.tqdm(starts, what, unit="tile", delay=_WAIT, leave=False)
    for first in bar:
      tile = following.result()
      if first + rows < count:
        following = pool.submit(load, first + rows)
      yield first, tile


def take(references: Stored, rows: slice) -> np.ndarray:
  """Copies rows, and keeps none of a memory-mapped file's pages.

  Raises ValueError where such a file no longer holds the rows; otherwise the process
  would crash.
  """
  if not isinstance(references, np.memmap):
    return np.asarray(references[rows])
  held = references._mmap  # pyright: ignore[reportAttributeAccessIssue]
  start = references.offset - references.offset % mmap.ALLOCATIONGRANULARITY
  if held.size() < start + len(held):
    raise ValueError(
      f"references must hold {references.shape}, but {references.filename} was cut "
      f"short: {held.size()} of {start + len(held)} bytes are left"
    )
  part = np.array(references[rows])
  # A page that was read counts as memory of the process until it is dropped. Pages of a
  # private copy are kept: its changes would be lost with them.
  if references.mode in ("r", "r+", "w+") and hasattr(mmap, "MADV_DONTNEED"):
    held.madvise(mmap.MADV_DONTNEED)
  return part


def look_up(references: Stored, index: np.ndarray) -> np.ndarray:
  """Looks up the rows of a sorted index, by one slice for each stretch of it.

  Reading a single row maps megabytes of the file around it.
  """
  if not len(index):
    return take(references, slice(0))
  stretches = np.split(index, np.flatnonzero(np.diff(index // _STRETCH)) + 1)
  parts = [take(references, slice(i[0], i[-1] + 1))[i - i[0]] for i in stretches]
  return np.concatenate(parts)


@functools.partial(jax.jit, static_argnames=("k", "distance", "block_size"))
def _nearest(
  queries: Array,
  tile: Array,
  left_out: Array,
  *,
  k: int,
  distance: Distance,
  block_size: int,
) -> tuple[Array, Array]:
  """[queries, k], the nearest of one tile, and their keys in float64."""
  among = _order.nearest(
    queries, tile, left_out, k=k, distance=distance, block_size=block_size
  )
  keys = _order.keys(
    queries, tile, among, left_out, distance=distance, block_size=block_size
  )
  return among, keys


def nearest(
  queries: Array,
  references: Stored,
  left_out: np.ndarray,
  *,
  k: int,
  distance: Distance,
  block_size: int,
) -> Array:
  """Finds the k nearest like `_order.nearest`, in one pass over the tiles."""
  keys, indices = np.empty((len(queries), 0)), np.empty((len(queries), 0), np.int32)
  for first, tile in read(references, "nearest"):
    among, neighbours = _nearest(
      queries,
      tile,
      local(left_out, first, len(tile)),
      k=min(k, len(tile)),
      distance=distance,
      block_size=block_size,
    )
    # Filled rows come last: they have no key, and the highest indices.
    keys = np.concatenate([keys, np.asarray(neighbours)], axis=1)
    indices = np.concatenate([indices, np.asarray(among) + np.int32(first)], axis=1)
    order = np.lexsort((indices, keys), axis=1)[:, :k]
    keys, indices = (np.take_along_axis(v, order, axis=1) for v in (keys, indices))
  return jnp.asarray(indices)


def local(index: np.ndarray, first: int, count: int) -> np.ndarray:
  """Converts indices of references to indices in a tile, -1 for rows outside it."""
  inside = (index >= first) & (index < first + count)
  return np.where(inside, index - first, -1).astype(np.int32)
