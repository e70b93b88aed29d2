"""How well images themselves tell their classes apart (DIST table 5.3)."""

import sys
from collections.abc import Sequence
from typing import Any

import tqdm

from experiments.frame import results
from experiments.robustness import images as voronoi_sets
from experiments.robustness import structure, tables

Figures = dict[str, float]


def _measured(title: str, images: str, train, test) -> tuple[list[Any], Figures]:
  """Rows, beside the paper's where it has such images, and figures."""
  digits = images == "digits"
  found = structure.of_inputs(
    train, test, classes=tables.CLASSES, levels=16 if digits else 255
  )
  rows = [
    results.row(
      title,
      name,
      [value],
      paper=None if digits else tables.inputs(images, name),
    )
    for name, value in found.items()
  ]
  return rows, found


def _claim(name: str, text: str, value: float) -> Any:
  return results.claim(name, text, [value], paper="DIST tab. 5.3", every_seed=True)


def inputs(images: str, train, test) -> tuple[list[Any], list[Any]]:
  """The images that networks are trained on."""
  rows, found = _measured("images", images, train, test)
  if images == "digits":
    text = "the digits tell their classes apart better than CIFAR-10's images, always"
    value = min(x - tables.inputs(images, name) for name, x in found.items())
  else:
    text = (
      "neither the nearest neighbour nor the nearest mean is right for half of them"
    )
    value = 0.5 - max(
      x for name, x in found.items() if name.startswith(("1-NN", "nearest mean"))
    )
  claims = [_claim("X7", text, value)]
  if len(train.y) == tables.IMAGES.get(images):
    text = "phi, R2 and the nearest mean as printed to 0.002, 1-NN to 0.005"
    claims.append(_claim("X7-table", text, 1 - tables.gap(found, images)))
  return rows, claims


def beside(names: Sequence[str]) -> list[tuple[list[Any], list[Any]]]:
  """Photographs, of which no network is trained; says which are not there."""
  parts = []
  for name in names:
    try:
      train, test = (
        voronoi_sets.prepared(name, split).points() for split in ("train", "test")
      )
    except FileNotFoundError as error:
      tqdm.tqdm.write(f"without {name}: {error}", file=sys.stderr)
      continue
    rows, found = _measured(f"{name}, {len(train.y):,} images", name, train, test)
    claim = _claim(
      f"X7-{name}",
      f"of {name} the nearest neighbour is right for less than half of the images, the "
      "nearest mean for less than 0.4, l2",
      min(0.5 - found["1-NN, l2"], 0.4 - found["nearest mean, l2"]),
    )
    parts.append((rows, [claim]))
  return parts
