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

import dataclasses
import pathlib
import sys
import time
from typing import TYPE_CHECKING, Any, Literal

import tqdm

from experiments import (
  _at_once,
  _class_claims,
  _class_exact,
  _class_measures,
  _class_network,
  _class_pictures,
  _class_published,
  _class_runs,
  _class_sets,
  _class_settings,
  _cli,
  _report,
)

if TYPE_CHECKING:
  Name = str
  Data = str
  Tree = str
else:
  Name = Literal[tuple(_class_settings.SETTINGS)]
  Data = Literal[tuple(_class_sets.SOURCES)]
  Tree = Literal[tuple(_class_exact.TREES)]
ALL = tuple(_class_settings.SETTINGS)
SMALL = (
  "softmax", "normface", "normface-dynamic", "normface-mds",
  "proxydr", "proxydr-dynamic", "proxydr-mds", "corr",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Config(_class_network.Settings):
  """Settings of the comparison."""

  data: Data = "ndsb_plankton"
  """Images and their tree."""
  folder: str = ""
  """Where nabirds, micro_s, micro_l and meso_z are."""
  image_size: int = 32
  """Side of the images; 0: the paper's, by the data."""
  percent: int = 100
  """Share of a prepared image set that is read, in percent."""
  train_images: int = 16_000
  """Drawn for training; 0: 90 %, of sets without a test part 70 %."""
  validation_images: int = 1600
  """Drawn for validation; 0: 10 %."""
  test_images: int = 0
  """Of the test part; 0: all."""
  settings: tuple[Name, ...] = SMALL
  """Ways to train."""
  seeds: int = 3
  """Runs of each, each with another division of the images and another start."""
  mds_steps: int = 1000
  """Steps that lay out the proxies after the tree."""
  trees: tuple[Tree, ...] = tuple(_class_exact.TREES)
  """Of the article's trees those whose proxies are laid out, too."""


FULL = _class_network.Rates(learning_rate=1e-4, scale_rate=1e-4)
PRESETS = {
  "cpu": Config(joined=True),
  "tiny_imagenet": Config(data="tiny_imagenet"),
  "omniglot": Config(data="omniglot"),
  "long": Config(
    epochs=20, settings=("normface", "normface-mds", "proxydr", "proxydr-mds")
  ),
  "smoke": Config(
    width=16,
    percent=15,
    train_images=1500,
    validation_images=400,
    test_images=400,
    curve_images=0,
    epochs=1,
    settings=("proxydr", "proxydr-mds"),
    seeds=1,
    mds_steps=200,
    trees=("CIFAR-100",),
  ),
  "full": Config(
    data="cifar100",
    network="paper",
    width=0,
    image_size=0,
    train_images=0,
    validation_images=0,
    batch=32,
    epochs=0,
    augment=True,
    keep_best=True,
    curve_images=0,
    joined=True,
    rates=FULL,
    settings=ALL,
    seeds=5,
  ),
}


def resolved(config: Config) -> Config:
  """The settings with the paper's network and numbers where they leave them open."""
  source = _class_sets.SOURCES[config.data]
  network: Any = source.network if config.network == "paper" else config.network
  return dataclasses.replace(
    config,
    network=network,
    width=config.width or _class_network.WIDTHS[network],
    image_size=config.image_size or source.side,
    epochs=config.epochs or source.epochs,
  )


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
  config = resolved(config)
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
    rows=rows(runs, controls, related, config) + exact + _class_exact.examples(),
    claims=[
      *_class_exact.claims(exact),
      *_class_claims.claims(runs),
      *_class_claims.control_claims(controls),
      *_class_claims.spearman_claims(runs),
    ],
    pictures=_class_pictures.draw(runs, curves, firsts, whole.tree, output),
  )


def rows(
  runs: _class_claims.Runs,
  controls: dict[str, dict[str, list[float]]],
  related: _class_measures.Relations,
  config: Config,
) -> list[dict[str, Any]]:
  """Of trained networks, controls, ceilings, and rank correlations of the figures.

  The article's stand beside those of its network; of trained ones, where they began
  with ImageNet's weights as the article's did.
  """
  network = _class_sets.SOURCES[config.data].network
  comparable = config.data if config.network == network else ""
  pretrained = comparable if config.weights else ""
  found = [
    _report.row(
      _class_settings.SETTINGS[name].title,
      metric,
      [figures[metric] for figures in of_seed.values()],
    )
    for name, of_seed in runs.items()
    for metric in next(iter(of_seed.values()))
  ]
  found += [
    _report.row(
      name, metric, values, paper=_class_published.control(comparable, name, metric)
    )
    for name, measures in controls.items()
    for metric, values in measures.items()
  ]
  found += [
    _report.row("the tree", name, [value])
    for name, value in _class_measures.ceilings(related).items()
  ]
  if sum(len(of_seed) for name, of_seed in runs.items() if name != "softmax") > 3:
    found += [
      _report.row(
        f"rank correlation with {first}",
        second,
        [value],
        paper=_class_published.spearman(pretrained, first, second),
      )
      for first, table in _class_claims.spearman(runs).items()
      for second, value in table.items()
    ]
  return found


def main() -> None:
  """The command line."""
  preset, config, output = _cli.parse(PRESETS, name="class_hierarchy", doc=__doc__)
  _report.write(run(config, output, preset), output)


if __name__ == "__main__":
  main()
