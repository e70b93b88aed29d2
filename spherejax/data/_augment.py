"""Crops, flips and resizing: functions of a key and images, for vmap and jit.

Images are [..., height, width, channels]. Each image of a batch has its own draw, with
its key of `jax.random.split(key, leading axes)`.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Key, Real

from spherejax import _checks, _numerics
from spherejax.data._images import image_size

# Number of boxes tried before the centre is taken, as in torchvision.
_ATTEMPTS = 10


def resize(
  images: Float[ArrayLike, "*batch height width channels"], size: int | tuple[int, int]
) -> Float[Array, "*batch new_height new_width channels"]:
  """Resizes images bilinearly, with averaging where they shrink.

  Args:
    images: [..., height, width, channels], floating.
    size: static. (height, width), or the length of the shorter side, which keeps
      the aspect ratio up to rounding.

  Returns:
    [..., new height, new width, channels], dtype of `images`.

  Raises:
    ValueError: a size below 1.
    TypeError: images not floating.

  Differentiable in: images. Cost: O(pixels (height + width)).

  Source: the triangle filter of `jax.image.resize`, with antialiasing.

  Example:
    >>> spherejax.data.resize(jnp.ones([32, 64, 3]), 16).shape
    (16, 32, 3)
  """
  images = floating_images(images)
  if isinstance(size, (int, np.integer)):
    _checks.count("size", size)
    short = min(images.shape[-3:-1])
    height, width = (round(side * size / short) for side in images.shape[-3:-1])
  else:
    height, width = image_size(size)
  shape = (*images.shape[:-3], height, width, images.shape[-1])
  return jax.image.resize(images, shape, "bilinear")


def center_crop(
  images: Real[ArrayLike, "*batch height width channels"], size: int | tuple[int, int]
) -> Real[Array, "*batch new_height new_width channels"]:
  """Crops the middle of the images (half a pixel up and to the left for an odd margin).

  Args:
    images: [..., height, width, channels], any dtype.
    size: static. Side length or (height, width), at most that of the images.

  Returns:
    [..., new height, new width, channels], dtype of `images`.

  Raises:
    TypeError: size not an integer.
    ValueError: a size larger than the images.

  Differentiable in: images. Cost: O(pixels).

  Source: none.

  Example:
    >>> spherejax.data.center_crop(jnp.arange(9).reshape(3, 3, 1), 1)
    Array([[[4]]], dtype=int32)
  """
  images = some_images(images)
  height, width = _inner_size(images, size, 0)
  top = (images.shape[-3] - height) // 2
  left = (images.shape[-2] - width) // 2
  return images[..., top : top + height, left : left + width, :]


def random_crop(
  key: Key[Array, ""],
  images: Real[ArrayLike, "*batch height width channels"],
  *,
  size: int | tuple[int, int] | None = None,
  padding: int = 0,
) -> Real[Array, "*batch new_height new_width channels"]:
  """Crops each image at a uniformly random place, after padding with zeros.

  Args:
    key: draws the place.
    images: [..., height, width, channels], any dtype.
    size: static. Side length or (height, width) of the piece; None keeps that of
      the images, so that `padding=4` shifts by up to 4 pixels.
    padding: static. Zeros on each of the four sides.

  Returns:
    [..., new height, new width, channels], dtype of `images`.

  Raises:
    TypeError: key not a key of jax.random, padding not an integer.
    ValueError: a piece larger than the padded images, or without a pixel; a negative
      padding.

  Differentiable in: images. Cost: O(pixels).

  Source: He et al. 2016, "Deep residual learning for image recognition", section
  4.2 (padding 4 on CIFAR-10).

  Example:
    >>> images = jnp.ones([8, 32, 32, 3])
    >>> spherejax.data.random_crop(jax.random.key(0), images, padding=4).shape
    (8, 32, 32, 3)
  """
  _checks.key("key", key)
  images = some_images(images)
  _checks.count("padding", padding, 0)
  size = (images.shape[-3], images.shape[-2]) if size is None else size
  height, width = _inner_size(images, size, padding)
  channels = images.shape[-1]

  def crop(key, image):
    image = jnp.pad(image, ((padding, padding), (padding, padding), (0, 0)))
    limits = jnp.array([image.shape[0] - height, image.shape[1] - width])
    top, left = jax.random.randint(key, (2,), 0, limits + 1)
    return jax.lax.dynamic_slice(image, (top, left, 0), (height, width, channels))

  return per_image(crop, key, images)


def random_resized_crop(
  key: Key[Array, ""],
  images: Float[ArrayLike, "*batch height width channels"],
  *,
  size: int | tuple[int, int],
  area: tuple[Real[ArrayLike, ""], Real[ArrayLike, ""]] = (0.16, 1.0),
  aspect: tuple[Real[ArrayLike, ""], Real[ArrayLike, ""]] = (0.75, 4 / 3),
  integer: bool = True,
) -> Float[Array, "*batch new_height new_width channels"]:
  """Crops a random box of each image and resizes it to one size.

  The box has a share of the image's area drawn uniformly from `area` and a ratio width
  / height drawn log-uniformly from `aspect`; the first of ten boxes that fits is taken,
  else the largest central box of an allowed ratio. Its sides are rounded to whole
  pixels, and its corner is uniform among the possible corners. Interpolation is
  bilinear, with averaging where the box shrinks, and pixels outside the box have weight
  0 (so a NaN in the image spreads over the crop).

  Args:
    key: draws the box.
    images: [..., height, width, channels], floating.
    size: static. Side length or (height, width) of the result.
    area: smallest and largest share, in (0, 1]; may be traced. The default is that
      of the retrieval experiments; self-supervised learning takes (0.08, 1).
    aspect: smallest and largest width / height, positive; may be traced.
    integer: static. False keeps the drawn sides and corner, which lie between pixels;
      pixels just outside the box then count at its border. Boxes of nearly the whole
      image then fit more rarely than rounded boxes.

  Returns:
    [..., new height, new width, channels], dtype of `images`.

  Raises:
    ValueError: a size below 1; ranges that are not ascending or not positive.
    TypeError: images not floating, integer not boolean.

  Differentiable in: images. Cost: O(pixels (new height + new width)).

  Source: Szegedy et al. 2015, "Going deeper with convolutions", section 6, with the
  rounding and the ten attempts of torchvision's RandomResizedCrop; the defaults are
  those of DML 3.3.2.1 (0.16 is 40 / 256, rounded up).

  Example:
    >>> images = jnp.ones([8, 64, 48, 3])
    >>> spherejax.data.random_resized_crop(jax.random.key(0), images, size=32).shape
    (8, 32, 32, 3)
  """
  _checks.key("key", key)
  _checks.flag("integer", integer)
  images = floating_images(images)
  height, width = image_size(size)
  for name, ends, top in (("area", area, 1), ("aspect", aspect, jnp.inf)):
    low, high = _checks.interval(name, ends)
    _checks.between(f"{name}[0]", low, 0, top, low_open=True, high_open=top > 1)
    _checks.between(f"{name}[1]", high, 0, top, low_open=True, high_open=top > 1)
    _checks.between(f"{name}[1]", high, low)

  def crop(key, image):
    box = random_box(key, image.shape[0], image.shape[1], area, aspect, integer)
    planes = cut(_numerics.upcast(image), box, (height, width), inside=integer)
    return planes.transpose(2, 0, 1).astype(image.dtype)

  return per_image(crop, key, images)


def random_box(
  key: Key[Array, ""],
  height: int,
  width: int,
  area: tuple,
  aspect: tuple,
  integer: bool,
) -> Float[Array, "4"]:
  """(top, left, height, width) of a box inside the image, in pixels, whole or not."""
  area_key, aspect_key, place_key = jax.random.split(key, 3)
  shares = jax.random.uniform(area_key, (_ATTEMPTS,), minval=area[0], maxval=area[1])
  low, high = jnp.log(aspect[0]), jnp.log(aspect[1])
  ratios = jnp.exp(
    jax.random.uniform(aspect_key, (_ATTEMPTS,), minval=low, maxval=high)
  )
  pixels = shares * (height * width)
  tried = jnp.stack([jnp.sqrt(pixels / ratios), jnp.sqrt(pixels * ratios)])
  whole = jnp.array([height, width], shares.dtype)
  largest = jnp.minimum(whole, jnp.stack([width / aspect[0], height * aspect[1]]))
  if integer:
    tried, largest = jnp.round(tried), jnp.maximum(jnp.round(largest), 1)
  fits = ((tried > 0) & (tried <= whole[:, None])).all(0)
  first = jnp.argmax(fits)
  sides = jnp.where(fits[first], tried[:, first], largest)
  spare = whole - sides
  place = jax.random.uniform(place_key, (2,))
  if integer:
    # The number is below 1, but may round up in the product.
    corner = jnp.minimum(jnp.floor(place * (spare + 1)), spare)
    corner = jnp.where(fits[first], corner, jnp.floor(spare / 2))
  else:
    corner = jnp.where(fits[first], place, 0.5) * spare
  return jnp.concatenate([corner, sides])


def cut(
  image: Array,
  box: Array,
  size: tuple[int, int],
  mirror: Array | bool = False,
  *,
  inside: bool,
) -> Array:
  """Cuts the box, mirrored or not, as an image [new width, channels, new height].

  `inside` leaves out the pixels beyond the box; its sides must then be whole numbers.
  The cut takes two matrix products, which give this order of axes.
  """
  rows, columns, channels = image.shape
  down = _weights(rows, size[0], box[0], box[2], inside)
  right = _weights(columns, size[1], box[1], box[3], inside, mirror)
  down, right = down.astype(image.dtype), right.astype(image.dtype)
  cut = product(image.reshape(rows, columns * channels), down, 0, 0)
  cut = product(right, cut.reshape(columns, channels * size[0]), 0, 0)
  return cut.reshape(size[1], channels, size[0])


def _weights(
  pixels: int,
  new: int,
  start: Array,
  length: Array,
  inside: bool,
  mirror: Array | bool = False,
) -> Array:
  """Bilinear weights [pixels, new] of a piece of an axis, averaged where it shrinks."""
  step = length / new
  places = jnp.arange(new, dtype=step.dtype)
  places = jnp.where(mirror, new - 1 - places, places)
  centres = start + (places + 0.5) * step - 0.5
  every = jnp.arange(pixels, dtype=step.dtype)[:, None]
  weights = jax.nn.relu(1 - jnp.abs(centres[None] - every) / jnp.maximum(step, 1))
  if inside:
    weights = jnp.where((every >= start) & (every < start + length), weights, 0)
  return weights / weights.sum(0, keepdims=True)


def product(left: Array, right: ArrayLike, left_axis: int, right_axis: int) -> Array:
  """Sum over one axis of each of two matrices."""
  axes = (((left_axis,), (right_axis,)), ((), ()))
  return jax.lax.dot_general(left, right, axes, precision=jax.lax.Precision.HIGHEST)


def random_flip(
  key: Key[Array, ""],
  images: Real[ArrayLike, "*batch height width channels"],
  *,
  probability: Real[ArrayLike, ""] = 0.5,
) -> Real[Array, "*batch height width channels"]:
  """Mirrors each image, left to right, with a probability.

  Args:
    key: draws which images are mirrored.
    images: [..., height, width, channels], any dtype.
    probability: of the mirror image, in [0, 1], may be traced.

  Returns:
    The shape and dtype of `images`.

  Raises:
    TypeError: key not a key of jax.random, probability not a number.
    ValueError: a probability outside [0, 1].

  Differentiable in: images. Cost: O(pixels).

  Source: Krizhevsky, Sutskever, Hinton 2012, "ImageNet classification with deep
  convolutional neural networks", section 4.1.

  Example:
    >>> image = jnp.arange(3.0).reshape(1, 3, 1)
    >>> spherejax.data.random_flip(jax.random.key(0), image, probability=1).ravel()
    Array([2., 1., 0.], dtype=float32)
  """
  _checks.key("key", key)
  images = some_images(images)
  _checks.between("probability", probability, 0, 1)
  _checks.single("probability", probability)

  def flip(key, image):
    return jnp.where(jax.random.uniform(key) < probability, image[:, ::-1], image)

  return per_image(flip, key, images)


def per_image(
  fn: Callable[[Array, Array], Array], key: Key[Array, ""], images: Array
) -> Array:
  """Applies `fn` to every image, each with its own key."""
  leading = images.shape[:-3]
  if not leading:
    return fn(key, images)
  for _ in leading:
    fn = jax.vmap(fn)
  return fn(jax.random.split(key, leading), images)


def some_images(images: ArrayLike) -> Array:
  """Checks that images are an array of at least three axes."""
  images = _checks.array("images", images)
  if images.ndim < 3:
    raise ValueError(
      f"images must be [..., height, width, channels], got shape {images.shape}"
    )
  if 0 in images.shape[-3:]:
    raise ValueError(f"images must have pixels, got shape {images.shape}")
  return images


def floating_images(images: ArrayLike) -> Array:
  """Checks that images are floating, so that they can be interpolated."""
  images = some_images(images)
  if not jnp.issubdtype(images.dtype, jnp.floating):
    raise TypeError(
      f"images must be floating, got dtype {images.dtype}; convert them by to_float"
    )
  return images


def _inner_size(
  images: Array, size: int | tuple[int, int], padding: int
) -> tuple[int, int]:
  """(height, width) of a piece, checked to fit into the padded images."""
  height, width = image_size(size)
  limits = (images.shape[-3] + 2 * padding, images.shape[-2] + 2 * padding)
  if height > limits[0] or width > limits[1]:
    padded = f" with padding {padding}" if padding else ""
    raise ValueError(
      f"size {(height, width)} must fit into images {images.shape}{padded}"
    )
  return height, width
