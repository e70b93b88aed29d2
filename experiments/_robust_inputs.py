"""How well images themselves tell their classes apart (DIST table 5.3)."""

import sys
from collections.abc import Sequence
from typing import Any

import tqdm

from experiments import _report, _robust_structure, _robust_tables, _voronoi_sets

Figures = dict[str, float]


def _measured(title: str, images: str, train, test) -> tuple[list[Any], Figures]:
  """Rows, beside the paper's where it has such images, and figures."""
  digits = images == "digits"
  found = _robust_structure.of_inputs(
    train, test, classes=_robust_tables.CLASSES, levels=16 if digits else 255
  )
  rows = [
    _report.row(
      title,
      name,
      [value],
      paper=None if digits else _robust_tables.inputs(images, name),
    )
    for name, value in found.items()
  ]
  return rows, found


def _claim(name: str, text: str, value: float) -> Any:
  return _report.claim(name, text, [value], paper="DIST tab. 5.3", every_seed=True)


def inputs(images: str, train, test) -> tuple[list[Any], list[Any]]:
  """The images that networks are trained on."""
  rows, found = _measured("images", images, train, test)
  if images == "digits":
    text = "the digits tell their classes apart better than CIFAR-10's images, always"
    value = min(x - _robust_tables.inputs(images, name) for name, x in found.items())
  else:
    text = (
      "neither the nearest neighbour nor the nearest mean is right for half of them"
    )
    value = 0.5 - max(
      x for name, x in found.items() if name.startswith(("1-NN", "nearest mean"))
    )
  claims = [_claim("X7", text, value)]
  if len(train.y) == _robust_tables.IMAGES.get(images):
    text = "phi, R2 and the nearest mean as printed to 0.002, 1-NN to 0.005"
    claims.append(_claim("X7-table", text, 1 - _robust_tables.gap(found, images)))
  return rows, claims


def beside(names: Sequence[str]) -> list[tuple[list[Any], list[Any]]]:
  """Photographs, of which no network is trained; says which are not there."""
  parts = []
  for name in names:
    try:
      train, test = (
        _voronoi_sets.prepared(name, split).points() for split in ("train", "test")
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
