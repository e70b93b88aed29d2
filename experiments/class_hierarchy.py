"""Class trees and proxies: what trains towards a tree, and what finds it unasked?

Networks are trained by softmax, NormFace, ProxyDR and CORR, with learned proxies,
moving averages (EMA), a scale that follows the training (dynamic), and proxies laid
out after the tree (MDS). Measured are accuracy, how far mistakes are in the tree,
retrieval, and how well proxies and class means follow the tree. DIST, article IV.

    python -m experiments.class_hierarchy                    # 43 min on one core
    python -m experiments.class_hierarchy --preset smoke     # seconds
    python -m experiments.class_hierarchy --preset full --data cifar100
    python -m experiments.class_hierarchy --preset tiny_imagenet    # 33 min on one core
    python -m experiments.class_hierarchy --preset omniglot         # 78 min on one core
    python -m experiments.class_hierarchy --preset long      # 20 epochs, four settings

Needs ndsb_plankton (or the other sets), prepared by tensorflow-datasets, in
TFDS_DATA_DIR; nabirds, micro_s, micro_l and meso_z are folders in --folder. `full` has
the article's network of each set: Inception v3 for plankton, ResNet-50 for the others.
"""

import pathlib
import sys
import time
from typing import Any

import tqdm

from experiments import (
  _at_once,
  _class_claims,
  _class_config,
  _class_exact,
  _class_pictures,
  _class_runs,
  _class_sets,
  _class_tables,
  _cli,
  _report,
)
from experiments._class_config import PRESETS, Config


def plan(config: Config) -> list[tuple[str, int]]:
  """All trainings: setting and seed, those of the first seed first."""
  return [
    (name, seed)
    for seed in range(config.seed, config.seed + config.seeds)
    for name in config.settings
  ]


def run(config: Config, output: pathlib.Path, preset: str = "cpu") -> dict[str, Any]:
  """All trainings, the exact part and the controls; returns figures and claims."""
  start = time.perf_counter()
  config = _class_config.resolved(config)
  whole = _class_sets.load(
    config.data, config.image_size, config.folder, config.percent
  )
  seeds = range(config.seed, config.seed + config.seeds)
  grounds = {seed: _class_runs.ground(config, whole, seed) for seed in seeds}
  trainings = plan(config)
  total = len(trainings) * config.epochs
  with tqdm.tqdm(total=total, unit="epoch", file=sys.stderr) as progress:

    def one(each: tuple[str, int]) -> _class_runs.Finished:
      name, seed = each
      path = output / "trained" / f"{name}-{seed}"
      return _class_runs.train(name, grounds[seed], config, path, progress)

    with _at_once.pool() as pool:
      done = dict(zip(trainings, pool.map(one, trainings), strict=True))
  untrained = [_class_runs.chance(config, shared) for shared in grounds.values()]
  runs = {
    name: {
      seed: done[name, seed].outcome.figures for seed in seeds if (name, seed) in done
    }
    for name in config.settings
  }
  curves = {
    name: [done[name, seed].curves for seed in of_seed]
    for name, of_seed in runs.items()
  }
  firsts = {name: done[name, config.seed].outcome for name in config.settings}
  exact = _class_exact.article_trees(seeds, config.mds_steps, config.trees)
  controls = {
    name: {
      metric: [found[name][metric] for found in untrained]
      for metric in untrained[0][name]
    }
    for name in untrained[0]
  }
  related = grounds[config.seed].related
  return _report.result(
    experiment="class_hierarchy",
    preset=preset,
    config=config,
    seconds=time.perf_counter() - start,
    rows=_class_tables.rows(runs, controls, related, config)
    + exact
    + _class_exact.examples(),
    claims=[
      *_class_exact.claims(exact),
      *_class_claims.claims(runs),
      *_class_claims.control_claims(controls),
      *_class_claims.spearman_claims(runs),
    ],
    pictures=_class_pictures.draw(runs, curves, firsts, whole.tree, output),
  )


def main() -> None:
  """The command line."""
  preset, config, output = _cli.parse(
    PRESETS,
    name="class_hierarchy",
    doc=__doc__,
    unused=_class_config.unused,
    resolved=_class_config.resolved,
  )
  _report.write(run(config, output, preset), output)


if __name__ == "__main__":
  main()
