"""Chance-constrained proxies against plain losses, a memory and proxy losses.

Embeddings are trained on some classes and tested by retrieval of others. The study
trains four pair losses alone, with chance-constrained proxies and with a cross-batch
memory, and compares them with proxy losses. `cars-gsp` adds generalized sum pooling
and zero-shot prediction to eight methods. DML, chapters 3 and 5.

    python -m experiments.retrieval                    # 11 min on 2 cores
    python -m experiments.retrieval --preset plankton  # new to the network: 12 min
    python -m experiments.retrieval --losses c2 --memory-losses --proxy-losses  # C2
    python -m experiments.retrieval --preset cars-gsp         # 30 min on 2 cores
    python -m experiments.retrieval --preset birds-gsp        # 35 min on 2 cores
    python -m experiments.retrieval --preset cars-poolings    # 32 min on 2 cores
    python -m experiments.retrieval --preset cars-tuned       # 43 min on 2 cores
    python -m experiments.retrieval --preset smoke     # seconds, needs no data
    python -m experiments.retrieval --preset full --weights FILE      # accelerators
    python -m experiments.retrieval --preset table-3.1 --weights FILE --dataset inshop \
      --folder DIR

The first seven train a layer, a pooling and a loss on feature maps of cars196,
ndsb_plankton or cub_birds100, which a network from the extra `pretrained` computes
once. tensorflow-datasets reads these sets in TFDS_DATA_DIR. The seventh also trains the
network's last stage. Each seed splits the classes anew. Their numbers are not
comparable with the thesis's.

The other presets show the thesis's numbers beside their own. `full` trains the
contrastive loss on CUB with and without chance-constrained proxies. table-3.1, -3.2,
-3.3, -5.1, -5.2, -5.3, figure-3.4, -3.8 and -5.12 train all methods of the table or
figure, for cub, cars, sop or inshop. figure-3.5 tries weights and numbers of proxies on
validation classes. FILE contains ImageNet weights of --backbone.
"""

import pathlib
from collections.abc import Mapping

import numpy as np

from experiments.frame import command
from experiments.frame.study import Measured, Study, Table
from experiments.metric_learning import images, pictures, plan, runs
from experiments.metric_learning.photographs import claims, comparison, methods
from experiments.metric_learning.photographs.methods import FullConfig
from experiments.metric_learning.plan import PRESETS, Config, Name
from experiments.metric_learning.settings import Settings


def measure(config: Config, output: pathlib.Path) -> Measured:
  """Runs all trainings and tabulates their measures."""
  settings, folder = command.only(Settings, config), output / "kept"
  study = images.study(config, folder)
  planned = plan.plan(config)
  jobs = {
    name.title: (plan.settings_of(config, settings, name, method), method)
    for name, method in planned.items()
  }
  trained = runs.train_all(config, jobs, study, folder / config.group)
  untrained = {"untrained": runs.untrained(settings, study)}
  if study.raw is not None:
    untrained["averaged maps"] = runs.tested(study.raw, study.test_labels)
  by_name = {name: trained[name.title] for name in planned}
  return tabulate(config, by_name, untrained), None


def tabulate(
  config: Config,
  trained: Mapping[Name, runs.Trained],
  untrained: Mapping[str, Mapping[str, np.ndarray]],
) -> Table:
  """Returns the figures of all trainings, with the validation scores for claims."""
  table = Table()
  for variant, figures in untrained.items():
    table.add_all(f"{config.group}, {variant}", figures)
  for name, run in trained.items():
    figures = {measure: values[0] for measure, values in run.test.items()}
    figures["evaluations to the best"] = run.best[0] + 1
    figures[plan.VALIDATION] = np.nanmax(run.curves["score"][0], axis=-1)
    if any(run.rate != 1 for run in trained.values()):
      figures["rate"] = np.full(len(run.best[0]), run.rate)
    if "problem" in run.curves:
      figures["problems"] = np.nanmax(run.curves["problem"][0], axis=-1)
    table.add_all(f"{name}", figures)
  return table


PHOTOGRAPHS = Study(
  "retrieval", __doc__, "DML, chapter 3", {}, comparison.measure, claims.claims,
  unused=methods.unused,
  options=(
    "dataset", "folder", "weights", "backbone", "methods", "protocol", "folds",
    "repeats", "trials", "learned_classes", "skip_unreadable", "dim", "steps", "batch",
    "learning_rate", "seed",
  ),
)  # fmt: skip
STUDY = Study(
  "retrieval", __doc__, "DML, chapter 3", PRESETS, measure, plan.claims,
  charts=pictures.scores, others={FullConfig: PHOTOGRAPHS},
  options=(
    "data", "backbone", "dim", "losses", "memory_losses", "proxy_losses", "gsp_methods",
    "poolings", "rates", "memory", "memory_start", "steps", "batch", "learning_rate",
    "seed", "seeds",
  ),
)  # fmt: skip

if __name__ == "__main__":
  STUDY.main()
