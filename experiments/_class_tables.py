"""The table of `class_hierarchy`, with the figures of the article."""

from typing import Any

from experiments import (
  _class_claims,
  _class_measures,
  _class_published,
  _class_sets,
  _class_settings,
  _report,
)
from experiments._class_config import Config


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
