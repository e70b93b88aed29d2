"""Why projectors of contrastive learning lose rank: the geometry of augmentations.

An encoder and a linear projector learn by InfoNCE with augmentations of three
strengths. Measured are the rank of the projector and of the features, the bound of the
loss, the nearest negatives and their labels, and what the projector does not see of the
displacements; deeper projectors, fixed features and rotations of a pixel stand beside.
SSL, figures 1, 3 to 7, 9, 10 and section 5.

    python -m experiments.projector_collapse                    # 38 min on 2 cores
    python -m experiments.projector_collapse --preset long      # 1,600 steps, 43 min
    python -m experiments.projector_collapse --preset smoke     # seconds, needs no data
    python -m experiments.projector_collapse --preset full      # accelerators, days

The encoder of the first has stride 2 in its first convolution already: with --strides
1 2 1, which looks at every pixel, a step takes 4.6 times as long.

The first two need tiny_imagenet, prepared by tensorflow-datasets, in TFDS_DATA_DIR, the
last one cifar100.
"""

import dataclasses
import pathlib
import time
from collections.abc import Mapping
from typing import Any

from experiments.frame import at_once, command, kept, results
from experiments.self_supervision import claims as collapse_claims
from experiments.self_supervision import images, lars, pictures, runs, toy
from experiments.self_supervision import settings as collapse_config
from experiments.self_supervision.claims import LARGE
from experiments.self_supervision.settings import PRESETS, Config
from experiments.self_supervision.training import Settings
from spherejax import data


def load(config: Config) -> images.Study:
  """The images."""
  if config.images == "digits":
    return images.digits()
  if config.images == "cifar100":
    return images.cifar100()
  return images.photographs(config.image_size)


def train(
  config: Config,
  strengths: Mapping[str, data.ViewStrengths],
  study: images.Study,
  folder: pathlib.Path,
) -> runs.Trained:
  """Networks of one projector, all strengths and seeds."""
  if config.at_once:
    return runs.train(command.only(Settings, config), strengths, study, folder)
  settings = command.only(lars.Full, config)
  own = folder / f"full-{kept.digest((settings, study.name))}"
  return lars.train(settings, strengths, study, own)


def run(config: Config, output: pathlib.Path, preset: str = "cpu") -> dict[str, Any]:
  """All trainings and what they show; returns figures and claims."""
  start = time.perf_counter()
  collapse_config.check(config)
  table = collapse_config.strengths_of(config)
  study = load(config)
  if config.batch > len(study.train):
    raise ValueError(
      f"batch must be at most the {len(study.train)} training images, got"
      f" {config.batch}"
    )
  strengths = {name: table[name] for name in config.strengths}
  jobs = [(config, strengths)]
  for name in config.projectors:
    own = dataclasses.replace(config, projector=collapse_config.widths_of(name))
    jobs.append((own, {LARGE: table[LARGE]}))

  def one(job: tuple[Config, Mapping[str, data.ViewStrengths]]) -> Any:
    return train(*job, study, output / "kept")

  if config.at_once:
    with at_once.pool() as pool:
      linear, *others = pool.map(one, jobs)
  else:
    linear, *others = map(one, jobs)
  deep = dict(zip(config.projectors, others, strict=True))
  rows = collapse_claims.rows(linear, config.strengths, deep)
  claims = collapse_claims.claims(linear, config.strengths, deep)
  turned = []
  for name in config.toys:
    found, told = toy.TOYS[name](config.toy_seeds, config.seed)
    rows, claims = rows + found, claims + told
    turned = found if name == "rotations" else turned
  return results.result(
    experiment="projector_collapse",
    preset=preset,
    config=config,
    seconds=time.perf_counter() - start,
    rows=rows,
    claims=claims,
    pictures=pictures.draw(linear, deep, config, turned, output),
  )


def main() -> None:
  """The command line."""
  preset, config, output = command.parse(
    PRESETS, name="projector_collapse", doc=__doc__
  )
  results.write(run(config, output, preset), output)


if __name__ == "__main__":
  main()
