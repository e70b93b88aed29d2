"""Screening: which hyperparameters of generalized sum pooling matter?

A two-level design varies the number of prototypes, the mass, the inverse temperature
and the weight of zero-shot prediction. A curve varies the mass; a grid varies the
number of prototypes and the inverse temperature (DML 5.3.4.5, table 5.4, figures 5.8,
5.10 and 5.11). All heads are trained on frozen maps of collages of characters. MAP@R is
measured on validation collages, whose classes do not occur in training. Every seed uses
another frozen network and other backgrounds. All cells with the same number of
prototypes are one vmapped program.

    python -m experiments.gsp_screening                  # 12 min
    python -m experiments.gsp_screening --preset smoke   # seconds
    python -m experiments.gsp_screening --preset full --weights FILE    # accelerators

Needs omniglot, prepared by tensorflow-datasets, in TFDS_DATA_DIR. The preset full
trains the paper's table on CUB. figure-5.8, figure-5.10 and figure-5.11 (SOP, or
--dataset inshop) train the settings of these figures. FILE contains ImageNet weights of
BN-Inception.
"""

import dataclasses
import pathlib

import numpy as np

from experiments.frame.pictures import Figure
from experiments.frame.study import Claim, Measured, Study, Table
from experiments.gsp import collages, screening, screening_cells
from experiments.metric_learning.photographs import screening as photographs

Config = screening_cells.Config | photographs.FullScreening
# With the network of `gsp_collage`: maps of 64 positions.
CPU = screening_cells.Config(
  steps=500, parts=5, stem_stride=2, strides=(1, 2, 1), loss="contrastive"
)
PRESETS: dict[str, Config] = {
  "cpu": CPU,
  "smoke": dataclasses.replace(
    CPU, percent=20, pretraining=0, steps=5, most=6, widths=(8,), strides=(1,), dim=16,
    validation=64, losses=("C2",), seeds=2, head_steps=10, screen=False, counts=(16,),
    sharpness=(0.5, 20.0), masses=(),
  ),
  **photographs.PRESETS,
}  # fmt: skip


def measure(config: Config, output: pathlib.Path) -> Measured:
  if isinstance(config, photographs.FullScreening):
    return photographs.measure(config, output), None
  source = collages.load("omniglot", config.image_size, config.percent)
  trained: dict[str, list[dict]] = {loss: [] for loss in config.losses}
  for seed in range(config.seed, config.seed + config.seeds):
    maps, validation = screening.frozen_maps(config, seed, source, output)
    for loss, runs in trained.items():
      runs.append(screening.train(config, loss, seed, maps, validation, output))
  table = Table()
  for loss, runs in trained.items():
    scores, shifts = (
      {cell: np.array([run[cell][part] for run in runs]) for cell in runs[0]}
      for part in (0, 1)
    )
    screening_cells.tabulate(table, config.plan, loss, scores, points=100)
    for cell, values in shifts.items():
      name = screening_cells.name(loss, cell)
      table.add(name, screening_cells.APART, values, listed=False)
  return table, None


def claims(config: Config, table: Table) -> list[Claim]:
  """Claims of DML about its table and plots."""
  if isinstance(config, photographs.FullScreening):
    return [*photographs.claims(config, table)]
  statements = [screening_cells.design_claim()]
  for loss in config.losses:
    statements += screening_cells.claims(config.plan, loss, table, points=100)
    statements += screening_cells.flat(config.plan, loss)
  return statements


def charts(config: Config, table: Table) -> dict[str, Figure]:
  """The grid and the curves of each loss."""
  figures = {}
  for loss in config.losses:
    if isinstance(config, photographs.FullScreening):
      plan = photographs.plan(config, loss)
      figures |= screening_cells.draw(plan, loss, table, photographs.MEASURE)
    else:
      figures |= screening_cells.draw(config.plan, loss, table)
  return figures


STUDY = Study(
  "gsp_screening", __doc__, "DML Tab. 5.4", PRESETS, measure, claims, charts=charts,
  options=(
    "percent", "most", "validation", "losses", "at_once", "pretraining", "screen",
    "counts", "sharpness", "masses", "centre", "dim", "steps", "learning_rate", "seed",
    "seeds", "study", "dataset", "folder", "weights", "methods", "protocol", "folds",
    "repeats", "learned_classes", "skip_unreadable",
  ),
)  # fmt: skip

if __name__ == "__main__":
  STUDY.main()
