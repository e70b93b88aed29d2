"""`experiments.embed` over 5,000 pictures and 1,000 queries: does the network wait?

JPEG files of 256 x 256 pixels, and a small network that sees them as 64 x 64. Ours is
the whole experiment: it finds the files, looks at their headers, decodes and embeds,
keeps the parts, finds the neighbours and draws the sheet. The floor decodes everything
on one thread and then embeds it; its embeddings must be ours.

    python -m benchmarks.embed                  # minutes on 2 cores
    python -m benchmarks.embed --smoke          # seconds
    python -m benchmarks.embed --json FILE
"""

import contextlib
import io
import pathlib
import statistics
import tempfile
import time
from typing import Any, NamedTuple

import jax
import numpy as np
import rich.console
from PIL import Image

from benchmarks import _measure
from experiments import _embed_parts, _embed_sources, _retrieval_network, embed

AGREES = 1e-5
SLOWER = 1.2
ARCHITECTURE = _retrieval_network.Architecture(
  strides=(2, 1, 2, 2), dim=128, image_size=64, channels=3
)


class Work(NamedTuple):
  """What is embedded and asked."""

  images: int
  queries: int
  side: int


FULL, SMOKE = Work(5000, 1000, 256), Work(60, 20, 64)


def write(work: Work, folder: pathlib.Path) -> embed.Config:
  """Pictures that cost as much to decode as photographs, and a network."""
  rng = np.random.default_rng(0)
  for name, count in (("images", work.images), ("queries", work.queries)):
    (folder / name).mkdir()
    for number in range(count):
      coarse = rng.integers(0, 256, (work.side // 8, work.side // 8, 3), np.uint8)
      smooth = Image.fromarray(coarse).resize((work.side, work.side))
      noise = rng.normal(scale=8, size=(work.side, work.side, 1))
      pixels = np.clip(np.asarray(smooth) + noise, 0, 255).astype(np.uint8)
      Image.fromarray(pixels).save(folder / name / f"{number:05}.jpg", quality=90)
  variables = _retrieval_network.initial_variables(jax.random.key(0), ARCHITECTURE)
  model = _retrieval_network.Model(ARCHITECTURE, variables)
  _retrieval_network.keep(folder / "model", model, 0)
  return embed.Config(
    model=str(folder / "model"),
    images=str(folder / "images"),
    queries=str(folder / "queries"),
    normalize="none",
  )


def ours(config: embed.Config) -> np.ndarray:
  """The experiment, from nothing."""
  with tempfile.TemporaryDirectory() as output:
    with contextlib.redirect_stderr(io.StringIO()):  # its progress
      embed.run(config, pathlib.Path(output))
    return np.load(pathlib.Path(output) / "embeddings.npy")


class Floor:
  """What cannot be left out, one after another; remembers the times of its parts."""

  def __init__(self, config: embed.Config):
    self.batch = config.batch
    self.model = _retrieval_network.load(pathlib.Path(config.model))
    self.pictures = [
      _embed_parts.prepared(_embed_sources.find(text), self.model)
      for text in (config.images, config.queries)
    ]
    self.seconds: dict[str, list[float]] = {"decode": [], "network": []}

  def __call__(self) -> np.ndarray:
    """Embeddings of the images."""
    start = time.perf_counter()
    decoded = [np.stack(list(pictures)) for pictures in self.pictures]
    middle = time.perf_counter()
    network = _embed_parts.network(self.model.architecture, self.batch)
    found = [network(self.model.variables, framed) for framed in decoded]
    self.seconds["decode"].append(middle - start)
    self.seconds["network"].append(time.perf_counter() - middle)
    return found[0]


def main() -> None:
  """The command line."""
  options = _measure.parse(__doc__, cases=False)
  work = SMOKE if options.smoke else FULL
  with tempfile.TemporaryDirectory() as folder:
    config = write(work, pathlib.Path(folder))
    floor = Floor(config)
    row: dict[str, Any] = _measure.compare(
      f"{work.images} images, {work.queries} queries",
      (),
      {
        _measure.OURS: _measure.Contender(lambda: ours(config), 0, compiled=False),
        "floor": _measure.Contender(floor, AGREES, compiled=False),
      },
      (_measure.Target("floor", 1 / SLOWER),),
      repetitions=options.repetitions,
    )
  row["floor_seconds"] = {
    name: statistics.median(times) for name, times in floor.seconds.items()
  }
  parts = ", ".join(f"{name} {s:.3g} s" for name, s in row["floor_seconds"].items())
  rich.console.Console().print(f"floor: {parts}")
  _measure.report("embed", [row], [], options)


if __name__ == "__main__":
  main()
