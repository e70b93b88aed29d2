"""Triplets of plankton: an embedding that tells classes apart that it never saw.

A network is trained on triplets that are uniform over the classes, however rare, with a
margin that grows. In its embedding, images are classified by the nearest centroid and
by their nearest neighbours: of the classes that were learned, beside a softmax
classifier, and of others. DIST, article I.

    python -m experiments.plankton                   # 15 min beside other programs
    python -m experiments.plankton --preset smoke    # seconds
    python -m experiments.plankton --preset full --folder ZooScanNet --weights FILE

The first two need ndsb_plankton, prepared by tensorflow-datasets, in TFDS_DATA_DIR; its
figures do not compare with the article's, which stand beside those of `full`. That
reads a folder with a sub-folder of images for each class, and ImageNet's weights for
Inception v3 from --weights, without which it does not begin.
"""

import dataclasses
import pathlib
import sys
import time
from typing import Any

import jax
import tqdm

from experiments import (
  _at_once,
  _cli,
  _plankton_claims,
  _plankton_pictures,
  _plankton_runs,
  _plankton_sets,
  _plankton_settings,
  _plankton_tables,
  _report,
)
from experiments._plankton_runs import BASELINE, EMBEDDING, SEEN, UNSEEN
from spherejax import _checks


@dataclasses.dataclass(frozen=True)
class Config(_plankton_settings.Settings, _plankton_sets.Selection):
  """Settings of the comparison."""

  seeds: int = 3
  """Divisions of the images, each with another start."""
  neighbours: tuple[int, ...] = (1, 5, 10)
  """Neighbours that vote; among them 10, which the claims are about."""
  curve: tuple[int, ...] = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50)
  """Neighbours that vote on validation images, to choose their number."""
  drawn: int = 2500
  """Images of each group of classes in the pictures of the plane."""
  need_weights: bool = False
  """Whether a run without ImageNet's weights ends; else it begins with random ones."""


PRESETS = {
  "cpu": Config(),
  "smoke": Config(
    percent=12,
    seen_from=60,
    unseen_from=12,
    test_images=20,
    validation_images=10,
    unseen_images=20,
    width=8,
    dim=32,
    triplets=32,
    iterations=3,
    steps=8,
    raised_after=(2,),
    neighbours=(10,),
    curve=(10,),
    seeds=1,
    baseline_batch=128,
    drawn=40,
  ),
  # Networks after 30 iterations of triplets and 200 epochs of the softmax classifier.
  # Its batch is not printed, nor an iteration's steps: those of the released code.
  "full": Config(
    data="folder",
    canvas=299,
    shrink=1,
    inverted=False,
    seen="article",
    validation_images=100,
    network="inception_v3",
    triplets=20,
    iterations=30,
    steps=5000,
    margins=(1.0, 1.3, 1.5),
    raised_after=(20, 30),
    optimizer="sgd",
    learning_rate=0.01,
    baseline_batch=32,
    baseline_rate=1e-4,
    baseline_decay=1.0,
    baseline_epochs=200,
    neighbours=(1, 5, 10, 25),
    need_weights=True,
    seeds=1,
  ),
}


def check(config: Config) -> None:
  """Raises ValueError for settings that do not fit together, before data are read."""
  _plankton_settings.check(config)
  _plankton_sets.check(config)
  _plankton_claims.check(config.neighbours, config.curve)
  _checks.count("drawn", config.drawn)
  if config.need_weights and not config.weights:
    raise ValueError(
      f"name a file of ImageNet's weights for {config.network} by --weights, or begin "
      "with random ones by --no-need-weights"
    )
  if config.weights and not pathlib.Path(config.weights).is_file():
    raise ValueError(f"there is no file of weights at {config.weights}")


def run(config: Config, output: pathlib.Path, preset: str = "cpu") -> dict[str, Any]:
  """All trainings and measures; returns figures and claims."""
  start = time.perf_counter()
  check(config)
  whole = _plankton_sets.load(config)
  seeds = range(config.seed, config.seed + config.seeds)
  studies = {
    seed: _plankton_sets.divide(
      whole, config, jax.random.fold_in(jax.random.key(seed), 0)
    )
    for seed in seeds
  }
  for study in studies.values():
    _plankton_settings.epoch_length(config, len(study.train))
  # The longer ones first.
  jobs = [(kind, seed) for kind in (EMBEDDING, BASELINE) for seed in seeds]
  total = sum(_plankton_runs.parts(kind, config) for kind, _ in jobs)
  with tqdm.tqdm(total=total, unit="iteration", file=sys.stderr) as progress:

    def one(job: tuple[str, int]) -> _plankton_runs.Found:
      kind, seed = job
      return _plankton_runs.run(
        kind, seed, config, studies[seed], output, progress.update
      )

    with _at_once.pool() as pool:
      done = dict(zip(jobs, pool.map(one, jobs), strict=True))
  embedded, classified = (
    [done[kind, s] for s in seeds] for kind in (EMBEDDING, BASELINE)
  )
  apart = {
    group: _plankton_sets.distances(whole, names)
    for group, names in ((SEEN, whole.seen), (UNSEEN, whole.unseen))
  }
  first = studies[config.seed]
  _plankton_tables.write_classes(
    embedded, classified, first, config, output / "classes.csv"
  )
  return _report.result(
    experiment="plankton",
    preset=preset,
    config=config,
    seconds=time.perf_counter() - start,
    rows=_plankton_tables.rows(embedded, classified, whole, apart, config),
    claims=_plankton_claims.claims(embedded, classified, apart[SEEN]),
    pictures=_plankton_pictures.draw(embedded, classified, first, config, output),
  )


def main() -> None:
  """The command line."""
  preset, config, output = _cli.parse(
    PRESETS, name="plankton", doc=__doc__, unused=_plankton_sets.unused
  )
  _report.write(run(config, output, preset), output)


if __name__ == "__main__":
  main()
