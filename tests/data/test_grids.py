"""Grids of images: what lies in the cells, and how it is drawn."""

import functools

import jax
import numpy as np
from scipy import ndimage, stats

from spherejax import data

# Image i is i + 1 wherever it is not a ramp, so that a cell tells which it is.
RAMP = np.linspace(0.0, 0.5, 12).reshape(3, 2, 2)
IMAGES = (np.arange(1, 8)[:, None, None, None] + RAMP[None]).astype(np.float32)
LABELS = np.array([5, 2, 2, 9, 2, 5, 2])


@functools.cache
def drawer(**options):
  draw = functools.partial(data.image_grid, columns=3, **options)
  return jax.jit(jax.vmap(lambda key: draw(key, IMAGES, LABELS)))


def draw(number, seed=0, **options):
  keys = jax.random.split(jax.random.key(seed), number)
  return jax.tree.map(np.asarray, drawer(**options)(keys))


def in_cells(images):
  """[n, 12, 3, 2, 2]: the cells of grids of 4 x 3."""
  return images.reshape(-1, 4, 3, 3, 2, 2).swapaxes(2, 3).reshape(-1, 12, 3, 2, 2)


def test_cells_show_their_images_and_others_are_zero():
  grids = draw(300)
  assert grids.image.shape == (300, 12, 6, 2)
  cells, chosen = in_cells(grids.image), grids.cells.reshape(300, 12)
  np.testing.assert_array_equal((chosen >= 0).sum(1), grids.num_objects)
  np.testing.assert_array_equal(cells[chosen < 0], 0)
  np.testing.assert_array_equal(cells[chosen >= 0], IMAGES[chosen[chosen >= 0]])
  np.testing.assert_array_equal(grids.label, -1)
  jax.tree.map(np.testing.assert_array_equal, grids, draw(300))
  assert (draw(300, seed=1).image != grids.image).any()


def test_counts_cells_and_images_are_uniform():
  grids = draw(2400)
  found = np.bincount(grids.num_objects, minlength=13)
  assert found[0] == 0
  assert stats.chisquare(found[1:]).pvalue > 1e-3
  # 12 cells hold 6.5 images on average, each cell as often as another.
  filled = (grids.cells >= 0).reshape(2400, 12).sum(0)
  assert np.abs(filled / 2400 - 6.5 / 12).max() < 0.05
  own = grids.cells[grids.cells >= 0]
  assert np.abs(np.bincount(own, minlength=7) / len(own) - 1 / 7).max() < 0.01


def test_one_label_takes_classes_uniformly_and_images_within():
  grids = draw(2400, single_label=True, min_count=0)
  assert (grids.num_objects == 0).any()
  for label, cells in zip(grids.label, grids.cells, strict=True):
    assert set(LABELS[cells[cells >= 0]]) <= {label}
  # Class 9 has one image and is as frequent as class 2, which has four.
  share = [(grids.label == label).mean() for label in (2, 5, 9)]
  np.testing.assert_allclose(share, 1 / 3, atol=0.035)
  own = np.bincount(grids.cells[grids.cells >= 0], minlength=7)
  np.testing.assert_allclose(own[LABELS == 2] / own[LABELS == 2].sum(), 0.25, atol=0.02)
  again = draw(2400, single_label=True, min_count=0)
  np.testing.assert_array_equal(again.image, grids.image)


def test_noise_has_the_moments_of_the_images():
  grids = draw(2400, fill="random")
  cells = in_cells(grids.image)
  chosen = grids.cells.reshape(2400, 12)
  np.testing.assert_array_equal(cells[chosen >= 0], IMAGES[chosen[chosen >= 0]])
  noise = cells[chosen < 0]
  axes = (0, 1, 2)
  assert (np.abs(noise.mean(axes) - IMAGES.mean(axes)) < 0.02).all()
  assert (np.abs(noise.std(axes) / IMAGES.std(axes) - 1) < 0.01).all()
  assert noise.min() < 0  # not clipped
  first, second = noise[:, 0, 0, 0], noise[:, 0, 0, 1]
  assert abs(np.corrcoef(first, second)[0, 1]) < 0.05


def test_a_blurred_image_lies_under_the_objects():
  grids = draw(40, fill="blur", min_count=0)

  # What scipy makes of each image; weights beyond the border count for nothing there.
  def blur(images):
    options = {"mode": "constant", "truncate": 30, "axes": (1, 2)}
    return ndimage.gaussian_filter(images, 0.75, **options)

  enlarged = np.asarray(jax.image.resize(IMAGES, (7, 12, 6, 2), "bilinear"))
  blurred = blur(enlarged) / blur(np.ones_like(enlarged))
  under = np.repeat(np.repeat(grids.cells < 0, 3, axis=1), 2, axis=2)
  used = set()
  for image, empty, chosen in zip(grids.image, under, grids.cells, strict=True):
    if empty.any():
      errors = np.abs(image - blurred)[:, empty].max((1, 2))
      assert errors.min() < 1e-4
      used.add(int(errors.argmin()))
    shown = in_cells(image[None])[0][chosen.ravel() >= 0]
    np.testing.assert_array_equal(shown, IMAGES[chosen[chosen >= 0]])
  assert len(used) > 3
