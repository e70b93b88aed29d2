"""Canvases against loops of the definition, and what stays as it was."""

import dataclasses
import functools
from unittest import mock

import numpy as np
import pytest

from spherejax import data
from spherejax.data import _images

RANDOM = np.random.default_rng(0)


def triangle(values, size):
  """Bilinear interpolation with antialiasing along the first axis."""
  scale = len(values) / size
  places, centres = np.arange(len(values)) + 0.5, (np.arange(size) + 0.5) * scale
  weights = np.maximum(0, 1 - np.abs(places - centres[:, None]) / scale)
  return np.tensordot(weights / weights.sum(1, keepdims=True), values, 1)


def test_larger_images_are_scaled_down_and_smaller_ones_stay():
  image = RANDOM.integers(0, 256, (40, 27, 4), np.uint8)
  found = data.fit_canvas(image, 16, fill=7)
  assert found.shape == (16, 16, 4)
  columns = 11  # 27 x 16 / 40 = 10.8
  expected = triangle(triangle(image.astype(float), 16).swapaxes(0, 1), columns)
  left = (16 - columns) // 2
  inside = found[:, left : left + columns]
  assert np.abs(inside - expected.swapaxes(0, 1)).max() <= 1  # rounded twice
  assert (np.delete(found, range(left, left + columns), axis=1) == 7).all()
  # The same image on a canvas that it fits into, and on one of twice the side.
  for side in (40, 80):
    found = data.fit_canvas(image, side, fill=7)
    top, left = (side - 40) // 2, (side - 27) // 2
    np.testing.assert_array_equal(found[top : top + 40, left : left + 27], image)
    assert (found == 7).sum() >= (side**2 - 40 * 27) * 4


def test_areas_and_borders():
  for size in (1, 8, 297, 299):
    found = data.fit_canvas(np.zeros((size, size), np.uint8), 299, fill=255)
    assert (found == 0).sum() == size**2
    border = np.concatenate([found[0], found[-1], found[:, 0], found[:, -1]])
    assert border.mean() == (0 if size == 299 else 255)
  thin = data.fit_canvas(np.zeros((1000, 5), np.uint8), 299, fill=255)
  np.testing.assert_array_equal((thin == 0).any(0).ravel().nonzero()[0], [149])
  assert (thin == 0).sum() == 299


def test_blocks_are_averaged_and_rounded_half_up():
  image = RANDOM.integers(0, 256, (5, 6, 1), np.uint8)
  whole = data.fit_canvas(image, 6, fill=9)
  found = data.fit_canvas(image, 6, fill=9, shrink=2)
  means = whole.reshape(3, 2, 3, 2).mean((1, 3))
  np.testing.assert_array_equal(found[..., 0], np.floor(means + 0.5))


def test_functions_may_write_into_their_image():
  pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3, 1)
  images = data.from_arrays(pixels.copy(), np.array([0, 1]))

  def cleared(image):
    image[:2] = 0
    return image

  right = pixels * (np.arange(3) == 2)[:, None, None]
  np.testing.assert_array_equal(data.map_images(images, cleared).images, right)
  np.testing.assert_array_equal(images.images, pixels)


def test_every_image_of_a_set_lazy_or_not():
  sizes = [(3, 5), (9, 2), (4, 4)]
  pixels = [np.full((*size, 1), i, np.uint8) for i, size in enumerate(sizes)]
  labels, names = np.arange(3, dtype=np.int32), ("a", "b", "c")
  fit = functools.partial(data.fit_canvas, side=4, fill=9)
  listed = data.Images(pixels, labels, names, {"n": labels})
  found = data.map_images(listed, fit)
  assert isinstance(found.images, np.ndarray)
  np.testing.assert_array_equal(found.images, np.stack([fit(one) for one in pixels]))
  np.testing.assert_array_equal(found.extras["n"], labels)
  read = mock.Mock(wraps=pixels.__getitem__)
  lazy = dataclasses.replace(listed, images=_images.Lazy(read, np.arange(3)))
  later = data.map_images(lazy, fit)[[2, 0]]
  read.reset_mock()  # type checks may have looked
  np.testing.assert_array_equal(later.images[1], found.images[0])
  read.assert_called_once_with(0)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize(
  ("wrong", "kind", "message"),
  [
    (np.zeros((9, 2, 1)), TypeError, "be uint8, got dtype float64"),
    (np.zeros((9, 2), np.uint8), ValueError, r"have 3 axes, got shape \(9, 2\)"),
    (np.zeros((0, 2, 1), np.uint8), ValueError, r"have a pixel, got shape \(0, 2, 1\)"),
  ],
)
def test_what_is_no_image_is_refused_when_it_comes(lazy, wrong, kind, message):
  pixels = [np.zeros((*size, 1), np.uint8) for size in [(3, 5), (9, 2)]]
  source = _images.Lazy(pixels.__getitem__, np.arange(2)) if lazy else pixels
  images = data.Images(source, np.zeros(2, np.int32), ("a",))
  second = lambda image: wrong if len(image) == 9 else image  # noqa: E731
  with pytest.raises(kind, match=f"image 1, mapped, must {message}"):
    data.map_images(images, second).images[1]
