"""References that are read from a file in tiles give the ranks of those in memory."""

import os

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import metrics
from spherejax.distances import _tiles
from spherejax.metrics import _tile_ranks
from tests.metrics.test_split_references import DIM, rows

ROWS = 90  # the duplicates among them are in other tiles


@pytest.fixture
def tiles(monkeypatch):
  """First row of every tile that is read; a tile has 32, so that the last has 26."""
  read, plain = [], _tiles.read
  monkeypatch.setattr(_tiles, "_BYTES", 32 * 4 * DIM)

  def watched(references, what):
    for first, tile in plain(references, what):
      read.append(first)
      yield first, tile

  monkeypatch.setattr(_tiles, "read", watched)
  return read


@pytest.fixture
def stored(tmp_path):
  """Writes rows to a file, and opens it."""

  def store(x):
    np.save(tmp_path / "embeddings.npy", x)
    return np.load(tmp_path / "embeddings.npy", mmap_mode="r")

  return store


LABELS = np.random.default_rng(1).integers(0, 12, ROWS)


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_retrieval_from_a_file(tiles, stored, kind, monkeypatch):
  monkeypatch.setattr(_tile_ranks, "_QUERIES", 48)  # two passes of queries
  x, each = rows(ROWS).astype(kind), np.arange(ROWS)
  options = {"where": each % 5 != 0, "reference_where": each % 7 != 2}
  options |= {"block_size": 16, "distance": "cosine"}
  alone = metrics.retrieval(x, LABELS, **options)
  found = metrics.retrieval(stored(x), LABELS, **options)
  chex.assert_trees_all_equal(found.first_rank, alone.first_rank)
  chex.assert_trees_all_close(found, alone, rtol=5e-7 if kind == np.float32 else 1e-3)
  assert max(tiles) == 64


def test_at_most_two_passes_for_each_block_of_queries(tiles, stored):
  x = np.random.default_rng(2).normal(size=(ROWS, DIM)).astype(np.float32)
  metrics.retrieval(x[:8], LABELS[:8], stored(x), LABELS, exclude=np.arange(8))
  assert tiles == [0, 32, 64]  # nothing in doubt
  tiles.clear()
  # Each relevant reference is there twice, once with another label.
  both, labels = np.concatenate([x[:45], x[:45]]), np.arange(ROWS) % 45 // 9
  labels[45:] += 10
  metrics.retrieval(both[:8], labels[:8], stored(both), labels, exclude=np.arange(8))
  assert tiles == [0, 32, 64] * 2
  tiles.clear()
  metrics.nearest(x[:8], stored(x), k=3)
  assert tiles == [0, 32, 64]


class Sliced:
  """Attributes of h5py data sets and zarr arrays, whose slices are the rows."""

  def __init__(self, x):
    self.shape, self.ndim, self.dtype = x.shape, x.ndim, x.dtype
    self._rows, self.most = x, 0

  def __getitem__(self, rows):
    assert isinstance(rows, slice)
    part = self._rows[rows]
    self.most = max(self.most, len(part))
    return part

  def __array__(self, dtype=None, copy=None):
    return self._rows.astype(dtype)


def test_what_is_read_by_slices_is_a_file(tiles, unchecked):
  x, few = rows(ROWS), np.arange(0, ROWS, 9)
  like = Sliced(x)
  options = {"exclude": few, "distance": "cosine"}
  alone = metrics.retrieval(x[few], LABELS[few], x, LABELS, **options)
  found = metrics.retrieval(x[few], LABELS[few], like, LABELS, **options)
  chex.assert_trees_all_equal(found.first_rank, alone.first_rank)
  chex.assert_trees_all_close(found, alone, rtol=5e-7)
  alone, found = (metrics.nearest(x[few], y, k=3, **options) for y in (x, like))
  np.testing.assert_array_equal(found, alone)
  assert set(tiles) == {0, 32, 64}
  small = (metrics.nearest(x[few], y, k=3) for y in (Sliced(x[:20]), x[:20]))
  np.testing.assert_array_equal(*small)


def test_rows_are_looked_up_in_short_stretches(monkeypatch):
  monkeypatch.setattr(_tiles, "_STRETCH", 10)
  x = rows(ROWS)
  for index in ([], [4], [0, 9, 10, 11, 45, 89]):
    like = Sliced(x)
    np.testing.assert_array_equal(_tiles.look_up(like, np.array(index, int)), x[index])
    assert like.most <= 10


def test_what_was_made_of_a_file_is_in_memory(tiles, stored):
  x = rows(ROWS)
  made = stored(x.astype(np.float64)).astype(np.float32)
  assert isinstance(made, np.memmap)
  np.testing.assert_array_equal(*(metrics.nearest(x[:3], y, k=2) for y in (made, x)))
  assert not tiles


def test_small_files_are_read_as_a_whole(stored, monkeypatch):
  monkeypatch.setattr(_tiles, "read", None)
  x = rows(ROWS)
  nearest = (metrics.nearest(x[:3], y, k=2) for y in (stored(x), x))
  np.testing.assert_array_equal(*nearest)


def test_a_file_that_was_cut_short_is_named(tiles, stored):
  x = rows(ROWS)
  held = stored(x)
  os.truncate(held.filename, 1000)
  for search in (
    lambda: metrics.nearest(x[:3], held, k=2),
    lambda: metrics.retrieval(x[:3], LABELS[:3], held, LABELS),
  ):
    with pytest.raises(ValueError, match=r"embeddings.npy was cut short: 1000 of"):
      search()


def test_errors_are_those_of_arrays(tiles, stored, unchecked):
  x = rows(ROWS)
  held = stored(x)
  with pytest.raises(ValueError, match=r"reference_labels must have shape \(90,\)"):
    metrics.retrieval(x, LABELS, held, LABELS[:9])
  with pytest.raises(ValueError, match="references must have the 3 columns"):
    metrics.nearest(jnp.ones((2, 3)), held, k=1)
  with pytest.raises(ValueError, match="k must be at most 90"):
    metrics.nearest(x, held, k=91)
  for search in (
    lambda x: metrics.nearest(x, held, k=2),
    lambda x: metrics.retrieval(x, LABELS, held, LABELS),
  ):
    with pytest.raises(TypeError, match=r"queries must be concrete, got a traced"):
      jax.eval_shape(search, x)
