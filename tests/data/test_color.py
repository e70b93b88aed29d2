import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import data

KEY = jax.random.key(2)
RGB = np.random.default_rng(3).random([5, 4, 3]).astype(np.float32)
MANY = np.tile(RGB, (2000, 1, 1, 1))
LUMA = np.array([0.299, 0.587, 0.114])


def test_uint8_becomes_unit_interval():
  scaled = data.to_float(np.arange(256, dtype=np.uint8))
  assert scaled.dtype == jnp.float32
  np.testing.assert_allclose(scaled, np.arange(256) / 255.0, rtol=1e-7)
  half = jnp.ones(3, jnp.bfloat16)
  assert data.to_float(half).dtype == jnp.bfloat16
  np.testing.assert_array_equal(data.to_float(half), half)


def test_normalize_standardises_channels():
  mean, std = (0.1, 0.2, 0.3), np.float32([0.5, 1, 2])
  for images in (RGB, MANY[:2]):
    result = data.normalize(images, mean, std)
    np.testing.assert_allclose(result, (images - mean) / std, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
  ("augment", "channels", "toward"),
  [
    (data.random_brightness, 3, lambda image: 0.0),
    (data.random_contrast, 3, lambda image: (image @ LUMA).mean()),
    (data.random_contrast, 1, lambda image: image.mean()),
    (data.random_saturation, 3, lambda image: (image @ LUMA)[..., None]),
  ],
)
def test_colours_move_by_one_factor_towards_another_image(augment, channels, toward):
  # Within [0.4, 0.6] and a factor below 1.5 nothing is clipped.
  images = 0.4 + 0.2 * MANY[..., :channels]
  result = np.asarray(jax.jit(augment)(KEY, images, strength=0.5))
  middle = toward(images[0].astype(float))
  steady = np.abs(images[0] - middle) > 0.02
  factors = ((result - middle) / (images - middle))[:, steady]
  rounding = 2e-6 / np.abs(images[0] - middle)[steady].min()
  np.testing.assert_allclose(factors, factors[:, :1] + 0 * factors, atol=rounding)
  factors = factors[:, 0]
  assert 0.5 - 1e-3 < factors.min() < factors.max() < 1.5 + 1e-3
  # Uniform: standard errors of mean and variance at 2000 draws, three of them.
  assert abs(factors.mean() - 1) < 3 * np.sqrt(1 / 12 / 2000)
  assert abs(factors.var() - 1 / 12) < 3 * np.sqrt(1 / 180 / 2000)


def test_colours_are_clipped():
  white = np.ones([50, 1, 1, 3], np.float32)
  for result in (
    data.random_brightness(KEY, white, strength=1),
    data.random_contrast(KEY, MANY[:50], strength=1),
  ):
    assert 0 <= result.min() <= result.max() == 1


def test_grayscale_is_luma():
  grey = np.asarray(data.random_grayscale(KEY, RGB, probability=1))
  np.testing.assert_allclose(grey, np.stack([RGB @ LUMA] * 3, -1), rtol=2e-5)
  np.testing.assert_array_equal(data.random_grayscale(KEY, RGB, probability=0), RGB)
  result = np.asarray(jax.jit(data.random_grayscale)(KEY, MANY))
  is_grey = np.isclose(result, grey, rtol=1e-5).all((1, 2, 3))
  is_same = (result == RGB).all((1, 2, 3))
  assert (is_grey ^ is_same).all()
  # Standard deviation sqrt(2000 x 0.2 x 0.8) = 17.9; five of them.
  assert abs(is_grey.sum() - 400) < 90
  red = RGB[..., :1]
  np.testing.assert_allclose(data.random_grayscale(KEY, red, probability=1), red)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_grey_images_stay_as_they_are_in_half_precision(dtype):
  grey = jnp.repeat(jnp.arange(256, dtype=dtype)[:, None, None, None] / 255, 3, -1)
  np.testing.assert_array_equal(data.random_grayscale(KEY, grey, probability=1), grey)
