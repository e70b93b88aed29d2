"""Charts of `retrieval`: scores, gains of each part, and curves by loss."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.frame import dots, pictures
from experiments.frame.study import Table
from experiments.metric_learning.methods import TITLES
from experiments.metric_learning.runs import Trained
from experiments.metric_learning.tables import BOTH, FOLDS, GSP, ZSP, Name

if TYPE_CHECKING:
  import matplotlib.figure

MAP = "MAP@R"
_PARTS = ("CCP", "XBM", GSP, ZSP, BOTH)
_COLUMNS = 4  # panels of curves side by side


def groups(names: Iterable[Name]) -> dict[str, list[Name]]:
  """The trainings of each set of images, without those of folds."""
  grouped: dict[str, list[Name]] = {}
  for name in names:
    if name.group != FOLDS:
      grouped.setdefault(name.group, []).append(name)
  return grouped


def draw(names: Iterable[Name], table: Table) -> dict[str, Any]:
  """Scores of all trainings, and what each part adds, for each set of images."""
  drawn = {}
  for group, members in groups(names).items():
    parts = {name.parts for name in members}
    if parts <= {"", GSP, ZSP, BOTH}:
      drawn[f"scores-{group}"] = _scores(group, members, table)
      if gains := _gains(members, table):
        drawn[f"gains-{group}"] = gains
    else:
      drawn[f"gains-{group}"] = _poolings(members, table)
  return drawn


def _scores(
  group: str, names: Iterable[Name], table: Table
) -> "matplotlib.figure.Figure":
  scores = {name.title: table.values(MAP, f"{name}") for name in names}
  return dots.dots({group: scores}, f"{MAP} of unseen classes")


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


def curves(
  names: Iterable[Name], runs: Mapping[Name, Trained], steps: np.ndarray
) -> dict[str, Any]:
  """Best validation score so far, one panel a loss, for each set of images."""
  return {
    f"curves-{group}": _curves(members, runs, steps)
    for group, members in groups(names).items()
    if {name.parts for name in members} <= {"", GSP, ZSP, BOTH}
  }


def _curves(
  names: list[Name], runs: Mapping[Name, Trained], steps: np.ndarray
) -> "matplotlib.figure.Figure":
  panels: dict[str, dict[str, np.ndarray]] = {}
  for name in names:
    added = "+".join(filter(None, (name.kind.upper(), name.parts)))
    label = added.removeprefix("PLAIN").removeprefix("+") or "loss alone"
    scores = np.asarray(runs[name].curves["score"][0])
    # A seed that has stopped keeps its best network.
    best = np.fmax.accumulate(scores, axis=-1).mean(axis=0)
    panels.setdefault(TITLES[name.loss], {})[label] = best
  return pictures.curve_panels(
    panels, steps, xlabel="step", ylabel=f"best {MAP} so far, validation"
  )
