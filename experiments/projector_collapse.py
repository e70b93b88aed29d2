"""Projectors of contrastive learning: do augmentations make them lose rank?

An encoder and a linear projector learn by InfoNCE with augmentations of several
strengths. The study measures the rank of the projector and of the features, the bound
of the loss, the nearest negatives and their labels. It also measures how similar views
become before and after the projector, and which share of displacements and
augmentations the projector does not see. Controls are deeper projectors, fixed features
and rotations of a pixel. SSL, abstract, figures 1, 3 to 7, 9, 10 and sections 4 and 5.

    python -m experiments.projector_collapse                    # 6 min
    python -m experiments.projector_collapse --preset long      # an hour; GPU: 3 min
    python -m experiments.projector_collapse --preset smoke     # seconds, needs no data
    python -m experiments.projector_collapse --preset full      # accelerators, days

In the first two, the first convolution has stride 2 to save time.

The first two need tiny_imagenet, prepared by tensorflow-datasets, in TFDS_DATA_DIR, the
last one cifar100.
"""

import dataclasses
import pathlib
from collections.abc import Mapping

from experiments.frame import at_once, command, kept, training
from experiments.frame.study import Measured, Study
from experiments.self_supervision import claims, figures, runs, settings, toy
from experiments.self_supervision.settings import LARGE, PRESETS, Config
from spherejax import data


def train(
  config: Config,
  strengths: Mapping[str, data.ViewStrengths],
  study: settings.Study,
  folder: pathlib.Path,
) -> runs.Trained:
  """Trains networks with one projector, for all strengths and seeds."""
  if config.at_once:
    alike = command.only(settings.Settings, config)
    return runs.train(alike, strengths, study, folder)
  full = command.only(settings.Full, config)
  run_folder = folder / f"full-{kept.digest((full, study.name))}"
  return runs.train_apart(full, strengths, study, run_folder)


def measure(config: Config, output: pathlib.Path) -> Measured:
  """Runs all trainings and measures them; adds the measures that need no images."""
  settings.check(config)
  strengths, study = settings.strengths_of(config), settings.load(config)
  training.steps_per_epoch(study.train, config.batch)
  jobs = [(config, {name: strengths[name] for name in config.strengths})]
  for name in config.projectors:
    variant = dataclasses.replace(config, projector=settings.widths_of(name))
    jobs.append((variant, {LARGE: strengths[LARGE]}))

  def train_job(job: tuple[Config, Mapping[str, data.ViewStrengths]]) -> runs.Trained:
    return train(*job, study, output / "kept")

  run = at_once.threaded if config.at_once else map
  linear, *others = run(train_job, jobs)
  deep = dict(zip(config.projectors, others, strict=True))
  table = claims.tabulate(linear, config.strengths, deep)
  for name in config.toys:
    toy.TOYS[name](table, config.toy_seeds, config.seed)
  return table, lambda: figures.draw(linear, deep, config, table)


STUDY = Study(
  "projector_collapse", __doc__, "SSL", PRESETS, measure, claims.claims,
  options=(
    "images", "encoder", "widths", "projector", "projectors", "toys", "strengths",
    "image_size", "steps", "measure_every", "batch", "inverse_temperature",
    "learning_rate", "at_once", "seed", "seeds",
  ),
)  # fmt: skip

if __name__ == "__main__":
  STUDY.main()
