"""Renewed proxies: do they cover their classes better than proxies trained once?

Chance-constrained training solves a sequence of problems. Each has new proxies, and
stays near the weights of the previous one. Digits in the plane show how proxies that
are never renewed coalesce. Retrieval of characters of unseen alphabets compares renewed
proxies with proxies trained once, over the weight of the projection, the number of
proxies, the size of their pools and the batch size. DML, chapter 3.

    python -m experiments.ccp_proxies                  # 24 min on 2 cores
    python -m experiments.ccp_proxies --preset long    # digits, 4x the steps: 38 min
    python -m experiments.ccp_proxies --preset smoke   # seconds, needs no data
    python -m experiments.ccp_proxies --preset full    # accelerators

All presets but smoke need mnist, and the first needs omniglot, both prepared by
tensorflow-datasets in TFDS_DATA_DIR. `full` trains a ResNetV2-20 on 5,421 images of
each digit, as many as there are of the rarest.
"""

import pathlib
import sys
from typing import Any

import tqdm

from experiments.frame import at_once, command
from experiments.frame.study import Study, Table
from experiments.metric_learning import (
  images,
  pretraining,
  problem_figures,
  problems,
  runs,
)
from experiments.metric_learning.methods import Method
from experiments.metric_learning.problem_figures import Runs
from experiments.metric_learning.problems import DIGITS, PRESETS, Config
from experiments.metric_learning.settings import Settings


def train(config: Config, output: pathlib.Path) -> tuple[Runs, Settings]:
  """Runs all trainings; returns their outcomes, and the characters' settings."""
  settings, study = problems.digits(config)
  sought = problems.characters(config) if problems.plan(config, settings)[1] else study

  def jobs(shared: Settings) -> dict[str, tuple[Settings, Method, images.Study]]:
    plane, others = problems.plan(config, shared)
    planned = {name: (settings, method, study) for name, method in plane.items()}
    return planned | {name: (*pair, sought) for name, pair in others.items()}

  shared = command.only(Settings, config)
  for job in jobs(shared).values():
    runs.check(*job)
  if config.pretraining:
    shared = pretraining.train(shared, config.pretraining, output / "kept")
  planned = jobs(shared)
  with tqdm.tqdm(total=len(planned), file=sys.stderr) as bar:

    def train_name(name: str) -> runs.Trained:
      weights = (config.weight,)
      if name == "c2 ccp":  # the first cell is the usual one
        weights += config.other_weights
      group, title = "characters", problem_figures.title(name)
      if name in DIGITS:
        group, title = "digits", ""
      folder = output / "kept" / group
      trained = runs.train(*planned[name], folder, title, weights=weights)
      bar.set_postfix({group: name})
      bar.update()
      return trained

    with at_once.pool() as pool:
      trained_runs = dict(zip(planned, pool.map(train_name, planned), strict=True))
  return trained_runs, shared


def measure(config: Config, output: pathlib.Path) -> tuple[Table, Any]:
  """Runs all trainings and tabulates their measures."""
  pretraining.check(config)
  trained, settings = train(config, output)
  costs = {}
  if config.losses:
    study = problems.characters(config)
    costs = problem_figures.costs(trained, settings, study, config)
  table = problem_figures.tabulate(trained, config, costs)
  return table, lambda: problem_figures.draw(
    trained, problems.digits(config)[1], config
  )


STUDY = Study(
  "ccp_proxies", __doc__, "DML, chapter 3", PRESETS, measure, problems.claims,
  charts=problem_figures.charts,
)  # fmt: skip

if __name__ == "__main__":
  STUDY.main()
