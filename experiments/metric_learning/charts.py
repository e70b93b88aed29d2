"""Charts of `retrieval`: scores, gains of each part, and curves by loss."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.frame import dots, pictures
from experiments.frame.study import Table
from experiments.metric_learning.claims import MAP
from experiments.metric_learning.methods import TITLES
from experiments.metric_learning.plan import BOTH, GSP, ZSP, Config, Name, plan
from experiments.metric_learning.runs import Trained

if TYPE_CHECKING:
  import matplotlib.figure

_PARTS = ("CCP", "XBM", GSP, ZSP, BOTH)


def draw(config: Config, table: Table) -> dict[str, Any]:
  """Scores of all trainings, and the gain of each part or pooling."""
  names = list(plan(config))
  if config.poolings:
    return {f"gains-{config.group}": _poolings(names, table)}
  scores = {
    name.title.replace("+++", "++ + "): table.values(MAP, f"{name}") for name in names
  }
  label = f"{MAP} of unseen classes"
  drawn = {f"scores-{config.group}": dots.dots({"": scores}, label)}
  if gains := _gains(names, table):
    drawn[f"gains-{config.group}"] = gains
  return drawn


def _gains(names: list[Name], table: Table) -> "matplotlib.figure.Figure | None":
  """Paired gains of each part over the same training without it."""
  panels: dict[str, dict[str, np.ndarray]] = {part: {} for part in _PARTS}
  for name in names:
    without = name._replace(parts="") if name.parts else name._replace(kind="plain")
    if name != without and without in names:
      part = name.parts or name.kind.upper()
      panels[part][without.title] = table.gain(MAP, f"{name}", over=f"{without}")
  panels = {part: gains for part, gains in panels.items() if gains}
  if not panels:
    return None
  shown = {title for gains in panels.values() for title in gains}
  plain_first = sorted(names, key=lambda name: name.kind != "plain")
  rows = [name.title for name in plain_first if name.title in shown]
  label = f"{MAP} gained over the same loss without it"
  return dots.dots(panels, label, rows=rows, columns=len(_PARTS), gains=True)


def _poolings(names: list[Name], table: Table) -> "matplotlib.figure.Figure":
  """Paired gains of each pooling over the average, by loss."""
  panels: dict[str, dict[str, np.ndarray]] = {}
  for name in names:
    average = name._replace(parts="")
    mean = table.values(MAP, f"{average}").mean()
    gains = panels.setdefault(f"{average.title}, GAP: {mean:.3f}", {})
    if name != average:
      gains[name.parts] = table.gain(MAP, f"{name}", over=f"{average}")
  return dots.dots(panels, f"{MAP} gained over average pooling (GAP)", gains=True)


def curves(config: Config, runs: Mapping[Name, Trained]) -> dict[str, Any]:
  """Best validation score so far, one panel per loss; none for many poolings."""
  if config.poolings:
    return {}
  panels: dict[str, dict[str, np.ndarray]] = {}
  for name, run in runs.items():
    added = "+".join(filter(None, (name.kind.upper(), name.parts)))
    label = added.removeprefix("PLAIN").removeprefix("+") or "loss alone"
    panels.setdefault(TITLES[name.loss], {})[label] = run.best_so_far
  steps = config.evaluate_every * (1 + np.arange(config.steps // config.evaluate_every))
  figure = pictures.curve_panels(
    panels, steps, xlabel="step", ylabel=f"best {MAP} so far, validation"
  )
  return {f"curves-{config.group}": figure}
