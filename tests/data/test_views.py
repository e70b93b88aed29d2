import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from spherejax import data
from spherejax.data import _augment

KEY = jax.random.key(9)
RANDOM = np.random.default_rng(4)
RGB = RANDOM.random([6, 12, 10, 3]).astype(np.float32)
NOTHING = data.ViewStrengths((1, 1), 0, 0, 0, 0, 0, 0, 0, 0)
# Strengths are traced: one program for each shape.
VIEWS = jax.jit(data.simclr_views, static_argnames=("size", "integer"))
BLUR = jax.jit(data.random_blur)


def views(images, size, *, integer=True, **strengths):
  """Views with only these strengths."""
  settings = jax.tree.map(float, NOTHING._replace(**strengths))
  return np.asarray(VIEWS(KEY, images, size=size, strengths=settings, integer=integer))


def within(events, number):
  """Whether so many yes of all draws are no surprise: three standard deviations."""
  error = np.sqrt(events.size * number * (1 - number))
  return abs(events.sum() - events.size * number) < 3 * error


@functools.partial(jax.jit, static_argnums=(0, 1))
def drawn_boxes(shape, area):
  def box(key):
    crop_key = jax.random.split(key, 5)[0]
    return _augment.random_box(crop_key, *shape[1:3], area, (3 / 4, 4 / 3), False)

  keys = jax.vmap(lambda key: jax.random.split(key, shape[0]))(jax.random.split(KEY))
  return jax.vmap(jax.vmap(box))(keys)


@pytest.mark.parametrize("size", [(4, 5), (25, 3)])
def test_crops_are_pillows(size):
  """Between pixels, which Pillow's argument `box` does: it looks beyond the box."""
  result = views(RGB, size, integer=False, scale=(0.3, 1))
  assert result.shape == (2, 6, *size, 3)
  # (top, left, height, width), as they are drawn.
  boxes = np.float64(drawn_boxes(RGB.shape, (0.3, 1.0)))
  share = boxes[..., 2] * boxes[..., 3] / 120
  assert 0.3 - 1e-5 <= share.min() <= share.max() <= 1 + 1e-5
  for view, number, channel in np.ndindex(2, 6, 3):
    plane = Image.fromarray(RGB[number, ..., channel])
    top, left, height, width = boxes[view, number]
    box = tuple(np.clip([left, top, left + width, top + height], 0, [10, 12, 10, 12]))
    expected = plane.resize(size[::-1], Image.Resampling.BILINEAR, box=box)
    np.testing.assert_allclose(result[view, number, ..., channel], expected, atol=1e-5)


def test_views_are_the_single_augmentations_one_after_another():
  strengths = data.ViewStrengths((0.3, 1), 0.4, 0.8, 0.6, 0.7, 0.2, 0.6, 0.3, 0.5)
  size = (4, 11)  # fewer rows, more columns

  def view(key, image):
    keys = jax.random.split(key, 5)
    image = data.random_resized_crop(keys[0], image, size=size, area=(0.3, 1))
    image = data.random_flip(keys[1], image, probability=0.4)
    image = data.color_jitter(
      keys[2], image, brightness=0.8, contrast=0.6, saturation=0.7, hue=0.2,
      probability=0.6,
    )  # fmt: skip
    image = data.random_grayscale(keys[3], image, probability=0.3)
    return data.random_blur(keys[4], image, probability=0.5)

  images = np.tile(RGB, (5, 1, 1, 1))
  keys = jnp.stack([jax.random.split(key, 30) for key in jax.random.split(KEY)])
  expected = jax.jit(jax.vmap(jax.vmap(view), (0, None)))(keys, images)
  numbers = jax.tree.map(float, strengths)
  made = np.asarray(VIEWS(KEY, images, size=size, strengths=numbers))
  np.testing.assert_allclose(made, expected, atol=2e-5)
  assert (np.abs(made[0] - made[1]).max((1, 2, 3)) > 0.01).all()
  assert 0 <= made.min() <= made.max() <= 1


@pytest.mark.parametrize("shape", [(12, 10), (40, 64), (3, 2)])
@pytest.mark.parametrize("sigma", [0.1, 0.7, 2.0])
def test_blur_is_scipys(shape, sigma):
  image = RANDOM.random([*shape, 2]).astype(np.float32)
  always, never = (
    BLUR(KEY, image, probability=p, sigma=(sigma, sigma)) for p in (1.0, 0.0)
  )
  options = {"mode": "mirror", "radius": max(1, min(shape) // 20), "axes": (0, 1)}
  expected = ndimage.gaussian_filter(image.astype(float), sigma, **options)
  np.testing.assert_allclose(always, expected, atol=2e-6)
  np.testing.assert_array_equal(never, image)


def test_blur_draws_its_width_and_whether():
  edge = np.zeros([2000, 4, 4, 1], np.float32)
  edge[:, :, 2:] = 1
  found = np.asarray(BLUR(KEY, edge))[:, 0, 1, 0]
  # The share of the neighbour, g / (1 + 2 g) with g = exp(-1 / (2 sigma^2)).
  # Below a width of 0.07 nothing of it is left in float32.
  assert within(found > 0, 0.5)
  sides = found[found > 0.02]
  sigma = np.sqrt(-0.5 / np.log(sides / (1 - 2 * sides)))
  assert 1.9 < sigma.max() <= 2 + 1e-3
  assert within(sigma[sigma > 0.5] < 1.25, 0.5)


def test_strengths_by_name():
  table = {
    "large": ((0.08, 1), 0.5, 0.4, 0.4, 0.4, 0.1, 0.8, 0.2, 0),
    "moderate": ((0.5, 1), 0.5, 0.2, 0.2, 0.2, 0.05, 0.8, 0.2, 0),
    "small": ((0.9, 1), 0, 0.04, 0.04, 0.04, 0.01, 0.8, 0.2, 0),
    "simclr": ((0.08, 1), 0.5, 0.8, 0.8, 0.8, 0.2, 0.8, 0.2, 0.5),
  }
  for name, numbers in table.items():
    strengths = data.view_strengths(name)
    assert strengths.scale == numbers[0]
    np.testing.assert_allclose(strengths[1:], numbers[1:], rtol=1e-12)
  default = inspect.signature(data.simclr_views).parameters["strengths"].default
  assert default == data.view_strengths("simclr")


def test_one_channel_has_no_colours():
  grey = RGB[..., :1]
  strengths = {"jitter": 1, "brightness": 0.5, "contrast": 0.5, "saturation": 1}
  found = views(grey, 8, hue=0.5, grayscale=1, **strengths)
  threefold = views(np.repeat(grey, 3, -1), 8, **strengths)
  np.testing.assert_allclose(found, threefold[..., :1], atol=1e-5)


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_constant_images(value):
  images = np.full([8, 9, 9, 3], value, np.float32)
  strengths = data.view_strengths("large")._replace(brightness=0.0, blur=0.5)
  found = VIEWS(KEY, images, size=7, strengths=jax.tree.map(float, strengths))
  np.testing.assert_allclose(found, value, atol=1e-6)


def test_strengths_may_be_traced_and_gradients_are_finite():
  names = "large", "small", "simclr"
  settings = [jax.tree.map(float, data.view_strengths(name)) for name in names]
  together = jax.tree.map(lambda *numbers: np.float32(numbers), *settings)

  def augment(strengths):
    return data.simclr_views(KEY, RGB, size=6, strengths=strengths)

  found = jax.jit(jax.vmap(augment))(together)
  alone = [VIEWS(KEY, RGB, size=6, strengths=strengths) for strengths in settings]
  np.testing.assert_allclose(found, alone, atol=1e-5)
  gradient = jax.jit(jax.grad(lambda x: (data.simclr_views(KEY, x, size=6) ** 2).sum()))
  for images in (RGB, np.ones_like(RGB), np.full_like(RGB, 0.5)):
    assert np.isfinite(gradient(images)).all()


def test_half_precision_is_the_rounded_single_one():
  half = RGB.astype(jnp.bfloat16)
  found = VIEWS(KEY, half, size=6)
  assert found.dtype == jnp.bfloat16
  exact = np.asarray(VIEWS(KEY, half.astype(np.float32), size=6))
  np.testing.assert_array_equal(found, exact.astype(jnp.bfloat16))
