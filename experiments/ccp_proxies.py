"""Renewed proxies: do they cover their classes better than proxies trained once?

Chance-constrained training solves a sequence of problems. Each has new proxies and
keeps the weights near those of the previous one. Retrieval of unseen car models
compares renewed proxies with proxies trained once, for several weights of the
projection, numbers of proxies, pool sizes and batch sizes. Digits in the plane show how
proxies that are never renewed coalesce. DML, chapter 3.

    python -m experiments.ccp_proxies                     # 13 min
    python -m experiments.ccp_proxies --preset plankton   # new to the network: 20 min
    python -m experiments.ccp_proxies --preset long       # digits: 38 min
    python -m experiments.ccp_proxies --preset smoke      # seconds, needs no data
    python -m experiments.ccp_proxies --preset full       # accelerators

The first two train a layer on features of cars196 or ndsb_plankton, which a network
from the extra `pretrained` computes once. Each seed splits the classes anew. `long` and
`full` need mnist. tensorflow-datasets prepares these sets in TFDS_DATA_DIR. `full`
trains a ResNetV2-20 on 5,421 images of each digit, as many as the rarest digit has.
"""

import pathlib

from experiments.frame.study import Measured, Study
from experiments.metric_learning import images, pictures, problems, runs
from experiments.metric_learning.problems import PRESETS, Config


def measure(config: Config, output: pathlib.Path) -> Measured:
  """Runs all trainings and tabulates their measures."""
  study = images.study(config, output / "kept", pooled=True)
  trained = runs.train_all(
    config, problems.plan(config), study, output / "kept" / config.data,
    other_weights={"C2+CCP": config.other_weights},
  )  # fmt: skip
  table = problems.tabulate(trained, config)
  if study.raw is not None:
    table.add_all("averaged maps", runs.tested(study.raw, study.test_labels))
  return table, lambda: pictures.of_problems(trained, study, config)


STUDY = Study(
  "ccp_proxies", __doc__, "DML, chapter 3", PRESETS, measure, problems.claims,
  charts=pictures.unseen,
  options=(
    "data", "losses", "other_weights", "batches", "digit_images", "proxies", "pool",
    "weight", "rates", "seed", "seeds", "steps", "batch", "learning_rate", "dim",
    "patience",
  ),
)  # fmt: skip

if __name__ == "__main__":
  STUDY.main()
