"""Writes a page with a map of embeddings that opens without a server."""

import base64
import json
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float
from scipy import sparse
from scipy.sparse import csgraph

from spherejax import _checks, distances
from spherejax.explorer import _plane, _thumbnails
from spherejax.explorer._plane import Layout

MOST_IMAGES = _thumbnails.MOST
"""Images that a page can show: 65,536."""

# Contrast of at least 3 to 1 against white. Eleven colours and six symbols: neighbours
# in the list differ in both, and 66 classes in at least one.
COLORS = (
  "#0072B2", "#D55E00", "#007F5F", "#B0508A", "#8A6D00", "#6A51A3", "#222222",
  "#0093AF", "#E7298A", "#5B8C00", "#8C2D04",
)  # fmt: skip
MARKERS = ("circle", "square", "triangle", "diamond", "inverted_triangle", "star")
_NOTHING = {"color": "#767676", "marker": "x"}  # of images without a class
_CLOSE = 0.1  # near-duplicates: share of the median distance to the nearest image
_SHOWN = 4  # prototypes of an image, images of a prototype


class _Classes(NamedTuple):
  """Class names in the order of the page, "" last, and each image's index."""

  names: list[str]
  labels: np.ndarray


def write_page(
  path: str | os.PathLike[str],
  embeddings: Float[ArrayLike, "images dim"],
  *,
  images: _thumbnails.Images | None = None,
  files: Sequence[str | os.PathLike[str]] | None = None,
  labels: Sequence[Any] | np.ndarray | None = None,
  weights: Float[ArrayLike, "images height width"] | None = None,
  prototypes: Float[ArrayLike, "images prototypes"] | None = None,
  neighbours: int = 10,
  layout: Layout = "tsne",
  title: str = "Embeddings",
) -> pathlib.Path:
  """Writes a page that shows any embeddings on a map.

  You can move, zoom and colour the map, and filter it by class, by name, and by images
  whose nearest image has another class. For a chosen image the page shows the nearest
  images by Euclidean distance and whether they share its class. If given, a pooling's
  weights over the image and the image's largest prototypes are also shown. The page
  lists groups of near-duplicates: images linked by distances of at most a tenth of the
  median distance to a nearest image. The displayed images can be saved as a table. The
  page is a single file without external references.

  Args:
    path: the file to write, usually `.html`. The file is written completely or not at
      all.
    embeddings: [images, dim], floating and finite; 2 to `MOST_IMAGES` of them, from any
      library, as NumPy arrays.
    images: the images to show: uint8 [height, width, 1 or 3], of one size or several,
      as an array or any sequence. None reads `files`.
    files: names of the images, shown as text; paths of image files where `images` is
      None. None numbers the images.
    labels: a class for each image, as text or as a number; "" or None for an image of
      unknown class. None: all classes are unknown.
    weights: [images, height, width], at least 0: weights of a pooling.
    prototypes: [images, prototypes], share of each prototype in the pooled features,
      such as `attributes` of `pooling.gsp`.
    neighbours: number of nearest images for each image, or all if there are fewer.
    layout: "tsne", which keeps neighbours together and takes a minute for ten thousand
      images, or "pca". Both are the same in every run.
    title: the title of the page.

  Returns:
    The path.

  Raises:
    TypeError: embeddings, weights or prototypes are not floating, files not text.
    ValueError: unequal numbers of images and embeddings, fewer than 2 or more than
      `MOST_IMAGES`; a number that is not finite, a negative weight; an image that
      cannot be shown, a file that cannot be read, an unknown `layout`.
    ImportError: bokeh, scikit-learn or Pillow is missing.
    FileNotFoundError: the folder of `path` is missing.

  Source: none.

  Example:
    >>> import tempfile
    >>> rows = jnp.eye(4, 3)
    >>> path = spherejax.explorer.write_page(
    ...     tempfile.mkdtemp() + "/map.html", rows, labels=list("abba"), layout="pca"
    ... )
    >>> path.name
    'map.html'
  """
  _checks.count("neighbours", neighbours)
  return write(
    path,
    embeddings,
    neighbours,
    images=images,
    files=files,
    labels=labels,
    weights=weights,
    prototypes=prototypes,
    layout=layout,
    title=title,
  )


def write(
  path: str | os.PathLike[str],
  embeddings: Any,
  neighbours: int | distances.Neighbours,
  *,
  images: _thumbnails.Images | None = None,
  files: Sequence[str | os.PathLike[str]] | None = None,
  labels: Sequence[Any] | np.ndarray | None = None,
  weights: Any = None,
  prototypes: Any = None,
  layout: Layout = "tsne",
  title: str = "Embeddings",
) -> pathlib.Path:
  """Writes the page like `write_page`; also takes known neighbours of each image."""
  _checks.path("path", path)
  _checks.one_of("layout", layout, Layout)
  _checks.text("title", title)
  x = _rows("embeddings", embeddings, 2)
  count = len(x)
  if not 2 <= count <= MOST_IMAGES:
    raise ValueError(f"embeddings must be 2 to {MOST_IMAGES}, got {count}")
  inputs = {"images": images, "files": files, "labels": labels}
  for name, value in inputs.items():
    if value is not None:
      _checks.sequence(name, value)
  if files is not None:
    files = [os.fspath(f) if isinstance(f, os.PathLike) else f for f in files]
    _checks.texts("files", files)
  asked = {"weights": (weights, 3), "prototypes": (prototypes, 2)}
  parts = {
    name: _rows(name, value, axes)
    for name, (value, axes) in asked.items()
    if value is not None
  }
  for name, value in (inputs | parts).items():
    if value is not None and len(value) != count:
      raise ValueError(
        f"{name} must be as many as the {count} embeddings, got {len(value)}"
      )
  target = pathlib.Path(path)
  if not target.parent.is_dir():  # before the work
    raise FileNotFoundError(f"path must be in a folder that exists, got {str(path)!r}")
  render = check_libraries()

  weighed = _weights(parts["weights"]) if "weights" in parts else None
  shown = images is not None or files is not None
  atlas = _thumbnails.atlas(_thumbnails.thumbnails(images, files)) if shown else None
  classes = _classes(labels, count)
  points = _plane.plane(x, layout)
  content = {
    "title": title,
    "names": files or [f"image {row}" for row in range(count)],
    "classes": classes.names,
    "styles": [
      {"color": COLORS[i % len(COLORS)], "marker": MARKERS[i % len(MARKERS)]}
      if name
      else _NOTHING
      for i, name in enumerate(classes.names)
    ],
    "labels": _packed(classes.labels, np.int32),
    "point": 9 if count <= 500 else 7 if count <= 2000 else 5,
    "atlas": atlas,
    "weights": weighed,
    "prototypes": _dominant(parts["prototypes"]) if "prototypes" in parts else None,
    **_near(x, classes, neighbours, _plane.NAMES[layout]),
  }
  # Every "<" is escaped, so that no name can end the script that holds it.
  text = json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")
  styles = [content["styles"][label] for label in classes.labels]
  page = render(points, styles, content["point"], text)
  temporary = target.with_name(f"{target.name}.partial")
  temporary.write_text(page, encoding="utf-8")
  return temporary.replace(target)


def check_libraries() -> Callable[..., str]:
  """Returns the function that renders the page; ImportError names a missing library."""
  try:
    import PIL  # noqa: F401
    import sklearn  # noqa: F401

    from spherejax.explorer import _bokeh
  except ImportError as error:
    raise ImportError(
      f"a page needs {error.name}: pip install 'spherejax[explore]'"
    ) from error
  return _bokeh.render


def _rows(name: str, value: Any, axes: int) -> np.ndarray:
  array = _checks.host(name, value)
  _checks.expect(name, array, "floating", rank=axes)
  wide = array.astype(np.float32)
  wrong = ~np.isfinite(wide).all(axis=tuple(range(1, axes)))
  if wrong.any():
    raise ValueError(
      f"{name} must be finite, got {wrong.sum()} of {len(wide)} rows that are not, the"
      f" first in row {wrong.argmax()}"
    )
  return wide


def _classes(labels: Sequence[Any] | np.ndarray | None, count: int) -> _Classes:
  class_names = [""] * count if labels is None else [_name(label) for label in labels]
  names = sorted(set(class_names), key=lambda name: (not name, name))
  places = {name: place for place, name in enumerate(names)}
  return _Classes(names, np.array([places[name] for name in class_names]))


def _name(label: Any) -> str:
  return "" if label is None else str(label)


def _near(
  x: np.ndarray, classes: _Classes, neighbours: int | distances.Neighbours, layout: str
) -> dict[str, Any]:
  """Nearest images of each image, and their agreement on the classes."""
  count, labels = len(x), classes.labels
  nearest = neighbours
  if isinstance(nearest, int):
    others = min(nearest, count - 1)
    nearest = distances.k_nearest(x, x, k=others, exclude=np.arange(count))
  indices = np.asarray(nearest.indices)
  predicted = labels[indices[:, 0]]
  nothing = classes.names.index("") if "" in classes.names else -1
  known = (labels != nothing) & (predicted != nothing)
  number = len(classes.names) - (nothing >= 0)
  said = f"{count} images, {number} class{'' if number == 1 else 'es'}, {layout}"
  if known.any() and number > 1:
    right = np.mean(predicted[known] == labels[known])
    said += f"; the nearest image is of the same class for {100 * right:.1f} %"
  return {
    "subtitle": said,
    "predicted": _packed(predicted, np.int32),
    "neighbours": _packed(indices, np.int32),
    "distances": _packed(nearest.distances, np.float32),
    "duplicates": _groups(indices, np.asarray(nearest.distances)),
  }


def _groups(indices: np.ndarray, gaps: np.ndarray) -> list[list[int]]:
  """Groups of images linked by distances far below the usual nearest distance."""
  close = gaps <= _CLOSE * np.median(gaps[:, 0])
  rows = np.repeat(np.arange(len(close)), close.sum(axis=1))
  links = sparse.coo_array(
    (np.ones(len(rows)), (rows, indices[close])), shape=(len(close), len(close))
  )
  _, group = csgraph.connected_components(links, directed=False)
  order = np.argsort(group, kind="stable")
  starts = np.flatnonzero(np.diff(group[order])) + 1
  return [part.tolist() for part in np.split(order, starts) if len(part) > 1]


def _weights(weights: np.ndarray) -> dict[str, Any]:
  """Weights as bytes: 255 at the largest weight of an image."""
  if (weights < 0).any():
    raise ValueError(f"weights must be at least 0, got {weights.min():g}")
  peaks = weights.max(axis=(1, 2))
  steps = 255 * weights / np.maximum(peaks, np.finfo(np.float32).tiny)[:, None, None]
  return {
    "layout": weights.shape[1:],
    "values": _packed(np.rint(steps), np.uint8),
    "peaks": _packed(peaks, np.float32),
    "means": _packed(weights.mean(axis=(1, 2)), np.float32),
  }


def _dominant(shares: np.ndarray) -> dict[str, Any]:
  """Largest prototypes of each image, and the images with most of each prototype."""
  shown = min(_SHOWN, *shares.shape)
  order = np.argsort(-shares, axis=1, kind="stable")[:, :shown]
  examples = np.argsort(-shares, axis=0, kind="stable")[:shown].T
  return {
    "shown": shown,
    "order": _packed(order, np.int32),
    "shares": _packed(np.take_along_axis(shares, order, 1), np.float32),
    "examples": _packed(examples, np.int32),
  }


def _packed(values: Any, dtype: Any) -> dict[str, str]:
  """Packs an array for JSON: exact, and a third longer than its bytes."""
  array = np.ascontiguousarray(values, np.dtype(dtype).newbyteorder("<"))
  return {
    "dtype": np.dtype(dtype).name,
    "bytes": base64.b64encode(array.tobytes()).decode(),
  }
