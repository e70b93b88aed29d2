"""What `embed --explore` shows of each picture: a thumbnail, where a pooling looks."""

import base64
import functools
import io
import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tqdm
from jax import Array
from PIL import Image

from experiments.embedding import answers as embed_answers
from experiments.embedding import parts
from experiments.frame.networks import Architecture, Network
from spherejax import data, training

ATLAS = 4096  # side in pixels: browsers decode it at once, in 64 MiB
LARGEST, LEAST = 128, 16  # sides of a thumbnail
MOST = (ATLAS // LEAST) ** 2  # pictures
GSP = "gsp"
_BLOCK = 8  # pixels that JPEG compresses together
_QUALITY = 88
SHOWN = 4  # prototypes of a picture, pictures of a prototype


class Pooling(NamedTuple):
  """Where generalized sum pooling looks, rounded for the page."""

  weights: np.ndarray
  """uint8 [images, height, width], 255 at the largest weight of an image."""
  peaks: np.ndarray
  """[images], the largest weight."""
  attributes: np.ndarray
  """[images, prototypes]."""


class Looks(NamedTuple):
  """All pictures."""

  thumbnails: np.ndarray
  """uint8 [images, side, side, channels]."""
  pooling: Pooling | None
  """None for a network that pools otherwise."""


def thumbnail_side(count: int, image_size: int) -> int:
  """Side of the thumbnails of so many pictures, so that they fit into one picture."""
  columns = math.ceil(math.sqrt(count))
  room = min(LARGEST, ATLAS // columns)
  # Blocks of JPEG that lie in two thumbnails would mix them.
  return image_size if image_size <= room else room // _BLOCK * _BLOCK


def look(found: embed_answers.Embedded, *, batch: int, workers: int) -> Looks:
  """Reads all pictures once more, and asks the pooling about them."""
  source, model = found.job.source, found.job.model
  prepared = parts.prepared(source, model)
  images = data.Images(prepared, np.full(len(prepared), -1, np.int32), ())
  count = len(found.rows)
  plan = np.array(found.rows, np.int32)[data.ordered_plan(count, batch_size=batch)]
  side = thumbnail_side(count, model.architecture.image_size)
  ask = _pooled(model.architecture, batch)
  thumbnails, answers = [], []
  with tqdm.tqdm(total=count, unit="picture", file=sys.stderr) as progress:
    for step, read in enumerate(data.pipeline(images, plan, workers=workers)):
      own = read["image"][: min(batch, count - step * batch), 1:]
      shown = 255 - own if model.architecture.inverted else own
      thumbnails += [_thumbnail(pixels, side) for pixels in shown]
      if ask is not None:
        answers.append(_rounded(*ask(model.variables, own)))
      progress.update(len(own))
  pooling = (
    Pooling(*map(np.concatenate, zip(*answers, strict=True))) if answers else None
  )
  return Looks(np.stack(thumbnails), pooling)


@functools.lru_cache
def _pooled(architecture: Architecture, batch: int) -> Callable[..., Any] | None:
  """Of variables and images to weights and attributes; None without such a pooling."""
  if architecture.pooling != GSP:
    return None

  def ask(variables: Any, images: Array) -> tuple[Array, Array]:
    found: Any = Network(architecture).apply(variables, images)
    return found.weights, found.attributes

  return training.parallel_map(ask, batch_size=batch)


def _rounded(weights: np.ndarray, attributes: np.ndarray) -> Pooling:
  peaks = weights.max(axis=(1, 2))
  steps = 255 * weights / np.maximum(peaks, np.finfo(np.float32).tiny)[:, None, None]
  return Pooling(np.rint(steps).astype(np.uint8), peaks, attributes)


def _thumbnail(pixels: np.ndarray, side: int) -> np.ndarray:
  if len(pixels) == side:
    return pixels
  single = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
  small = np.asarray(single.resize((side, side), Image.Resampling.BOX))
  return small.reshape(side, side, -1)


def atlas(thumbnails: np.ndarray) -> dict[str, Any]:
  """All thumbnails, row by row, as one picture in a data URL."""
  count, side, _, channels = thumbnails.shape
  columns = math.ceil(math.sqrt(count))
  cells = np.zeros((columns**2, side, side, channels), np.uint8)
  cells[:count] = thumbnails
  cells = cells.reshape(columns, columns, side, side, channels)
  sheet = cells.swapaxes(1, 2).reshape(columns * side, columns * side, channels)
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
