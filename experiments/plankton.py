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
  _plankton_config,
  _plankton_pictures,
  _plankton_runs,
  _plankton_sets,
  _plankton_settings,
  _plankton_tables,
  _report,
)
from experiments._plankton_config import PRESETS, Config
from experiments._plankton_runs import BASELINE, EMBEDDING, SEEN, UNSEEN


def run(config: Config, output: pathlib.Path, preset: str = "cpu") -> dict[str, Any]:
  """All trainings and measures; returns figures and claims."""
  start = time.perf_counter()
  _plankton_config.check(config)
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
