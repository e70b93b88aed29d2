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
    np.testing.assert_array_equal(tiles[mask], FOREGROUND[number][None])
    used = np.int32(tiles[~mask][:, 1, 1, 0]) - 100
    np.testing.assert_array_equal(tiles[~mask], POOL[used])
    assert sorted(used.tolist()) == sorted(result.background[number].tolist())


def test_the_pool_is_dealt_out_evenly():
  result = compose(jax.random.key(1), FOREGROUND, LABELS, POOL)
  # 36 tiles in seven rounds through the pool, which differ, and a tile of an eighth.
  dealt = np.asarray(result.background).ravel()
  assert dealt.shape == (36,)
  assert dealt[-1] in range(5)
  rounds = dealt[:35].reshape(7, 5)
  np.testing.assert_array_equal(np.sort(rounds, axis=1), [range(5)] * 7)
  assert len(np.unique(rounds, axis=0)) > 1


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
  def images(key):
    return compose(key, FOREGROUND, LABELS, POOL).images

  first, again, other = (images(jax.random.key(seed)) for seed in (3, 3, 4))
  np.testing.assert_array_equal(first, again)
  assert (first != other).any()
  keys = jnp.stack([jax.random.key(4), jax.random.key(3)])
  np.testing.assert_array_equal(jax.vmap(images)(keys), [other, first])
