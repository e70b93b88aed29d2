"""Average pooling and a combination of prototypes: how close are they?

An embedding network with two-dimensional local features is trained on photographs of
ten classes. 48 prototypes cover its local features. The average of an image is compared
with the combination of the prototypes that its features are nearest to (section 4.3 of
DML). Figures show features and averages directly, in the plane.

    python -m experiments.gap_prototypes                    # 3 min
    python -m experiments.gap_prototypes --preset smoke     # an untrained network

Needs the images of CIFAR-10, prepared by tensorflow-datasets, in TFDS_DATA_DIR.
"""

import dataclasses
import pathlib
from typing import Literal

import numpy as np

from experiments.frame import images as class_sets
from experiments.frame.settings import Decided
from experiments.frame.study import Claim, Measured, Study, Table
from experiments.gsp import gap, network, training

GAP = "GAP"


@dataclasses.dataclass(frozen=True)
class Config(network.Settings):
  """Settings of the study."""

  seeds: int = 8
  """Number of networks, each with its own initial weights."""
  dim: Decided[int] = 2
  """Dimension of local features and embedding; 2, to draw the plane."""
  normalization: Literal["l2", "unit_ball", "none"] = "unit_ball"
  steps: int = 600
  centres: int = 48
  """Prototypes of the local features."""
  images: int = 64
  """Test images per class."""
  train_split: str = "train"
  """Split with the training images."""
  # Settings of poolings that this study does not use.
  prototypes: Decided[int] = 64
  inverse_temperature: Decided[float] = 0.5


PRESETS = {
  "cpu": Config(),
  "smoke": Config(
    seeds=1, steps=0, widths=(8,), strides=(1,), images=16, train_split="train[:5%]"
  ),
  "full": Config(**network.PUBLISHED),
}  # fmt: skip


def measure(config: Config, output: pathlib.Path) -> Measured:
  """Trains and measures every network; the last one is drawn."""
  images = class_sets.read("cifar10", config.train_split, size=config.image_size)
  test = class_sets.read("cifar10", "test", size=config.image_size)
  rows = [np.flatnonzero(test.labels == label)[: config.images] for label in range(10)]
  tested = test[np.concatenate(rows)]
  table, studies = Table(), []
  for seed in range(config.seed, config.seed + config.seeds):
    variants = {GAP: network.AVERAGE}
    state = training.train(config, seed, variants, images, output / "kept")[GAP].state
    maps = network.embed(state, tested, config, pooled=False).pooled
    studies.append(gap.study(np.asarray(maps), tested.labels, config.centres))
    table.add_all(GAP, gap.measure(studies[-1], seed))
  return table, lambda: gap.draw(studies, tested)


def least(table: Table, *measures: str) -> np.ndarray:
  """The smallest of these measures, for each seed."""
  return np.min([table.values(measure, GAP) for measure in measures], axis=0)


def falls(table: Table) -> np.ndarray:
  """Total decrease of the covering radius; -1 if it ever increases."""
  rise = table.values("largest rise of the radius", GAP)
  return np.where(rise <= 0, table.values("radius of 1 - radius of all", GAP), -1)


CLAIMS = [
  Claim("pcc-bound",
   "distance(GAP, PCC) < mean distance to the prototypes < covering radius, for every "
   "image (least of both differences)",
   lambda t: least(t, "least of error - distance", "least of radius - error"),
   "DML Prop. 4.2.1, corrected", True),
  Claim("pcc-tight", "mean distance(GAP, PCC) < half the covering radius",
   lambda t: (
     t.values("covering radius", GAP) / 2
     - t.values("distance of average and combination", GAP)
   )),
  Claim("hulls-overlap",
   "class hulls intersect and classes share prototypes (the smaller number)",
   lambda t: least(
     t, "class pairs with intersecting hulls", "prototypes of several classes"
   ),
   "DML Fig. 4.3", True),
  Claim("classes-differ",
   "histograms of two classes differ more than those of halves of a class",
   lambda t: (
     t.values("variation between classes", GAP)
     - t.values("variation between halves of a class", GAP)
   )),
  Claim("k-centre",
   "the covering radius never rises with another prototype, and falls from the first "
   "to the last",
   falls, "DML Algorithm 2", True),
]  # fmt: skip
STUDY = Study(
  "gap_prototypes", __doc__, "DML 4.3", PRESETS, measure, CLAIMS,
  options=(
    "images", "train_split", "image_size", "blocks", "widths", "strides", "norm",
    "normalization", "centres", "steps", "parts", "batch_classes", "per_class",
    "learning_rate", "seed", "seeds",
  ),
)  # fmt: skip

if __name__ == "__main__":
  STUDY.main()
