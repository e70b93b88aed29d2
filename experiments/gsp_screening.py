"""Screening: which of the numbers of generalized sum pooling matter?

A two-level design over the number of prototypes, the mass, the inverse temperature and
the weight of zero-shot prediction, the curve over the mass, and the grid of prototypes
and inverse temperature (DML 5.3.4.5, table 5.4, figures 5.8, 5.10 and 5.11), on frozen
maps of collages of glyphs. MAP@R is of validation collages, whose classes training
does not see. Each seed has a frozen network and backgrounds of its own; all its cells
of one number of prototypes are one vmapped program.

    python -m experiments.gsp_screening                  # 9 min
    python -m experiments.gsp_screening --preset smoke   # seconds
    python -m experiments.gsp_screening --preset full --weights FILE    # accelerators

Needs omniglot, prepared by tensorflow-datasets, in TFDS_DATA_DIR. full trains the
paper's table on CUB, figure-5.8, figure-5.10 and figure-5.11 (SOP; --dataset inshop)
what the figures show, with ImageNet's weights of BN-Inception in FILE.
"""

import dataclasses
import pathlib
import time
from typing import Any

import numpy as np

from experiments.frame import command, results
from experiments.gsp import (
  collages,
  screening,
  screening_cells,
  screening_claims,
  screening_design,
  screening_maps,
)
from experiments.metric_learning.photographs import screening as screening_full

# The network of `gsp_collage`: maps of 64 positions.
NETWORK = {"stem_stride": 2, "strides": (1, 2, 1), "loss": "contrastive"}

CPU = screening_cells.Config(steps=500, parts=5, **NETWORK)
PRESETS: dict[str, Any] = {
  "cpu": CPU,
  "smoke": dataclasses.replace(
    CPU,
    percent=20,
    pretraining=0,
    steps=5,
    most=6,
    widths=(8,),
    strides=(1,),
    dim=16,
    validation=64,
    losses=("C2",),
    seeds=2,
    head_steps=10,
    screen=False,
    counts=(16,),
    sharpness=(0.5, 20.0),
    masses=(),
  ),
  **screening_full.PRESETS,
}


def run(
  config: screening_cells.Config | screening_full.FullScreening,
  output: pathlib.Path,
  preset: str = "cpu",
) -> dict[str, Any]:
  """Trains all cells; returns figures and claims."""
  if isinstance(config, screening_full.FullScreening):
    return screening_full.run(config, output, preset)
  start = time.perf_counter()
  source = collages.load("omniglot", config.image_size, config.percent)
  trained: dict[str, list[dict]] = {loss: [] for loss in config.losses}
  for seed in range(config.seed, config.seed + config.seeds):
    maps, validation = screening_maps.frozen_maps(config, seed, source, output)
    for loss, runs in trained.items():
      runs.append(screening.train(config, loss, seed, maps, validation, output))
  rows, made, pictures = [], [screening_claims.design_claim()], []
  for loss, runs in trained.items():
    scores, apart = (
      {cell: np.array([run[cell][part] for run in runs]) for cell in runs[0]}
      for part in (0, 1)
    )
    effects = screening_design.screened(scores) if config.screen else {}
    rows += screening_claims.table(loss, effects, scores)
    made += screening_claims.claims(config, loss, effects, scores, apart)
    pictures += screening_claims.draw(config, loss, scores, output)
  return results.result(
    experiment="gsp_screening",
    preset=preset,
    config=config,
    seconds=time.perf_counter() - start,
    rows=rows,
    claims=made,
    pictures=pictures,
  )


def main() -> None:
  """The command line."""
  preset, config, output = command.parse(PRESETS, name="gsp_screening", doc=__doc__)
  results.write(run(config, output, preset), output)


if __name__ == "__main__":
  main()
