"""`explore.html` of `embed`: a map of the pictures that opens without a server."""

import functools
import importlib.util
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import tqdm
from jax import Array

from experiments.embedding import answers, parts, sources
from experiments.frame.networks import Architecture, Network
from spherejax import data, explorer, training

FILE = "explore.html"
GSP = "gsp"


def check(source: sources.Source) -> None:
  """Says before the work what the page cannot show."""
  if importlib.util.find_spec("bokeh") is None:
    raise SystemExit("--explore needs bokeh: pip install 'spherejax[explore]'")
  _check_count(len(source))


def _check_count(count: int) -> None:
  if not 2 <= count <= explorer.MOST_IMAGES:
    raise SystemExit(f"--explore shows 2 to {explorer.MOST_IMAGES} images, got {count}")


def write(
  found: answers.Embedded,
  output: pathlib.Path,
  *,
  neighbours: int,
  layout: Literal["tsne", "pca"],
  batch: int,
  workers: int,
) -> None:
  """Writes the page, whole or not at all."""
  _check_count(len(found.rows))
  weights, attributes = pooled(found, batch=batch, workers=workers)
  source = found.job.source
  # What the pictures are called, without the folders above them.
  name = source.text if source.root is None else pathlib.Path(source.text).name
  explorer.write_page(
    output / FILE,
    found.embeddings,
    images=Seen(found),
    files=answers.names(found),
    labels=found.labels,
    weights=weights,
    prototypes=attributes,
    neighbours=neighbours,
    layout=layout,
    title=f"Embeddings of {name}",
  )


class Seen(Sequence):
  """The pictures as the network sees them, white where it sees black."""

  def __init__(self, found: answers.Embedded):
    self._rows = found.rows
    self._pictures = parts.prepared(found.job.source, found.job.model)
    self._inverted = found.job.model.architecture.inverted

  def __len__(self) -> int:
    return len(self._rows)

  def __getitem__(self, place: Any) -> Any:
    pixels = self._pictures[self._rows[place]][1:]
    return 255 - pixels if self._inverted else pixels


def pooled(
  found: answers.Embedded, *, batch: int, workers: int
) -> tuple[np.ndarray, np.ndarray] | tuple[None, None]:
  """Weights and attributes of generalized sum pooling; None of another pooling."""
  source, model = found.job.source, found.job.model
  if model.architecture.pooling != GSP:
    return None, None
  prepared = parts.prepared(source, model)
  images = data.Images(prepared, np.full(len(prepared), -1, np.int32), ())
  count, ask = len(found.rows), _asked(model.architecture, batch)
  plan = np.array(found.rows, np.int32)[data.ordered_plan(count, batch_size=batch)]
  parts_of = []
  with tqdm.tqdm(total=count, unit="picture", file=sys.stderr) as progress:
    for step, read in enumerate(data.pipeline(images, plan, workers=workers)):
      own = read["image"][: min(batch, count - step * batch), 1:]
      parts_of.append(ask(model.variables, own))
      progress.update(len(own))
  weights, attributes = map(np.concatenate, zip(*parts_of, strict=True))
  return weights, attributes


@functools.lru_cache
def _asked(architecture: Architecture, batch: int) -> Callable[..., Any]:
  """Of variables and images to weights and attributes."""

  def ask(variables: Any, images: Array) -> tuple[Array, Array]:
    found: Any = Network(architecture).apply(variables, images)
    return found.weights, found.attributes

  return training.parallel_map(ask, batch_size=batch)
