"""The table of `class_hierarchy`, with the figures of the article."""

from collections.abc import Mapping

from experiments.frame import images
from experiments.frame.study import Table
from experiments.hierarchies import measures, methods
from experiments.hierarchies.settings import Config
from experiments.published import dist_hierarchy
from experiments.published.dist_hierarchy import PROTOTYPES, PROXIES

# Measures in the Spearman tables, as in the article's supplement.
MEASURES = (
  "top-1", "top-5", "AHD@1", "AHD@5", "HP@5", "HS@50", "HS@250", "AHS@250",
  PROXIES, PROTOTYPES,
)  # fmt: skip
BY_SEED = f"rank correlation with {PROXIES}, of each seed"

# For each setting, by seed: its figures.
Runs = Mapping[str, Mapping[int, Mapping[str, float]]]


def spearman(runs: Runs, seeds: list[int] | None = None) -> dict[str, dict[str, float]]:
  """Rank correlations over all runs but softmax: of three measures with every one."""
  from scipy import stats

  rows = [
    figures
    for name, of_seed in runs.items()
    for seed, figures in of_seed.items()
    if name != "softmax" and (seeds is None or seed in seeds)
  ]

  def correlation(first: str, second: str) -> float:
    columns = ([row[measure] for row in rows] for measure in (first, second))
    return float(stats.spearmanr(*columns)[0])  # pyright: ignore[reportArgumentType]

  return {
    first: {
      second: correlation(first, second) for second in MEASURES if second != first
    }
    for first in (PROXIES, "top-1", "top-5")
  }


def add_runs(
  table: Table,
  runs: Runs,
  controls: Mapping[str, Mapping[str, list[float]]],
  related: measures.Relations,
  config: Config,
) -> None:
  """Adds trained networks, controls, ceilings, and rank correlations of the figures.

  The article's stand beside those of its network; of trained ones, where they began
  with ImageNet's weights as the article's did.
  """
  network = images.SOURCES[config.data].network
  comparable = config.data if config.network == network else ""
  pretrained = comparable if config.weights else ""
  for name, of_seed in runs.items():
    for figures in of_seed.values():
      for metric, value in figures.items():
        table.add(methods.SETTINGS[name].title, metric, value)
  for name, measured in controls.items():
    for metric, values in measured.items():
      paper = dist_hierarchy.control(comparable, name, metric)
      table.add(name, metric, values, paper=paper)
  for name, value in measures.ceilings(related).items():
    table.add("the tree", name, value)
  own = {name: of_seed for name, of_seed in runs.items() if name != "softmax"}
  if sum(map(len, own.values())) > 3:
    for first, found in spearman(own).items():
      for second, value in found.items():
        paper = dist_hierarchy.spearman(pretrained, first, second)
        table.add(f"rank correlation with {first}", second, value, paper=paper)
  if len(own) > 3:
    for seed in next(iter(own.values())):
      for measure, value in spearman(own, [seed])[PROXIES].items():
        table.add(BY_SEED, measure, value, listed=False)
