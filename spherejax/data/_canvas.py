"""Places images of varying size on canvases of one size; maps functions over images."""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
from jaxtyping import Shaped, UInt8

from spherejax import _checks
from spherejax.data import _images
from spherejax.data._images import Images


def fit_canvas(
  image: Shaped[np.ndarray, "height width *channels"],
  side: int,
  *,
  fill: int,
  shrink: int = 1,
) -> UInt8[np.ndarray, "rows rows channels"]:
  """Places an image in the middle of a square canvas; scales larger images down.

      longer side > side: both sides times side / longer, rounded, at least one pixel
      longer side <= side: the size stays, as it is informative
      top = (side - height) // 2,  left = (side - width) // 2

  `shrink` then averages blocks of the canvas, for small networks. So objects keep the
  ratio of their sizes; a small canvas alone would scale large objects down.

  Args:
    image: uint8, [height, width] or [height, width, channels].
    side: static. Side of the canvas, in pixels.
    fill: static, in [0, 255]. Value of the canvas around the image; 255 for dark
      objects on a light ground.
    shrink: static, divides `side`. The side of the blocks that become one pixel.

  Returns:
    uint8, [side / shrink, side / shrink, channels], one channel for an image without
    that axis. Scaled bilinearly with antialiasing; means are rounded, half up.

  Raises:
    TypeError: image not uint8, fill not an integer.
    ValueError: an image without pixels or of other axes, a fill outside [0, 255],
      `shrink` that does not divide `side`.

  Cost: O(height width + side^2), on the host.

  Source: DIST I 2.1 (299 pixels, padded and never enlarged; its released conversion
  enlarges small images).

  Example:
    >>> import numpy as np
    >>> dark = np.zeros((2, 4), np.uint8)
    >>> spherejax.data.fit_canvas(dark, 4, fill=255)[:, :, 0]
    array([[255, 255, 255, 255],
           [  0,   0,   0,   0],
           [  0,   0,   0,   0],
           [255, 255, 255, 255]], dtype=uint8)
    >>> spherejax.data.fit_canvas(dark, 4, fill=255, shrink=2)[:, :, 0]
    array([[128, 128],
           [128, 128]], dtype=uint8)
  """
  image = _checks.host("image", image)
  if image.dtype != np.uint8:
    raise TypeError(f"image must be uint8, got dtype {image.dtype}")
  _checks.expect("image", image, rank=(2, 3))
  _checks.count("side", side)
  _checks.count("shrink", shrink)
  _checks.count("fill", fill, 0)
  _checks.between("fill", fill, 0, 255)
  if not image.size:
    raise ValueError(f"image must have a pixel, got shape {image.shape}")
  if side % shrink:
    raise ValueError(f"shrink must divide the side {side}, got {shrink}")
  pixels = image[..., None] if image.ndim == 2 else image
  longer = max(pixels.shape[:2])
  if longer > side:
    rows, columns = (
      max(1, int(np.floor(size * side / longer + 0.5))) for size in pixels.shape[:2]
    )
    pixels = _resized(pixels, rows, columns)
  rows, columns, channels = pixels.shape
  canvas = np.full((side, side, channels), fill, np.uint8)
  top, left = (side - rows) // 2, (side - columns) // 2
  canvas[top : top + rows, left : left + columns] = pixels
  if shrink == 1:
    return canvas
  small = side // shrink
  blocks = canvas.reshape(small, shrink, small, shrink, channels)
  sums = blocks.sum((1, 3), dtype=np.int64)
  return ((2 * sums + shrink**2) // (2 * shrink**2)).astype(np.uint8)


def _resized(pixels: np.ndarray, rows: int, columns: int) -> np.ndarray:
  """Resizes by Pillow, channel by channel: it would multiply by a fourth channel."""
  from PIL import Image

  size, kind = (columns, rows), Image.Resampling.BILINEAR
  channels = [
    np.asarray(Image.fromarray(channel).resize(size, kind))
    for channel in np.moveaxis(pixels, 2, 0)
  ]
  return np.stack(channels, axis=2)


def map_images(images: Images, function: Callable[[np.ndarray], np.ndarray]) -> Images:
  """Replaces every image of a set by a function of it, on the host.

  Lazy images stay lazy: the function is called whenever an image is read.

  Args:
    images: any `Images`.
    function: maps one image, uint8 [height, width, channels], to such an array.
      For workers of `pipeline` it must be importable (a function of a module, or a
      `functools.partial` of one).

  Returns:
    `Images` with the old labels, names and extras.

  Raises:
    TypeError: the function returns an image that is not uint8.
    ValueError: an image of other axes, or without a pixel. For lazy images both errors,
      and those of the function, are raised when the image is read.

  Cost: one call per image, by a pool of min(32, cores + 4) threads unless lazy.

  Source: none.

  Example:
    >>> import functools
    >>> digits = spherejax.data.load_digits()[:5]
    >>> fit = functools.partial(spherejax.data.fit_canvas, side=12, fill=0)
    >>> spherejax.data.map_images(digits, fit).images.shape
    (5, 12, 12, 1)
  """
  _checks.instance("images", images, Images)
  _checks.function("function", function)
  read = functools.partial(_apply, images.images, function)
  lazy = _images.Lazy(read, np.arange(len(images)))
  is_lazy = isinstance(images.images, _images.Lazy)
  pixels = lazy if is_lazy else _images.collect(lazy)
  return dataclasses.replace(images, images=pixels)


def _apply(source, function: Callable[[np.ndarray], np.ndarray], row: int):
  image = np.array(source[row])  # a copy, which the function may change
  return _images.checked(np.asarray(function(image)), f"image {row}, mapped,")
