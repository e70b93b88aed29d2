"""Photographs of many sizes as arrays of one, read a few at a time."""

import dataclasses
from collections.abc import Callable

import numpy as np
from PIL import Image, ImageOps

from spherejax import data
from spherejax.data import _images


def centred(image: np.ndarray, *, size: int, shorter_side: int) -> np.ndarray:
  """[size, size, channels]: the centre, after the shorter side was brought to a length.

  Args:
    image: uint8 [height, width, channels].
    size: side of what is kept.
    shorter_side: length of the shorter side before that, at least `size`.
  """
  single = _picture(image)
  factor = shorter_side / min(single.size)
  wide, high = (max(size, round(factor * length)) for length in single.size)
  left, top = (wide - size) // 2, (high - size) // 2
  single = single.resize((wide, high), Image.Resampling.BILINEAR)
  single = single.crop((left, top, left + size, top + size))
  return np.asarray(single).reshape(size, size, -1)


def squared(image: np.ndarray, *, size: int) -> np.ndarray:
  """[size, size, channels]: all of it, stretched."""
  single = _picture(image).resize((size, size), Image.Resampling.BOX)
  return np.asarray(single).reshape(size, size, -1)


def padded(image: np.ndarray, *, size: int) -> np.ndarray:
  """[size, size, channels]: the longer side becomes `size`, the rest white."""
  single = ImageOps.pad(
    _picture(image), (size, size), Image.Resampling.BOX, color="white"
  )
  return np.asarray(single).reshape(size, size, -1)


def _picture(image: np.ndarray) -> Image.Image:
  return Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)


def collected(
  images: data.Images, function: Callable[[np.ndarray], np.ndarray]
) -> data.Images:
  """The set with every image replaced; each is read when its turn comes.

  Raises for all images at once that cannot be read.
  """
  source = images.images
  lazy = _images.Lazy(lambda row: function(source[row]), np.arange(len(images)))
  return dataclasses.replace(images, images=_images.collect(lazy))
