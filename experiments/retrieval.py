"""Chance-constrained proxies against plain losses, a memory and proxy losses.

Embeddings are trained on some classes and tested by retrieval of others. The study
trains four pair losses alone, with chance-constrained proxies and with a cross-batch
memory, and compares them with proxy losses. Most are also trained with generalized sum
pooling and zero-shot prediction. DML, chapters 3 and 5.

    python -m experiments.retrieval                    # 102 min on 2 cores
    python -m experiments.retrieval --losses c2 --memory-losses --proxy-losses \
      --gsp-methods c2 --gsp-parts    # C2 alone, with CCP, with GSP: about 12 min
    python -m experiments.retrieval --preset cars-poolings    # fifteen poolings
    python -m experiments.retrieval --preset cars-tuned    # 97 min on one core
    python -m experiments.retrieval --preset smoke     # seconds, needs no data
    python -m experiments.retrieval --preset full --weights FILE      # accelerators
    python -m experiments.retrieval --preset table-3.1 --weights FILE --dataset inshop \
      --folder DIR

The first four train a layer, a pooling and a loss on feature maps of cars196, which a
network from the extra `pretrained` computes once. tensorflow-datasets prepares cars196
in TFDS_DATA_DIR. The fourth also trains the network's last stage. Each seed splits the
classes anew. Their numbers are not comparable with the thesis's.

The other presets show the thesis's numbers beside their own. `full` trains the
contrastive loss on CUB with and without chance-constrained proxies. table-3.1, -3.2,
-3.3, -5.1, -5.2, -5.3, figure-3.4, -3.8 and -5.12 train all methods of the table or
figure, for cub, cars, sop or inshop. figure-3.5 tries weights and numbers of proxies on
validation classes. FILE contains ImageNet weights of --backbone.
"""

import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tqdm

from experiments.frame import at_once, command
from experiments.frame.study import Claim, Study, Table
from experiments.metric_learning import charts, claims, images, measures, plan, runs
from experiments.metric_learning.photographs import claims as photograph_claims
from experiments.metric_learning.photographs import comparison, methods, search
from experiments.metric_learning.photographs.methods import FullConfig
from experiments.metric_learning.plan import PRESETS, Config, Name
from experiments.metric_learning.settings import Settings

Draw = Callable[[], Mapping[str, Any]]


def measure(config: Config | FullConfig, output: pathlib.Path) -> tuple[Table, Draw]:
  """Runs all trainings; returns the table and a function that draws it."""
  if isinstance(config, FullConfig):
    if config.trials:
      return search.measure(config, output)
    return comparison.measure(config, output), dict
  settings, folder = command.only(Settings, config), output / "kept"
  study = plan.study(config, folder)
  planned = plan.plan(config)
  adapted = {
    name: plan.settings_of(config, settings, name, method)
    for name, method in planned.items()
  }
  for name, method in planned.items():
    runs.check(adapted[name], method, study)
  with tqdm.tqdm(total=len(planned), file=sys.stderr) as bar:

    def train_name(name: Name) -> runs.Trained:
      trained = runs.train_at_best_rate(
        adapted[name], planned[name], study, folder / config.group, name.title,
        weights=(config.weight,), rates=config.rates,
      )  # fmt: skip
      bar.set_postfix({config.group: name.title})
      bar.update()
      return trained

    trained = dict(zip(planned, at_once.in_turns(train_name, planned), strict=True))
  table = tabulate(config, trained, untrained(settings, study))
  return table, lambda: charts.curves(config, trained)


def untrained(
  settings: Settings, study: images.Study
) -> Mapping[str, Mapping[str, np.ndarray]]:
  """Measures of networks before the first step, and of their maps without a layer."""
  figures = {"untrained": runs.untrained(settings, study)}
  if study.raw is not None:
    of_raw = runs.tested(study.raw[None], study.test_labels)
    figures["averaged maps"] = {name: x[0] for name, x in of_raw.items()}
  return figures


def tabulate(
  config: Config,
  trained: Mapping[Name, runs.Trained],
  untrained: Mapping[str, Mapping[str, np.ndarray]],
) -> Table:
  """Returns the figures of all trainings, with the validation scores for claims."""
  table = Table()
  for variant, figures in untrained.items():
    for measure, title in measures.NAMES.items():
      table.add(f"{config.group}, {variant}", title, figures[measure])
  for name, run in trained.items():
    figures = {title: run.test[x][0] for x, title in measures.NAMES.items()}
    figures["evaluations to the best"] = run.best[0] + 1
    figures[claims.VALIDATION] = np.nanmax(run.curves["score"][0], axis=-1)
    if any(run.rate != 1 for run in trained.values()):
      figures["rate"] = np.full(len(run.best[0]), run.rate)
    if "problem" in run.curves:
      figures["problems"] = np.nanmax(run.curves["problem"][0], axis=-1)
    table.add_all(f"{name}", figures)
  return table


def claimed(config: Config | FullConfig, table: Table) -> list[Claim]:
  """Claims about trainings in memory, or about photographs."""
  if isinstance(config, FullConfig):
    return photograph_claims.claims(table)
  return claims.claims(config, table)


def charted(config: Config | FullConfig, table: Table) -> Mapping[str, Any]:
  """Charts of trainings in memory."""
  return {} if isinstance(config, FullConfig) else charts.draw(config, table)


STUDY = Study(
  "retrieval",
  __doc__,
  "DML, chapter 3",
  PRESETS,
  measure,
  claimed,
  charts=charted,
  unused=lambda config: (
    methods.unused(config) if isinstance(config, FullConfig) else {}
  ),
)

if __name__ == "__main__":
  STUDY.main()
