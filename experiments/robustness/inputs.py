"""How well images themselves tell their classes apart (DIST table 5.3)."""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import tqdm

from experiments.frame.digits import CLASSES
from experiments.frame.study import Claim, NotMeasured, Table
from experiments.robustness import images as voronoi_sets
from experiments.robustness import published, structure

COUNT = "training images"
PAPER = "DIST tab. 5.3"


def add(table: Table, title: str, images: str, train: Any, test: Any) -> None:
  """Adds figures of images, the paper's beside them where it has such images."""
  levels, printed = 255, published.inputs(images)
  if images == "digits":
    levels, printed = 16, {}
  found = structure.of_inputs(train, test, classes=CLASSES, levels=levels)
  structure.add(table, title, found, printed)
  table.add(title, COUNT, len(train.y), listed=False)


def add_beside(table: Table, names: Sequence[str]) -> None:
  """Adds photographs, of which no network is trained; says which are not there."""
  for name in names:
    try:
      train, test = (
        voronoi_sets.prepared(name, split).points() for split in ("train", "test")
      )
    except FileNotFoundError as error:
      tqdm.tqdm.write(f"without {name}: {error}", file=sys.stderr)
    else:
      add(table, f"{name}, {len(train.y):,} images", name, train, test)


def _better(table: Table) -> np.ndarray:
  printed = published.inputs("digits")
  return np.min([table.values(x, "images") - y for x, y in printed.items()], axis=0)


def _worse(table: Table) -> np.ndarray:
  names = [x for x in published.inputs("digits") if x.startswith(("1-NN", "nearest"))]
  return 0.5 - np.max([table.values(x, "images") for x in names], axis=0)


def _as_printed(table: Table, images: str) -> np.ndarray:
  """Of the largest distance, 1 being what is allowed: less of what has no ties."""
  if table.values(COUNT, "images") != published.IMAGES[images]:
    raise NotMeasured("the table is of a whole set")
  return 1 - np.max(
    [
      abs(table.values(name, "images") - value)
      / (0.005 if name.startswith("1-NN") else 0.002)
      for name, value in published.inputs(images).items()
    ],
    axis=0,
  )


def _below(table: Table, name: str) -> np.ndarray:
  """Less than half, less than 0.4: of as many images as there were."""
  titles = [x for x in table.variants("1-NN, l2") if x.startswith(f"{name}, ")]
  if not titles:
    raise NotMeasured(f"there was no {name}")
  near, mean = (table.values(f"{x}, l2", titles[0]) for x in ("1-NN", "nearest mean"))
  return np.minimum(0.5 - near, 0.4 - mean)


def claims(images: str, beside: Sequence[str]) -> list[Claim]:
  """Of the images that networks are trained on, and of others beside them."""
  if images == "digits":
    text = "the digits tell their classes apart better than CIFAR-10's images, always"
    made = [Claim("X7", text, _better, PAPER, every_seed=True)]
  else:
    text = (
      "neither the nearest neighbour nor the nearest mean is right for half of them"
    )
    made = [
      Claim("X7", text, _worse, PAPER, every_seed=True),
      Claim(
        "X7-table",
        "phi, R2 and the nearest mean as printed to 0.002, 1-NN to 0.005",
        lambda t: _as_printed(t, images),
        PAPER,
        every_seed=True,
      ),
    ]
  return made + [
    Claim(
      f"X7-{name}",
      f"of {name} the nearest neighbour is right for less than half of the images, the "
      "nearest mean for less than 0.4, l2",
      lambda t, name=name: _below(t, name),
      PAPER,
      every_seed=True,
    )
    for name in beside
  ]
