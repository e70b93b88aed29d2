"""The table of `class_hierarchy`, with the figures of the article."""

from typing import Any

from experiments.frame import images, results
from experiments.hierarchies import claims, methods
from experiments.hierarchies import measures as class_measures
from experiments.hierarchies.settings import Config
from experiments.published import dist_hierarchy


def rows(
  runs: claims.Runs,
  controls: dict[str, dict[str, list[float]]],
  related: class_measures.Relations,
  config: Config,
) -> list[dict[str, Any]]:
  """Of trained networks, controls, ceilings, and rank correlations of the figures.

  The article's stand beside those of its network; of trained ones, where they began
  with ImageNet's weights as the article's did.
  """
  network = images.SOURCES[config.data].network
  comparable = config.data if config.network == network else ""
  pretrained = comparable if config.weights else ""
  found = [
    results.row(
      methods.SETTINGS[name].title,
      metric,
      [figures[metric] for figures in of_seed.values()],
    )
    for name, of_seed in runs.items()
    for metric in next(iter(of_seed.values()))
  ]
  found += [
    results.row(
      name, metric, values, paper=dist_hierarchy.control(comparable, name, metric)
    )
    for name, measures in controls.items()
    for metric, values in measures.items()
  ]
  found += [
    results.row("the tree", name, [value])
    for name, value in class_measures.ceilings(related).items()
  ]
  if sum(len(of_seed) for name, of_seed in runs.items() if name != "softmax") > 3:
    found += [
      results.row(
        f"rank correlation with {first}",
        second,
        [value],
        paper=dist_hierarchy.spearman(pretrained, first, second),
      )
      for first, table in claims.spearman(runs).items()
      for second, value in table.items()
    ]
  return found
