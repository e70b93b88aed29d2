"""Collages, and grids of images: what lies in the cells, and how it is drawn."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import ndimage, stats

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

  keys = jax.random.split(jax.random.key(3))
  first, other = map(images, keys)
  assert (first != other).any()
  np.testing.assert_array_equal(jax.vmap(images)(keys), [first, other])


# --- Grids ---

# Image i is i + 1 wherever it is not a ramp, so that a cell tells which it is.
RAMP = np.linspace(0.0, 0.5, 12).reshape(3, 2, 2)
OBJECTS = (np.arange(1, 8)[:, None, None, None] + RAMP[None]).astype(np.float32)
KINDS = np.array([5, 2, 2, 9, 2, 5, 2])


def draw(number, **options):
  grid = functools.partial(data.image_grid, columns=3, **options)
  keys = jax.random.split(jax.random.key(0), number)
  grids = jax.jit(jax.vmap(lambda key: grid(key, OBJECTS, KINDS)))(keys)
  return jax.tree.map(np.asarray, grids)


def in_cells(images):
  """[n, 12, 3, 2, 2]: the cells of grids of 4 x 3."""
  return images.reshape(-1, 4, 3, 3, 2, 2).swapaxes(2, 3).reshape(-1, 12, 3, 2, 2)


def test_cells_show_their_images_and_all_are_drawn_uniformly():
  grids = draw(2400)
  assert grids.image.shape == (2400, 12, 6, 2)
  cells, chosen = in_cells(grids.image), grids.cells.reshape(2400, 12)
  np.testing.assert_array_equal((chosen >= 0).sum(1), grids.num_objects)
  np.testing.assert_array_equal(cells[chosen < 0], 0)
  np.testing.assert_array_equal(cells[chosen >= 0], OBJECTS[chosen[chosen >= 0]])
  np.testing.assert_array_equal(grids.label, -1)
  found = np.bincount(grids.num_objects, minlength=13)
  assert found[0] == 0
  assert stats.chisquare(found[1:]).pvalue > 1e-3
  # 12 cells hold 6.5 images on average, each cell as often as another.
  filled = (chosen >= 0).sum(0)
  assert np.abs(filled / 2400 - 6.5 / 12).max() < 0.05
  own = grids.cells[grids.cells >= 0]
  assert np.abs(np.bincount(own, minlength=7) / len(own) - 1 / 7).max() < 0.01


def test_one_label_takes_classes_uniformly_and_images_within():
  grids = draw(2400, single_label=True, min_count=0)
  assert (grids.num_objects == 0).any()
  for label, cells in zip(grids.label, grids.cells, strict=True):
    assert set(KINDS[cells[cells >= 0]]) <= {label}
  # Class 9 has one image and is as frequent as class 2, which has four.
  share = [(grids.label == label).mean() for label in (2, 5, 9)]
  np.testing.assert_allclose(share, 1 / 3, atol=0.035)
  own = np.bincount(grids.cells[grids.cells >= 0], minlength=7)
  np.testing.assert_allclose(own[KINDS == 2] / own[KINDS == 2].sum(), 0.25, atol=0.02)


def test_noise_has_the_moments_of_the_images():
  grids = draw(2400, fill="random")
  cells = in_cells(grids.image)
  chosen = grids.cells.reshape(2400, 12)
  np.testing.assert_array_equal(cells[chosen >= 0], OBJECTS[chosen[chosen >= 0]])
  noise = cells[chosen < 0]
  axes = (0, 1, 2)
  assert (np.abs(noise.mean(axes) - OBJECTS.mean(axes)) < 0.02).all()
  assert (np.abs(noise.std(axes) / OBJECTS.std(axes) - 1) < 0.01).all()
  assert noise.min() < 0  # not clipped
  first, second = noise[:, 0, 0, 0], noise[:, 0, 0, 1]
  assert abs(np.corrcoef(first, second)[0, 1]) < 0.05


def test_a_blurred_image_lies_under_the_objects():
  grids = draw(40, fill="blur", min_count=0)

  # What scipy makes of each image; weights beyond the border count for nothing there.
  def blur(images):
    options = {"mode": "constant", "truncate": 30, "axes": (1, 2)}
    return ndimage.gaussian_filter(images, 0.75, **options)

  enlarged = np.asarray(jax.image.resize(OBJECTS, (7, 12, 6, 2), "bilinear"))
  blurred = blur(enlarged) / blur(np.ones_like(enlarged))
  under = np.repeat(np.repeat(grids.cells < 0, 3, axis=1), 2, axis=2)
  used = set()
  for image, empty, chosen in zip(grids.image, under, grids.cells, strict=True):
    if empty.any():
      errors = np.abs(image - blurred)[:, empty].max((1, 2))
      assert errors.min() < 1e-4
      used.add(int(errors.argmin()))
    shown = in_cells(image[None])[0][chosen.ravel() >= 0]
    np.testing.assert_array_equal(shown, OBJECTS[chosen[chosen >= 0]])
  assert len(used) > 3
