"""Triplets of plankton: does the embedding recognise classes that it never saw?

A network is trained on triplets that are uniform over the classes, however rare, with a
growing margin. In its embedding, images are classified by the nearest centroid and by
their nearest neighbours. This is done for the training classes, where a softmax
classifier is the baseline, and for new classes. DIST, article I.

    python -m experiments.plankton                   # 15 min on 2 cores
    python -m experiments.plankton --preset long     # 30 iterations in place of 8
    python -m experiments.plankton --preset smoke    # seconds
    python -m experiments.plankton --preset full --folder ZooScanNet --weights FILE

The first three need ndsb_plankton, prepared by tensorflow-datasets in TFDS_DATA_DIR.
Their numbers are not comparable with the article's, which are shown only for `full`.
That preset reads a folder with a sub-folder of images for each class, and requires
ImageNet weights for Inception v3 as --weights.
"""

import pathlib

import tqdm

from experiments.frame import at_once, training
from experiments.frame.study import Measured, Study
from experiments.hierarchies import (
  plankton_images,
  plankton_pictures,
  plankton_runs,
  plankton_tables,
)
from experiments.hierarchies.plankton_images import PRESETS, Config
from experiments.hierarchies.plankton_runs import BASELINE, EMBEDDING


def measure(config: Config, output: pathlib.Path) -> Measured:
  """Runs all trainings and measures; F1 of every class goes to a separate file."""
  plankton_images.check(config)
  whole = plankton_images.load(config)
  seeds = range(config.seed, config.seed + config.seeds)
  studies = {seed: plankton_images.divide(whole, config, seed) for seed in seeds}
  for study in studies.values():
    training.steps_per_epoch(study.train, config.baseline_batch, "baseline_batch")
  # The longer trainings start first.
  jobs = [(kind, seed) for kind in (EMBEDDING, BASELINE) for seed in seeds]
  total = sum(plankton_runs.parts(kind, config) for kind, _ in jobs)
  with tqdm.tqdm(total=total, unit="iteration") as progress:

    def run_job(job: tuple[str, int]) -> plankton_runs.RunResult:
      return plankton_runs.run(*job, config, studies[job[1]], output, progress.update)

    results = at_once.threaded(run_job, jobs)
  embedded, classified = results[: config.seeds], results[config.seeds :]
  first = studies[config.seed]
  plankton_tables.write_classes(
    embedded, classified, first, config, output / "classes.csv"
  )
  table = plankton_tables.tabulate(embedded, classified, whole, config)
  return table, lambda: plankton_pictures.draw(embedded, classified, first, config)


STUDY = Study(
  "plankton", __doc__, "DIST article I", PRESETS, measure, plankton_tables.CLAIMS,
  options=(
    "data", "folder", "percent", "seen", "test_images", "unseen_images", "network",
    "width", "weights", "dim", "triplets", "iterations", "steps", "learning_rate",
    "seed", "seeds",
  ),
)  # fmt: skip

if __name__ == "__main__":
  STUDY.main()
