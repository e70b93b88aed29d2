"""Why projectors of contrastive learning lose rank: the geometry of augmentations.

An encoder and a linear projector learn by InfoNCE with augmentations of three
strengths. Measured are the rank of the projector and of the features, the bound of the
loss, the nearest negatives and their labels, and what the projector does not see of the
displacements; deeper projectors, fixed features and rotations of a pixel stand beside.
SSL, figures 1, 3 to 7, 9, 10 and section 5.

    python -m experiments.projector_collapse                    # minutes on 2 cores
    python -m experiments.projector_collapse --preset smoke     # seconds, needs no data

The first needs tiny_imagenet, prepared by tensorflow-datasets, in TFDS_DATA_DIR.
"""

import dataclasses
import pathlib
import time
from typing import Any, Literal

from experiments import (
  _cli,
  _collapse_claims,
  _collapse_pictures,
  _collapse_runs,
  _collapse_sets,
  _collapse_toy,
  _report,
)
from experiments._collapse_claims import CROP, LARGE, MODERATE, SMALL
from experiments._collapse_training import Settings
from spherejax import data

# SSL, table 2.
COLOURED = {name: data.view_strengths(name) for name in (LARGE, MODERATE, SMALL)}
COLOURED[CROP] = COLOURED[LARGE]._replace(flip=0.0, jitter=0.0, grayscale=0.0)
# Digits have no colours, no mirror images, and are too small to lose much.
GREY = {
  name: data.ViewStrengths((area, 1.0), 0.0, change, change, blur=0.0)
  for name, area, change in (
    (LARGE, 0.3, 0.8),
    (MODERATE, 0.6, 0.4),
    (SMALL, 0.95, 0.08),
  )
}


@dataclasses.dataclass(frozen=True)
class Config(Settings):
  """Settings of the study."""

  images: Literal["tiny_imagenet", "digits"] = "tiny_imagenet"
  """What is learned from."""
  image_size: int = 32
  """Side of the photographs, an area average of the stored ones."""
  strengths: tuple[Literal["large", "moderate", "small", "large, crops alone"], ...] = (
    LARGE, MODERATE, SMALL, CROP,
  )  # fmt: skip
  """Augmentations, in this order."""
  projectors: tuple[str, ...] = ("64-32", "256-32", "64-64-32")
  """Outputs of the layers of other projectors, trained with large augmentation."""
  toys: tuple[Literal["fixed_features", "depths", "rotations"], ...] = (
    "fixed_features", "depths", "rotations",
  )  # fmt: skip
  """What needs no images."""
  toy_seeds: int = 5
  """Of what needs no images."""


PRESETS = {
  "cpu": Config(),
  "smoke": Config(
    images="digits",
    seeds=1,
    steps=60,
    probe_every=60,
    strides=(1, 2, 1),
    widths=(16, 32, 32),
    projector=(16,),
    strengths=(LARGE, SMALL),
    projectors=(),
    measured=256,
    toys=("rotations",),
    toy_seeds=3,
  ),
}


def run(config: Config, output: pathlib.Path, preset: str = "cpu") -> dict[str, Any]:
  """All trainings and what they show; returns figures and claims."""
  start = time.perf_counter()
  settings = _cli.only(Settings, config)
  _cli.check_parts(config.steps, config.measure_every)
  table, study = GREY, None
  if config.images == "tiny_imagenet":
    table, study = COLOURED, _collapse_sets.photographs(config.image_size)
  study = study or _collapse_sets.digits()
  unknown = set(config.strengths) - set(table)
  if unknown:
    raise ValueError(f"strengths of {config.images} are {list(table)}, got {unknown}")
  kept = output / "kept"
  strengths = {name: table[name] for name in config.strengths}
  linear = _collapse_runs.train(settings, strengths, study, kept)
  deep = {}
  for name in config.projectors:
    widths = tuple(map(int, name.split("-")))
    own = dataclasses.replace(settings, projector=widths)
    deep[name] = _collapse_runs.train(own, {LARGE: table[LARGE]}, study, kept)
  rows = _collapse_claims.rows(linear, config.strengths, deep)
  claims = _collapse_claims.claims(linear, config.strengths)
  turned = []
  for name in config.toys:
    found, told = _collapse_toy.TOYS[name](config.toy_seeds, config.seed)
    rows, claims = rows + found, claims + told
    turned = found if name == "rotations" else turned
  return _report.result(
    experiment="projector_collapse",
    preset=preset,
    config=config,
    seconds=time.perf_counter() - start,
    rows=rows,
    claims=claims,
    pictures=_collapse_pictures.draw(linear, config, turned, output),
  )


def main() -> None:
  """The command line."""
  preset, config, output = _cli.parse(PRESETS, name="projector_collapse", doc=__doc__)
  _report.write(run(config, output, preset), output)


if __name__ == "__main__":
  main()
