"""Times embedding and training on 5,000 images, to see if the network waits for data.

The images are JPEG files of 256 x 256 pixels; a small network takes them as 64 x 64.
Ours is `experiments.embed` with 1,000 queries, without the page: it reads the headers,
decodes and embeds, makes thumbnails, stores the features, finds the neighbours and
draws the sheet. The floor decodes everything on one thread and then embeds it; its
embeddings must equal ours. In training, ours are steps of `experiments.retrieval`,
which decodes and crops images ahead. The floor decodes and crops all images on one
thread before the first step; the losses must be the same.

    python -m benchmarks.embed                  # minutes on 2 cores
    python -m benchmarks.embed --smoke          # seconds
    python -m benchmarks.embed --json FILE
"""

import contextlib
import functools
import io
import pathlib
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from PIL import Image

from benchmarks import _measure
from experiments import embed
from experiments.frame import networks
from experiments.metric_learning import methods, objective
from experiments.metric_learning.photographs import batches as retrieval_full_batches
from experiments.metric_learning.photographs import sets
from experiments.metric_learning.photographs import training as retrieval_full_training
from experiments.metric_learning.photographs.methods import FullConfig
from spherejax import training
from spherejax.explorer import _embedding, _sources, _tables

AGREES = 1e-3  # features are stored in half precision
SLOWER = 1.2
ARCHITECTURE = networks.Architecture(
  strides=(2, 1, 2, 2), dim=128, image_size=64, channels=3
)


class Work(NamedTuple):
  """Numbers of images to embed and of queries."""

  images: int
  queries: int
  side: int
  steps: int


FULL, SMOKE = Work(5000, 1000, 256, 100), Work(96, 20, 64, 2)
CLASSES = 12  # with a folder of images each; the last class is not trained on


class Folders(NamedTuple):
  """Folders of a network and of the images."""

  model: str
  images: str
  queries: str


def write(work: Work, folder: pathlib.Path) -> Folders:
  """Writes images that cost as much to decode as photographs, and a network."""
  rng = np.random.default_rng(0)
  for name, count in (("images", work.images), ("queries", work.queries)):
    for number in range(count):
      class_folder = folder / name / f"{number % CLASSES:02}"
      class_folder.mkdir(parents=True, exist_ok=True)
      coarse = rng.integers(0, 256, (work.side // 8, work.side // 8, 3), np.uint8)
      smooth = Image.fromarray(coarse).resize((work.side, work.side))
      noise = rng.normal(scale=8, size=(work.side, work.side, 1))
      pixels = np.clip(np.asarray(smooth) + noise, 0, 255).astype(np.uint8)
      Image.fromarray(pixels).save(class_folder / f"{number:05}.jpg", quality=90)
  variables = networks.initial_variables(jax.random.key(0), ARCHITECTURE)
  model = networks.Model(ARCHITECTURE, variables)
  networks.keep(folder / "model", model, 0)
  return Folders(*(str(folder / name) for name in Folders._fields))


class Embedding:
  """Embeds the images of both folders in two ways; records the floor's times."""

  def __init__(self, folders: Folders):
    self.embedder = embed.load(pathlib.Path(folders.model))
    self.sources = [_sources.find(text) for text in (folders.images, folders.queries)]
    self.network = training.parallel_map(
      lambda _, images: self.embedder(images).embeddings, batch_size=32
    )
    self.seconds: dict[str, list[float]] = {"decode": [], "network": []}

  def ours(self) -> np.ndarray:
    """Embeds as the command does, from nothing."""
    with tempfile.TemporaryDirectory() as folder:
      output = pathlib.Path(folder)
      with contextlib.redirect_stderr(io.StringIO()):  # its progress
        images, queries = (
          _embedding.embed(source, self.embedder, output) for source in self.sources
        )
      _tables.answer(queries, images, 5, output)
      return images.embeddings

  def floor(self) -> np.ndarray:
    """Does only the indispensable work, one part after another."""
    start = time.perf_counter()
    decoded = [
      np.stack([self.embedder.prepare(source.read(row)) for row in range(len(source))])
      for source in self.sources
    ]
    middle = time.perf_counter()
    parts = [self.network(None, images) for images in decoded]
    self.seconds["decode"].append(middle - start)
    self.seconds["network"].append(time.perf_counter() - middle)
    return parts[0]


class Training:
  """Trains on the same images, read ahead or before the first step."""

  def __init__(self, folder: pathlib.Path, steps: int):
    self.settings = FullConfig(
      **vars(ARCHITECTURE), steps=steps, prefetch=4, batch=32, learning_rate=1e-5,
      weight_decay=1e-4, zero_shot=0.0,
    )  # fmt: skip
    method = methods.Method("c2")
    images = str(folder / "images")
    pictures = sets.load("cub", images, CLASSES - 1, False).learned
    key = jax.random.key(0)
    run = retrieval_full_training.Run(self.settings, method, pictures, key)
    self.state = run.start(key, fresh=True)
    step = training.make_step(run, objective.optimizer(self.settings, method))
    self.step = training.parallel_step(step)
    self.begin = retrieval_full_batches.batches(self.settings, pictures, run.table, key)
    self.planned = retrieval_full_batches.planned(
      self.settings, pictures, run.table, key
    )
    self.seconds: dict[str, list[float]] = {"decode": [], "network": []}

  def train(self, batches: Iterable[dict[str, np.ndarray]]) -> np.ndarray:
    """Runs all steps; returns their losses."""
    state, losses = training.replicate(self.state), []
    for batch in batches:
      state, metrics = self.step(state, training.shard(batch))
      losses.append(metrics["loss"])
    return np.array([float(training.unreplicate(loss)) for loss in losses])

  def ours(self) -> np.ndarray:
    """Trains on images that are read as the experiment reads them."""
    return self.train(self.begin(0))

  def floor(self) -> np.ndarray:
    """Decodes all images, then trains."""
    start = time.perf_counter()
    decoded = list(self._decoded())
    middle = time.perf_counter()
    losses = self.train(decoded)
    self.seconds["decode"].append(middle - start)
    self.seconds["network"].append(time.perf_counter() - middle)
    return losses

  def _decoded(self) -> Iterator[dict[str, np.ndarray]]:
    (images,) = self.planned(0)
    rows = np.arange(len(images)).reshape(-1, self.settings.batch)
    for batch_rows in rows:
      pixels = np.stack([images.images[i] for i in batch_rows])
      yield {"image": pixels, "label": images.labels[batch_rows]}


def compare(
  case: str, way: Embedding | Training, agrees: float, repetitions: int
) -> dict[str, Any]:
  """Compares ours with the floor, and times the floor's parts."""
  contenders = {
    _measure.OURS: _measure.Contender(way.ours, 0, compiled=False),
    _measure.FLOOR: _measure.Contender(way.floor, agrees, compiled=False),
  }
  targets = (_measure.Target(_measure.FLOOR, 1 / SLOWER),)
  row = _measure.compare(case, (), contenders, targets, repetitions=repetitions)
  parts = {name: statistics.median(times) for name, times in way.seconds.items()}
  told = ", ".join(f"{name} {seconds:.3g} s" for name, seconds in parts.items())
  print(f"floor of {case}: {told}")
  return row | {"floor_seconds": parts}


def main() -> None:
  """Runs the command line."""
  options = _measure.parse(__doc__)
  work = SMOKE if options.smoke else FULL
  with tempfile.TemporaryDirectory() as folder:
    both = Embedding(write(work, pathlib.Path(folder)))
    steps = Training(pathlib.Path(folder), work.steps)
    works = {
      name: functools.partial(compare, name, way, agrees, options.repetitions)
      for name, way, agrees in (
        (f"{work.images} images, {work.queries} queries", both, AGREES),
        (f"training, {work.steps} steps", steps, 0.0),
      )
    }
    _measure.run("embed", works, [], options)


if __name__ == "__main__":
  main()
