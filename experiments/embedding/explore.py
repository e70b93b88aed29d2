"""`explore.html` of `embed`: a map of the pictures that opens without a server."""

import base64
import importlib.util
import json
import pathlib
import sys
from typing import Any

import numpy as np

from experiments.embedding import answers, pictures, sources
from experiments.embedding.pictures import GSP, LARGEST, MOST, SHOWN, Pooling
from spherejax import distances

FILE = "explore.html"
MAPS = {"tsne": "t-SNE", "pca": "PCA"}
# At least 3 to 1 against white. Eleven colours and six symbols: neighbours in the list
# differ in both, and 66 classes in one of them.
COLORS = (
  "#0072B2", "#D55E00", "#007F5F", "#B0508A", "#8A6D00", "#6A51A3", "#222222",
  "#0093AF", "#E7298A", "#5B8C00", "#8C2D04",
)  # fmt: skip
MARKERS = ("circle", "square", "triangle", "diamond", "inverted_triangle", "star")
_NOTHING = {"color": "#767676", "marker": "x"}  # of pictures without a class
_FEW = 4  # pictures that t-SNE cannot lay out
_EXACT = 300  # pictures up to which threads of the faster t-SNE cost more than it saves


def check(source: sources.Source, image_size: int) -> None:
  """Says at once what the page cannot show, and what it shows smaller."""
  if importlib.util.find_spec("bokeh") is None:
    raise SystemExit("--explore needs bokeh: pip install 'spherejax[experiments]'")
  _check_count(len(source))
  side = pictures.thumbnail_side(len(source), image_size)
  if side < min(image_size, LARGEST):
    print(
      f"explore: {len(source)} thumbnails of {side} x {side} pixels fit into the page,"
      f" the network's pictures have {image_size} x {image_size}",
      file=sys.stderr,
    )


def _check_count(count: int) -> None:
  if not 2 <= count <= MOST:
    raise SystemExit(f"--explore shows 2 to {MOST} images, got {count}")


def write(
  found: answers.Embedded,
  output: pathlib.Path,
  *,
  neighbours: int,
  layout: str,
  batch: int,
  workers: int,
) -> None:
  """Writes the page, whole or not at all."""
  from experiments.embedding import (
    page as explore_page,  # imports bokeh, which may be missing
  )

  _check_count(len(found.rows))
  points = plane(found.embeddings, layout)
  looks = pictures.look(found, batch=batch, workers=workers)
  shown = content(found, looks, neighbours, layout)
  # Every "<" goes: no name can end the script that holds it.
  text = json.dumps(shown, separators=(",", ":")).replace("<", "\\u003c")
  styles = [shown["styles"][label] for label in _classes(found)[1]]
  page = explore_page.render(points, styles, shown["point"], text)
  temporary = output / "explore.partial"
  temporary.write_text(page, encoding="utf-8")
  temporary.replace(output / FILE)


def plane(embeddings: np.ndarray, layout: str) -> np.ndarray:
  """[images, 2], the map."""
  from sklearn.decomposition import PCA
  from sklearn.manifold import TSNE

  x = embeddings.astype(np.float64)
  if not np.isfinite(x).all():
    rows = np.flatnonzero(~np.isfinite(x).all(axis=1))
    raise SystemExit(
      f"--explore: {len(rows)} of {len(x)} embeddings are not finite, the first in row"
      f" {rows[0]}"
    )
  if (x == x[0]).all():
    return np.zeros((len(x), 2))
  if layout == "tsne" and len(x) >= _FEW:
    method = "exact" if len(x) <= _EXACT else "barnes_hut"
    perplexity = min(30.0, (len(x) - 1) / 3)
    found = TSNE(init="pca", method=method, perplexity=perplexity, random_state=0)
    return _two(x, found.fit_transform)
  return _two(x, PCA(2, random_state=0).fit_transform)


def _two(x: np.ndarray, fit: Any) -> np.ndarray:
  """A map of vectors that may have one number only."""
  return fit(np.pad(x, [(0, 0), (0, max(0, 2 - x.shape[1]))]))


def content(
  found: answers.Embedded,
  looks: pictures.Looks,
  neighbours: int,
  layout: str,
) -> dict[str, Any]:
  """What the page knows besides the map, for JSON."""
  classes, labels = _classes(found)
  count, pooling = len(labels), found.job.model.architecture.pooling
  near = distances.k_nearest(
    found.embeddings,
    found.embeddings,
    k=min(neighbours, count - 1),
    exclude=np.arange(count),
  )
  indices = np.asarray(near.indices)
  predicted = labels[indices[:, 0]]
  nothing = classes.index("") if "" in classes else -1
  known = (labels != nothing) & (predicted != nothing)
  said = f"{count} images, {len(classes) - (nothing >= 0)} classes, {MAPS[layout]}"
  if known.any():
    right = np.mean(predicted[known] == labels[known])
    said += f"; the nearest image is of the same class for {100 * right:.1f} %"
  return {
    "title": f"Embeddings of {_title(found.job.source)}",
    "subtitle": said,
    "names": answers.names(found),
    "classes": classes,
    "styles": [
      {"color": COLORS[i % len(COLORS)], "marker": MARKERS[i % len(MARKERS)]}
      if name
      else _NOTHING
      for i, name in enumerate(classes)
    ],
    "labels": packed(labels, np.int32),
    "predicted": packed(predicted, np.int32),
    "neighbours": packed(indices, np.int32),
    "distances": packed(near.distances, np.float32),
    "point": 9 if count <= 500 else 7 if count <= 2000 else 5,
    "atlas": pictures.atlas(looks.thumbnails),
    "pooling": pooling,
    GSP: None if looks.pooling is None else _dominant(looks.pooling),
  }


def _title(source: sources.Source) -> str:
  """What the pictures are called, without the folders above them."""
  return source.text if source.root is None else pathlib.Path(source.text).name


def _classes(found: answers.Embedded) -> tuple[list[str], np.ndarray]:
  """Names in the order of the page, "" last, and each picture's place among them."""
  names = sorted(set(found.labels), key=lambda name: (not name, name))
  places = {name: place for place, name in enumerate(names)}
  return names, np.array([places[label] for label in found.labels])


def _dominant(pooling: Pooling) -> dict[str, Any]:
  """Weights, the prototypes that each picture has most of, and the other way round."""
  attributes = pooling.attributes
  shown = min(SHOWN, *attributes.shape)
  order = np.argsort(-attributes, axis=1, kind="stable")[:, :shown]
  examples = np.argsort(-attributes, axis=0, kind="stable")[:shown].T
  return {
    "layout": pooling.weights.shape[1:],
    "weights": packed(pooling.weights, np.uint8),
    "peaks": packed(pooling.peaks, np.float32),
    "shown": shown,
    "prototypes": packed(order, np.int32),
    "shares": packed(np.take_along_axis(attributes, order, 1), np.float32),
    "examples": packed(examples, np.int32),
  }


def packed(values: Any, dtype: Any) -> dict[str, str]:
  """An array as JSON holds it: a third longer than its bytes, and exact."""
  array = np.ascontiguousarray(values, np.dtype(dtype).newbyteorder("<"))
  return {
    "dtype": np.dtype(dtype).name,
    "bytes": base64.b64encode(array.tobytes()).decode(),
  }
