"""Chance-constrained proxies against plain losses, a memory and losses with proxies.

Embeddings are trained on some classes and judged by what they find of others: each of
four pair losses alone and with chance-constrained proxies, the contrastive loss with a
cross-batch memory of as many vectors, and losses that know proxies only. DML, chapter 3
and section 5.3.4.

    python -m experiments.retrieval                    # 15 min on 2 cores
    python -m experiments.retrieval --preset long      # four times the steps: 75 min
    python -m experiments.retrieval --preset gsp       # generalized sum pooling: 35 min
    python -m experiments.retrieval --preset tiny_imagenet   # photographs: 23 min
    python -m experiments.retrieval --preset smoke     # seconds, needs no data
    python -m experiments.retrieval --preset full --weights FILE      # accelerators
    python -m experiments.retrieval --preset table-3.1 --weights FILE --dataset inshop \
      --folder DIR

The first three need omniglot, the first two ndsb_plankton, too, prepared by
tensorflow-datasets, in TFDS_DATA_DIR, and tiny_imagenet its own set: 75 of its classes
train, 25 validate and 100 are sought, and no network of other photographs is begun
with. Their figures do not compare with the thesis's, which are of larger photographs.
Those stand beside the others: full is CUB by the contrastive loss with and without
chance-constrained proxies, table-3.1, -3.2, -3.3, -5.1, -5.2, -5.3, figure-3.4, -3.8
and -5.12 are all methods of the table or figure, for cub, cars, sop or inshop, or,
without figures to compare with, omniglot or tiny_imagenet; figure-3.5 and any --search
look for hyperparameters on validation classes. FILE has ImageNet's weights of
--backbone.
"""

import dataclasses
import pathlib
import sys
import time
from typing import Any

import tqdm

from experiments.frame import at_once, command, results
from experiments.metric_learning import (
  claims,
  pictures,
  plan,
  pretraining,
  runs,
  tables,
)
from experiments.metric_learning.methods import Method
from experiments.metric_learning.photographs import comparison, search
from experiments.metric_learning.photographs.comparison import FullConfig
from experiments.metric_learning.plan import PRESETS, Config
from experiments.metric_learning.settings import Settings
from experiments.metric_learning.tables import Name


def run(
  config: Config | FullConfig, output: pathlib.Path, preset: str = "cpu"
) -> dict[str, Any]:
  """All trainings and what they find; returns figures and claims."""
  if isinstance(config, FullConfig):
    if config.search:
      return search.run(config, output, preset)
    return comparison.run(config, output, preset)
  start = time.perf_counter()
  plan.check(config)
  settings = command.only(Settings, config)
  methods = plan.plan(config)
  studies = {
    group: plan.study(config, group)
    for group in dict.fromkeys(name.group for name in methods)
  }
  for name, method in methods.items():
    own = plan.settings_of(config, settings, name, method)
    runs.check(own, method, studies[name.group])
  if config.pretraining:
    settings = pretraining.train(settings, config.pretraining, output / "kept")
  with tqdm.tqdm(total=len(methods), file=sys.stderr) as bar:

    def one(each: tuple[Name, Method]) -> runs.Trained:
      name, method = each
      own = plan.settings_of(config, settings, name, method)
      folds = config.folds if name.group == tables.FOLDS else 1
      cells = {"weight": (config.weight,) * folds, "fold": tuple(range(folds))}
      kept = output / "kept" / name.group
      trained = runs.train(own, method, studies[name.group], cells, kept, name.title)
      bar.set_postfix({name.group: name.title})
      bar.update()
      return trained

    with at_once.pool() as pool:
      found = dict(zip(methods, pool.map(one, methods.items()), strict=True))
  untrained = {
    group: runs.untrained(
      dataclasses.replace(
        settings, image_size=one.images.shape[1], channels=one.images.shape[-1]
      ),
      one,
    )
    for group, one in studies.items()
  }
  joined = tables.joined(found, studies)
  return results.result(
    experiment="retrieval",
    preset=preset,
    config=config,
    seconds=time.perf_counter() - start,
    rows=tables.rows(found, untrained, joined),
    claims=claims.claims(found, untrained, joined, config),
    pictures=pictures.draw(found, studies, config, output),
  )


def main() -> None:
  """The command line."""
  preset, config, output = command.parse(
    PRESETS, name="retrieval", doc=__doc__, unused=plan.unused
  )
  results.write(run(config, output, preset), output)


if __name__ == "__main__":
  main()
