"""Chance-constrained proxies against plain losses, a memory and losses with proxies.

Embeddings are trained on some classes and tested by retrieval of others. The study
compares each of four pair losses alone and with chance-constrained proxies, the
contrastive loss with a cross-batch memory of as many vectors, and proxy losses. DML,
chapter 3 and section 5.3.4.

    python -m experiments.retrieval                    # 15 min on 2 cores
    python -m experiments.retrieval --preset cars      # and birds, collages: see below
    python -m experiments.retrieval --preset cars-poolings    # fifteen poolings
    python -m experiments.retrieval --preset smoke     # seconds, needs no data
    python -m experiments.retrieval --preset full --weights FILE      # accelerators
    python -m experiments.retrieval --preset table-3.1 --weights FILE --dataset inshop \
      --folder DIR

The first needs omniglot and ndsb_plankton, prepared by tensorflow-datasets in
TFDS_DATA_DIR. Its numbers are not comparable with the thesis's, which are for
photographs.

cars, birds and collages train a layer, a pooling and a loss on feature maps that a
network of the extra `pretrained` computes once. Their images are cars196, cub_birds100
or collages of tiny_imagenet, of an animal among three artefacts. cars-poolings compares
all poolings; cars-fine-tuned also trains the network's last stage. In all of these,
each seed splits the classes anew.

The other presets show the thesis's numbers beside their own. full trains the
contrastive loss on CUB with and without chance-constrained proxies. table-3.1, -3.2,
-3.3, -5.1, -5.2, -5.3, figure-3.4, -3.8 and -5.12 train all methods of the table or
figure, for cub, cars, sop or inshop, or for omniglot or tiny_imagenet, where the thesis
has no numbers. figure-3.5 and any --search look for hyperparameters on validation
classes. FILE contains ImageNet weights of --backbone.
"""

import dataclasses
import functools
import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tqdm

from experiments.frame import at_once, command
from experiments.frame.study import Claim, Study, Table
from experiments.metric_learning import (
  charts,
  claims,
  measures,
  plan,
  pretraining,
  runs,
  tables,
)
from experiments.metric_learning.photographs import claims as photograph_claims
from experiments.metric_learning.photographs import comparison, methods, search
from experiments.metric_learning.photographs.methods import FullConfig
from experiments.metric_learning.plan import PRESETS, Config
from experiments.metric_learning.settings import Settings

_SEARCHED = 2
"""Seeds whose validation images choose a learning rate."""
Draw = Callable[[], Mapping[str, Any]]


def measure(config: Config | FullConfig, output: pathlib.Path) -> tuple[Table, Draw]:
  """Runs all trainings; returns the table and a function that draws it."""
  if isinstance(config, FullConfig):
    if config.search:
      return search.measure(config, output)
    return comparison.measure(config, output), dict
  pretraining.check(config, config.pretraining, config.data)
  settings, planned = command.only(Settings, config), plan.plan(config)
  groups = dict.fromkeys(name.group for name in planned)
  studies = {group: plan.study(config, group, output / "kept") for group in groups}
  for name, method in planned.items():
    adapted = plan.settings_of(config, settings, name, method)
    runs.check(adapted, method, studies[name.group])
  if config.pretraining:
    settings = pretraining.train(settings, config.pretraining, output / "kept")
  with tqdm.tqdm(total=len(planned), file=sys.stderr) as bar:

    def train_name(name: tables.Name) -> runs.Trained:
      adapted = plan.settings_of(config, settings, name, planned[name])
      folds = config.folds if name.group == tables.FOLDS else 1
      cells = {"weight": (config.weight,) * folds, "fold": tuple(range(folds))}
      folder = output / "kept" / name.group
      train = functools.partial(
        runs.train, method=planned[name], study=studies[name.group], cells=cells,
        folder=folder, title=name.title,
      )  # fmt: skip
      rates = config.rates
      if len(rates) > 1:
        few = dataclasses.replace(adapted, seeds=min(adapted.seeds, _SEARCHED))
        rates = (train(few, rates=rates).rate,)
      trained = train(adapted, rates=rates)
      bar.set_postfix({name.group: name.title})
      bar.update()
      return trained

    trained_runs = dict(
      zip(planned, at_once.in_turns(train_name, planned), strict=True)
    )
  untrained = {}
  for group, study in studies.items():
    size, channels = study.images.shape[1], study.images.shape[-1]
    adapted = dataclasses.replace(settings, image_size=size, channels=channels)
    untrained[f"{group}, untrained"] = runs.untrained(adapted, study)
    if study.raw is not None:
      every = [measures.measures(raw, study.test_labels) for raw in study.raw]
      untrained[f"{group}, averaged maps"] = {
        name: np.array([figures[name] for figures in every]) for name in every[0]
      }
  table = tables.tabulate(trained_runs, untrained, studies)
  steps = config.evaluate_every * (1 + np.arange(config.steps // config.evaluate_every))
  return table, lambda: {
    **charts.curves(planned, trained_runs, steps),
    **tables.sheets(trained_runs, studies),
  }


def claimed(config: Config | FullConfig, table: Table) -> list[Claim]:
  """Claims about trainings in memory, or about photographs."""
  if isinstance(config, FullConfig):
    return photograph_claims.claims(table)
  return claims.claims(config, table)


def charted(config: Config | FullConfig, table: Table) -> Mapping[str, Any]:
  """Charts of trainings in memory."""
  return {} if isinstance(config, FullConfig) else charts.draw(plan.plan(config), table)


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
