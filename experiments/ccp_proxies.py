"""Renewed proxies: do they cover their classes better than proxies trained once?

Chance-constrained training solves a sequence of problems. Each has new proxies and
keeps the weights near those of the previous one. Retrieval of unseen car models
compares renewed proxies with proxies trained once, for several weights of the
projection, numbers of proxies, pool sizes and batch sizes. Digits in the plane show how
proxies that are never renewed coalesce. DML, chapter 3.

    python -m experiments.ccp_proxies                     # about an hour
    python -m experiments.ccp_proxies --preset plankton   # which the network never saw
    python -m experiments.ccp_proxies --preset long       # digits: 88 min
    python -m experiments.ccp_proxies --preset smoke      # seconds, needs no data
    python -m experiments.ccp_proxies --preset full       # accelerators

The first two train a layer on features of cars196 or ndsb_plankton, which a network
from the extra `pretrained` computes once. Each seed splits the classes anew. `long` and
`full` need mnist. tensorflow-datasets prepares these sets in TFDS_DATA_DIR. `full`
trains a ResNetV2-20 on 5,421 images of each digit, as many as the rarest digit has.
"""

import pathlib
import sys
from typing import Any

import tqdm

from experiments.frame import at_once, command
from experiments.frame.study import Study, Table
from experiments.metric_learning import images, problem_figures, problems, runs
from experiments.metric_learning.measures import NAMES
from experiments.metric_learning.problem_figures import Runs
from experiments.metric_learning.problems import PRESETS, Config
from experiments.metric_learning.settings import Settings


def train(config: Config, study: images.Study, folder: pathlib.Path) -> Runs:
  """Runs all trainings."""
  jobs = problems.plan(config, command.only(Settings, config))
  for job in jobs.values():
    runs.check(*job, study)
  with tqdm.tqdm(total=len(jobs), file=sys.stderr) as bar:

    def train_name(name: str) -> runs.Trained:
      weights = (config.weight,)
      if name == "c2 ccp":  # the first cell is the usual one
        weights += config.other_weights
      trained = runs.train_at_best_rate(
        *jobs[name], study, folder, problem_figures.title(name),
        weights=weights, rates=config.rates,
      )  # fmt: skip
      bar.set_postfix(training=name)
      bar.update()
      return trained

    return dict(zip(jobs, at_once.in_turns(train_name, jobs), strict=True))


def measure(config: Config, output: pathlib.Path) -> tuple[Table, Any]:
  """Runs all trainings and tabulates their measures."""
  study = problems.study(config, output / "kept")
  trained = train(config, study, output / "kept" / config.data)
  table = problem_figures.tabulate(trained, config)
  if study.raw is not None:
    for name, values in runs.tested(study.raw[None], study.test_labels).items():
      table.add("averaged maps", NAMES[name], values[0])
  return table, lambda: problem_figures.draw(trained, study, config)


STUDY = Study(
  "ccp_proxies", __doc__, "DML, chapter 3", PRESETS, measure, problems.claims,
  charts=problem_figures.charts,
)  # fmt: skip

if __name__ == "__main__":
  STUDY.main()
