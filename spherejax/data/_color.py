"""Pixel values: scaling, and colour augmentations as functions of a key and images."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Key, Real

from spherejax import _checks, _numerics
from spherejax.data._augment import floating_images, per_image

# Luma of ITU-R BT.601, as in Pillow. torchvision's tensors take 0.2989 for red; the sum
# is then 0.9999, so grey images would change.
LUMA = (0.299, 0.587, 0.114)


def to_float(images: Real[ArrayLike, "*shape"]) -> Float[Array, "*shape"]:
  """Scales pixels to [0, 1]: uint8 divided by 255, as float32.

  Args:
    images: any shape, uint8; floating images are returned as they are.

  Returns:
    The shape of `images`, float32 for uint8.

  Raises:
    TypeError: integers other than uint8.

  Differentiable in: floating images. Cost: O(pixels).

  Source: none.

  Example:
    >>> spherejax.data.to_float(jnp.array([0, 255], jnp.uint8))
    Array([0., 1.], dtype=float32)
  """
  images = _checks.array("images", images)
  if jnp.issubdtype(images.dtype, jnp.floating):
    return images
  if images.dtype != jnp.uint8:
    raise TypeError(f"images must be uint8 or floating, got dtype {images.dtype}")
  return images.astype(jnp.float32) / 255


def normalize(
  images: Float[ArrayLike, "*batch height width channels"],
  mean: Float[ArrayLike, " channels"] | Sequence[float],
  std: Float[ArrayLike, " channels"] | Sequence[float],
) -> Float[Array, "*batch height width channels"]:
  """Standardises channels: (images - mean) / std.

  Args:
    images: [..., height, width, channels], floating.
    mean: [channels], in the unit of the images.
    std: [channels], positive, in the unit of the images.

  Returns:
    The shape and dtype of `images`.

  Raises:
    ValueError: shapes do not match, std not positive.
    TypeError: images not floating.

  Differentiable in: images, mean, std. Cost: O(pixels).

  Source: none.

  Example:
    >>> spherejax.data.normalize(jnp.ones([1, 1, 2]), [0.5, 0.5], [0.5, 0.25])
    Array([[[1., 2.]]], dtype=float32)
  """
  images = floating_images(images)
  _checks.known_finite("mean", mean)
  _checks.positive("std", std)
  mean = jnp.asarray(mean, images.dtype)
  std = jnp.asarray(std, images.dtype)
  channels = images.shape[-1:]
  _checks.shape("mean", mean, channels, f"images {images.shape}")
  _checks.shape("std", std, channels, f"images {images.shape}")
  axes = tuple(range(images.ndim - 1))
  return (images - jnp.expand_dims(mean, axes)) / jnp.expand_dims(std, axes)


def random_brightness(
  key: Key[Array, ""],
  images: Float[ArrayLike, "*batch height width channels"],
  *,
  strength: Real[ArrayLike, ""] = 0.4,
) -> Float[Array, "*batch height width channels"]:
  """Multiplies each image by one factor, uniform in [1 - strength, 1 + strength].

  Args:
    key: draws the factor.
    images: [..., height, width, channels], floating, in [0, 1].
    strength: in [0, 1], may be traced.

  Returns:
    The shape and dtype of `images`, clipped to [0, 1].

  Raises:
    ValueError: a strength outside [0, 1].
    TypeError: images not floating.

  Differentiable in: images, strength. Cost: O(pixels).

  Source: Howard 2013, "Some improvements on deep convolutional neural network based
  image classification", section 2; the default is that of Chen et al. 2020, "A
  simple framework for contrastive learning", at half strength.

  Example:
    >>> image = jnp.full([1, 1, 1], 0.5)
    >>> spherejax.data.random_brightness(jax.random.key(0), image, strength=0)
    Array([[[0.5]]], dtype=float32)
  """
  _checks.key("key", key)
  images = floating_images(images)
  _checks.between("strength", strength, 0, 1)

  def brighten(key, image):
    wide = _numerics.upcast(image)
    brighter = wide * (1 + change(key, strength, wide.dtype))
    return jnp.clip(brighter, 0, 1).astype(image.dtype)

  return per_image(brighten, key, images)


def random_contrast(
  key: Key[Array, ""],
  images: Float[ArrayLike, "*batch height width channels"],
  *,
  strength: Real[ArrayLike, ""] = 0.4,
) -> Float[Array, "*batch height width channels"]:
  """Moves each image away from, or towards, its mean grey by one factor.

      grey + factor (image - grey),  factor uniform in [1 - strength, 1 + strength]

  Args:
    key: draws the factor.
    images: [..., height, width, channels], floating, in [0, 1]; 3 channels are RGB; for
      any other number, the grey is the mean of the channels.
    strength: in [0, 1], may be traced.

  Returns:
    The shape and dtype of `images`, clipped to [0, 1].

  Raises:
    ValueError: a strength outside [0, 1].
    TypeError: images not floating.

  Differentiable in: images, strength. Cost: O(pixels).

  Source: as `random_brightness`.

  Example:
    >>> image = jnp.array([0.0, 1.0]).reshape(1, 2, 1)
    >>> spherejax.data.random_contrast(jax.random.key(0), image, strength=0).ravel()
    Array([0., 1.], dtype=float32)
  """
  _checks.key("key", key)
  images = floating_images(images)
  _checks.between("strength", strength, 0, 1)

  def stretch(key, image):
    wide, mean = _numerics.upcast(image), mean_grey(image)
    factor = 1 + change(key, strength, wide.dtype)
    return jnp.clip(mean + factor * (wide - mean), 0, 1).astype(image.dtype)

  return per_image(stretch, key, images)


def random_grayscale(
  key: Key[Array, ""],
  images: Float[ArrayLike, "*batch height width channels"],
  *,
  probability: Real[ArrayLike, ""] = 0.2,
) -> Float[Array, "*batch height width channels"]:
  """Turns each image grey with a probability, with its luma in all three channels.

      luma = 0.299 red + 0.587 green + 0.114 blue

  torchvision takes 0.2989 for red, which would darken grey images.

  Args:
    key: draws which images turn grey.
    images: [..., height, width, channels], floating; RGB, or with one channel, which
      stays as it is.
    probability: of the grey image, in [0, 1], may be traced.

  Returns:
    The shape and dtype of `images`.

  Raises:
    ValueError: neither 1 nor 3 channels; a probability outside [0, 1].
    TypeError: images not floating.

  Differentiable in: images. Cost: O(pixels).

  Source: ITU-R BT.601; the default is that of Chen et al. 2020, "A simple framework
  for contrastive learning", appendix A.

  Example:
    >>> red = jnp.array([1.0, 0.0, 0.0]).reshape(1, 1, 3)
    >>> spherejax.data.random_grayscale(jax.random.key(0), red, probability=1).ravel()
    Array([0.299, 0.299, 0.299], dtype=float32)
  """
  _checks.key("key", key)
  images = floating_images(images)
  _checks.between("probability", probability, 0, 1)
  _checks.single("probability", probability)
  if images.shape[-1] not in (1, 3):
    raise ValueError(f"images must have 1 or 3 channels, got shape {images.shape}")

  def bleach(key, image):
    chosen = jax.random.uniform(key) < probability
    bleached = grey(_numerics.upcast(image)).astype(image.dtype)
    return jnp.where(chosen, jnp.broadcast_to(bleached, image.shape), image)

  return per_image(bleach, key, images)


def mean_grey(image: Array, axis: int = -1) -> Array:
  """Mean luma of an image with 3 channels on `axis`; mean of the channels otherwise.

  Uses a product, ten times faster here than a reduction, and never half precision.
  """
  image = _numerics.upcast(image)
  channels = image.shape[axis]
  weights = jnp.asarray(LUMA if channels == 3 else [1 / channels], image.dtype)
  weights = weights * (channels / image.size)
  shape = [1] * image.ndim
  shape[axis] = weights.size
  spread = jnp.broadcast_to(weights.reshape(shape), image.shape)
  return _numerics.product(image.ravel(), spread.ravel())


def change(key: Key[Array, ""], strength: ArrayLike, dtype: jnp.dtype) -> Array:
  """Draws a number in [-strength, strength]."""
  return _checks.scalar("strength", strength, dtype) * jax.random.uniform(
    key, (), dtype, minval=-1, maxval=1
  )


def grey(image: Array, axis: int = -1) -> Array:
  """Luma of RGB, the mean of the channels of anything else; one channel on `axis`."""
  if image.shape[axis] != 3:
    return image.mean(axis, keepdims=True)
  red, green, blue = jnp.split(image, 3, axis)
  return LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue
