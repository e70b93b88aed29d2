"""Thumbnails of a page's images, all in one image."""

import base64
import concurrent.futures
import io
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from spherejax.data import _files

ATLAS = 4096  # side in pixels: browsers decode it at once, in 64 MiB
LARGEST, LEAST = 128, 16  # sides of a thumbnail
MOST = (ATLAS // LEAST) ** 2  # images
_BLOCK = 8  # pixels that JPEG compresses together
_QUALITY = 88


Images = Sequence[Any] | np.ndarray


def thumbnails(images: Images | None, files: Sequence[str] | None) -> np.ndarray:
  """Thumbnails, uint8 [images, side, side, 1 or 3], of the images or else of files.

  Each shows the whole image, with white margins if it is not square.
  """
  if images is not None:
    count, read = len(images), _read_supplied(images)
  else:
    assert files is not None
    count, read = len(files), _in_files(files)
  most = side_of(count)
  with concurrent.futures.ThreadPoolExecutor() as pool:
    small = list(pool.map(lambda row: shrink(read(row), most), range(count)))
  side = max(max(pixels.shape[:2]) for pixels in small)
  channels = max(pixels.shape[2] for pixels in small)
  cells = np.full((count, side, side, channels), 255, np.uint8)
  for cell, pixels in zip(cells, small, strict=True):
    height, width, _ = pixels.shape
    top, left = (side - height) // 2, (side - width) // 2
    cell[top : top + height, left : left + width] = pixels
  return cells


def side_of(count: int) -> int:
  """Largest side at which `count` thumbnails fit into one image."""
  # A JPEG block that covers two thumbnails would mix them.
  room = ATLAS // math.ceil(math.sqrt(count)) // _BLOCK * _BLOCK
  return min(LARGEST, room)


def _read_supplied(images: Images) -> Callable[[int], np.ndarray]:
  def read(row: int) -> np.ndarray:
    pixels = np.asarray(images[row])
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[-1] not in (1, 3):
      raise ValueError(
        "images must be uint8 [height, width, 1 or 3], got"
        f" {pixels.dtype} {pixels.shape} in row {row}"
      )
    if not pixels.size:
      raise ValueError(
        f"images must have pixels, got shape {pixels.shape} in row {row}"
      )
    return pixels

  return read


def _in_files(files: Sequence[str]) -> Callable[[int], np.ndarray]:
  return lambda row: _files.decode(
    pathlib.Path(files[row]), name=files[row], channels=None, size=None
  )


def shrink(pixels: np.ndarray, most: int) -> np.ndarray:
  """Shrinks an image to at most `most` pixels high and wide, in proportion."""
  from PIL import Image

  height, width, channels = pixels.shape
  part = most / max(height, width)
  if part >= 1:
    return pixels
  single = Image.fromarray(pixels[..., 0] if channels == 1 else pixels)
  size = max(1, round(width * part)), max(1, round(height * part))
  small = np.asarray(single.resize(size, Image.Resampling.BOX))
  return small.reshape(size[1], size[0], channels)


def atlas(cells: np.ndarray) -> dict[str, Any]:
  """Joins all thumbnails, row by row, into an image in a data URL."""
  from PIL import Image

  count, side, _, channels = cells.shape
  columns = math.ceil(math.sqrt(count))
  sheet = np.zeros((columns**2, side, side, channels), np.uint8)
  sheet[:count] = cells
  sheet = sheet.reshape(columns, columns, side, side, channels).swapaxes(1, 2)
  sheet = sheet.reshape(columns * side, columns * side, channels)
  sheet = sheet[: -(-count // columns) * side]
  picture = Image.fromarray(sheet[..., 0] if channels == 1 else sheet)
  file = io.BytesIO()
  if side > 2 * _BLOCK and side % _BLOCK == 0:
    kind = "jpeg"
    picture.save(file, kind, quality=_QUALITY, subsampling=0)
  else:
    kind = "png"
    picture.save(file, kind)
  text = base64.b64encode(file.getvalue()).decode()
  return {"url": f"data:image/{kind};base64,{text}", "size": side, "columns": columns}
