"""Photographs of many sizes as arrays of one."""

import numpy as np
from PIL import Image, ImageOps


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
