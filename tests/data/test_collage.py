import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import data

# Every image is constant in a value of its own, but for a corner that shows flips.
FOREGROUND = np.tile(np.arange(12, dtype=np.uint8)[:, None, None, None], (1, 4, 6, 2))
POOL = FOREGROUND[:5] + 100
FOREGROUND[:, 0, 0, 1] = POOL[:, 0, 0, 1] = 255
LABELS = np.arange(12) % 3

compose = jax.jit(data.collages, static_argnames="grid")


@pytest.mark.parametrize("grid", [2, 3])
def test_each_tile_is_where_the_result_says(grid):
  result = compose(jax.random.key(0), FOREGROUND, LABELS, POOL, grid=grid)
  assert result.images.shape == (12, grid * 4, grid * 6, 2)
  assert result.images.dtype == jnp.uint8
  np.testing.assert_array_equal(result.labels, LABELS)
  assert result.foreground.shape == (12, grid, grid)
  assert result.background.shape == (12, grid**2 - 1)
  for number, collage in enumerate(np.asarray(result.images)):
    mask = np.asarray(result.foreground[number]).ravel()
    assert mask.sum() == 1
    tiles = collage.reshape(grid, 4, grid, 6, 2).swapaxes(1, 2).reshape(-1, 4, 6, 2)
    used = []
    for tile, front in zip(tiles, mask, strict=True):
      if front:
        np.testing.assert_array_equal(tile, FOREGROUND[number])
      else:
        used.append(int(tile[1, 1, 0]) - 100)
        np.testing.assert_array_equal(tile, POOL[used[-1]])
    assert sorted(used) == sorted(result.background[number].tolist())


def test_the_pool_is_dealt_out_evenly():
  result = compose(jax.random.key(1), FOREGROUND, LABELS, POOL)
  dealt = np.asarray(result.background).ravel()
  for start in range(0, len(dealt), 5):
    part = dealt[start : start + 5]
    assert len(set(part)) == len(part)
  counts = np.bincount(dealt, minlength=5)
  assert counts.sum() == 36
  assert counts.max() - counts.min() <= 1
  assert len({tuple(part) for part in dealt[:35].reshape(7, 5)}) > 1


def test_quadrants_are_equally_likely():
  count = 4000
  images = np.zeros([count, 1, 1, 1], np.float32)
  pool = np.arange(1, 4, dtype=np.float32)[:, None, None, None]
  result = compose(jax.random.key(2), images, np.zeros(count, int), pool)
  counts = np.asarray(result.foreground).reshape(count, 4).sum(0)
  assert ((counts - count / 4) ** 2 / (count / 4)).sum() < 30.7  # 3 d.o.f., 1e-6
  # A pool of three and three tiles: the order of the background is random too.
  arrangements = np.asarray(result.images).reshape(count, 4)
  kinds, counts = np.unique(arrangements, axis=0, return_counts=True)
  assert len(kinds) == 24
  assert ((counts - count / 24) ** 2 / (count / 24)).sum() < 70.5  # 23 d.o.f.


def test_a_key_gives_the_same_collages():
  first = compose(jax.random.key(3), FOREGROUND, LABELS, POOL)
  again = compose(jax.random.key(3), FOREGROUND, LABELS, POOL)
  other = compose(jax.random.key(4), FOREGROUND, LABELS, POOL)
  np.testing.assert_array_equal(first.images, again.images)
  assert (first.images != other.images).any()
  keys = jnp.stack([jax.random.key(4), jax.random.key(3)])
  many = jax.vmap(lambda key: compose(key, FOREGROUND, LABELS, POOL))(keys)
  np.testing.assert_array_equal(many.images, jnp.stack([other.images, first.images]))
