"""Average pooling as a combination of prototypes: how near are the two?

An embedding network with two-dimensional local features is trained on photographs of
ten classes. Its local features are covered by 48 prototypes; an image's average is
then compared with the combination of the prototypes that its features are nearest to
(section 4.3 of DML). Features and averages are drawn as they are: in the plane.

    python -m experiments.gap_prototypes                    # 47 s on 2 cores
    python -m experiments.gap_prototypes --preset smoke     # an untrained network

Needs the images of CIFAR-10, prepared by tensorflow-datasets, in TFDS_DATA_DIR.
"""

import collections
import dataclasses
import pathlib
import sys
import time
from typing import Any

import numpy as np
import tqdm

from experiments.frame import command, results
from experiments.frame import images as class_sets
from experiments.gsp import gap, gap_claims, gap_pictures, network, training
from spherejax import data
from spherejax.losses._batch import Normalization


@dataclasses.dataclass(frozen=True)
class Config(network.Settings):
  """Settings of the study."""

  seeds: int = 3
  """Networks, each trained from another start."""
  dim: int = 2
  """Dimension of the local features and of the embedding; the plane is drawn."""
  normalization: Normalization = "unit_ball"
  """Of the embedding: l2 or unit_ball."""
  steps: int = 600
  """Training steps; 0 leaves the network as it was drawn."""
  centres: int = 48
  """Prototypes of the local features."""
  images: int = 64
  """Test images of each class."""
  train_split: str = "train"
  """Images to train on."""
  # Of poolings and losses that do not take part.
  prototypes: network.Decided[int] = 64
  inverse_temperature: network.Decided[float] = 0.5
  margin: network.Decided[float] = 0.5
  zero_shot_scale: network.Decided[float] = 1.0

  def __post_init__(self):
    super().__post_init__()
    if self.dim != 2:
      raise ValueError(f"dim must be 2, got {self.dim}: features are drawn as they are")


PRESETS = {
  "cpu": Config(),
  "smoke": Config(
    seeds=1, steps=0, widths=(8,), strides=(1,), images=16, train_split="train[:5%]"
  ),
  # The paper's network and size of images; it does not state a schedule.
  "full": Config(
    image_size=32,
    blocks=3,
    strides=(1, 2, 2),
    stem_stride=1,
    norm="batch",
    convolution="native",
    steps=20_000,
    parts=20,
  ),
}


def choose(images: data.Images, count: int) -> data.Images:
  """The first images of each class."""
  rows = [np.flatnonzero(images.labels == label)[:count] for label in range(10)]
  return images[np.concatenate(rows)]


def run(config: Config, output: pathlib.Path, preset: str = "cpu") -> dict[str, Any]:
  """Trains and looks at every network; returns figures and claims."""
  start = time.perf_counter()
  images = class_sets.read("cifar10", config.train_split, size=config.image_size)
  tested = choose(
    class_sets.read("cifar10", "test", size=config.image_size), config.images
  )
  figures = collections.defaultdict(list)
  radii, found = [], None
  total = config.seeds * config.parts if config.steps else None
  with tqdm.tqdm(
    total=total, desc="training", unit="part", file=sys.stderr
  ) as progress:
    for seed in range(config.seed, config.seed + config.seeds):
      variants = {"GAP": network.AVERAGE}
      trained = training.train(
        config, seed, variants, images, progress, kept=output / "kept"
      )
      state = trained["GAP"].state
      maps = network.embed(state, tested, config, pooled=False).pooled
      found = gap.study(np.asarray(maps), tested.labels, config.centres)
      radii.append(found.radii)
      for name, value in gap.measure(found, seed).items():
        figures[name].append(value)
  assert found is not None
  rows = [results.row("GAP", metric, values) for metric, values in figures.items()]
  pictures = gap_pictures.draw(found, radii, tested, output)
  return results.result(
    experiment="gap_prototypes",
    preset=preset,
    config=config,
    seconds=time.perf_counter() - start,
    rows=rows,
    claims=gap_claims.make_claims(figures),
    pictures=pictures,
  )


def main() -> None:
  """The command line."""
  preset, config, output = command.parse(PRESETS, name="gap_prototypes", doc=__doc__)
  results.write(run(config, output, preset), output)


if __name__ == "__main__":
  main()
