"""Affine augmentation: rotation, translation, scale, shear and mirror in one step."""

import jax
import jax.numpy as jnp
from jax.scipy import ndimage
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Key, Real

from spherejax import _checks, _numerics
from spherejax.data import _augment


def random_affine(
  key: Key[Array, ""],
  images: Float[ArrayLike, "*batch height width channels"],
  *,
  rotation: Real[ArrayLike, ""] = 15.0,
  translation: Real[ArrayLike, ""] = 0.1,
  scale: tuple[Real[ArrayLike, ""], Real[ArrayLike, ""]] = (0.9, 1.1),
  shear: Real[ArrayLike, ""] = 10.0,
  flip: Real[ArrayLike, ""] = 0.5,
) -> Float[Array, "*batch height width channels"]:
  """Rotates, shears, scales, mirrors and moves each image, with one interpolation.

      A = scale [[cos r, -sin r], [sin r, cos r]] [[1, tan h], [0, 1]] diag(+-1, 1)
      result(x) = image(A^-1 (x - t))        x from the centre, to the right and down

  Rotation r, shear h, shift t (a share of the image's width and height) and scale are
  drawn uniformly for each image; it is mirrored with probability `flip`. Pixels from
  outside the image are 0.

  Args:
    key: for all five draws.
    images: [..., height, width, channels], floating.
    rotation: largest angle r to either side, in degrees, at least 0; may be traced,
      as all numbers here.
    translation: largest shift in either direction, as a share of the side, in [0, 1].
    scale: smallest and largest magnification, positive, ascending.
    shear: largest angle h to either side, in degrees, in [0, 90).
    flip: probability of the mirror image, in [0, 1].

  Returns:
    The shape and dtype of `images`.

  Raises:
    ValueError: a static number outside its range.
    TypeError: images not floating.

  Differentiable in: images. Cost: four reads per pixel.

  Source: DIST IV (rotation 15 degrees, translation 0.1, scale 0.9 to 1.1, shear 10
  degrees, mirror images). Bilinear.

  Example:
    >>> images = jnp.ones([8, 32, 32, 3])
    >>> spherejax.data.random_affine(jax.random.key(0), images).shape
    (8, 32, 32, 3)
  """
  _checks.key("key", key)
  images = _augment.floating_images(images)
  _checks.between("rotation", rotation, 0)
  _checks.between("translation", translation, 0, 1)
  _checks.between("shear", shear, 0, 90, high_open=True)
  _checks.between("flip", flip, 0, 1)
  least, most = _checks.interval("scale", scale)
  _checks.positive("scale[0]", least)
  _checks.between("scale[1]", most, least)

  for name, number in (
    ("rotation", rotation),
    ("translation", translation),
    ("shear", shear),
    ("flip", flip),
  ):
    _checks.single(name, number)

  limits = [rotation, shear, translation, *scale, flip]
  turns, slants, share, low, high, mirrored = (
    jnp.asarray(limit, jnp.float32) for limit in limits
  )

  def warp(key: Array, image: Array) -> Array:
    keys = jax.random.split(key, 5)
    turn, slant = (
      jnp.deg2rad(limit) * jax.random.uniform(part, minval=-1)
      for limit, part in ((turns, keys[0]), (slants, keys[1]))
    )
    size = low + (high - low) * jax.random.uniform(keys[2])
    sides = jnp.array([image.shape[1], image.shape[0]], jnp.float32)
    shift = share * sides * jax.random.uniform(keys[3], (2,), minval=-1)
    mirror = jnp.where(jax.random.uniform(keys[4]) < mirrored, -1.0, 1.0)
    return _warp(image, turn, slant, size, mirror, shift)

  return _augment.per_image(warp, key, images)


def _warp(
  image: Array, turn: Array, slant: Array, size: Array, mirror: Array, shift: Array
) -> Array:
  """Warps the image by A x + shift, by the inverse of each part in turn."""
  height, width = image.shape[:2]
  # Centres of the pixels, relative to the middle of the image.
  down = jnp.arange(height, dtype=jnp.float32) - (height - 1) / 2
  right = jnp.arange(width, dtype=jnp.float32) - (width - 1) / 2
  x, y = jnp.meshgrid(right - shift[0], down - shift[1])
  cos, sin = jnp.cos(turn), jnp.sin(turn)
  x, y = (cos * x + sin * y) / size, (cos * y - sin * x) / size
  x = mirror * (x - jnp.tan(slant) * y)
  places = [y + (height - 1) / 2, x + (width - 1) / 2]

  def plane(values: Array) -> Array:
    return ndimage.map_coordinates(values, places, order=1, mode="constant")

  warped = jax.vmap(plane, -1, -1)(_numerics.upcast(image))
  return warped.astype(image.dtype)
