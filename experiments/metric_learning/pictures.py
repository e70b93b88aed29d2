"""Figures of `retrieval` and `ccp_proxies`: scores, gains, curves, digits."""

import re
from collections.abc import Mapping

import numpy as np

from experiments.frame import pictures
from experiments.frame.study import Table
from experiments.metric_learning import problems
from experiments.metric_learning.images import Study
from experiments.metric_learning.methods import TITLES
from experiments.metric_learning.photographs.claims import MAP
from experiments.metric_learning.plan import BOTH, GSP, ZSP, Config, Name, plan
from experiments.metric_learning.problems import ONCE, RENEWED, Runs
from experiments.metric_learning.runs import Trained
from experiments.metric_learning.settings import Settings
from spherejax import distances, plotting

_PARTS = ("CCP", "XBM", GSP, ZSP, BOTH)
SHOWN = 2000  # points in a plot of the plane
_COLUMNS = 4  # of panels with curves
_MARKS = {
  RENEWED: ("s", "proxies (large squares) renewed"),
  ONCE: ("D", "proxies (large diamonds) trained once"),
}


def scores(config: Config, table: Table) -> dict[str, pictures.Figure]:
  """Scores of all trainings, and the gain of each part or pooling."""
  names = list(plan(config))
  if config.poolings:
    return {f"gains-{config.group}": _poolings(names, table)}
  scores = {
    name.title.replace("+++", "++ + "): table.values(MAP, f"{name}") for name in names
  }
  label = f"{MAP} of unseen classes"
  figures = {f"scores-{config.group}": pictures.dots({"": scores}, label)}
  if gains := _gains(config, names, table):
    figures[f"gains-{config.group}"] = gains
  return figures


def _gains(config: Config, names: list[Name], table: Table) -> pictures.Figure | None:
  """Paired gains of each part over the same training without it."""
  panels: dict[str, dict[str, np.ndarray]] = {part: {} for part in _PARTS}
  # Without these settings, CCP and a memory are only compared with the sum on top.
  studied = {"CCP": config.losses, "XBM": config.memory_losses}
  for name in names:
    without = name._replace(parts="") if name.parts else name._replace(kind="plain")
    part = name.parts or name.kind.upper()
    if name != without and without in names and studied.get(part, True):
      panels[part][without.title] = table.gain(MAP, f"{name}", over=f"{without}")
  panels = {part: gains for part, gains in panels.items() if gains}
  if not panels:
    return None
  titles = {title for gains in panels.values() for title in gains}
  plain_first = sorted(names, key=lambda name: name.kind != "plain")
  rows = [name.title for name in plain_first if name.title in titles]
  label = f"{MAP} gained over the same loss without it"
  return pictures.dots(panels, label, rows=rows, columns=len(_PARTS), gains=True)


def _poolings(names: list[Name], table: Table) -> pictures.Figure:
  """Paired gains of each pooling over the average, by loss."""
  panels: dict[str, dict[str, np.ndarray]] = {}
  for name in names:
    average = name._replace(parts="")
    mean = table.values(MAP, f"{average}").mean()
    gains = panels.setdefault(f"{average.title}, GAP: {mean:.3f}", {})
    if name != average:
      gains[name.parts] = table.gain(MAP, f"{name}", over=f"{average}")
  return pictures.dots(panels, f"{MAP} gained over average pooling (GAP)", gains=True)


def _steps(config: Settings) -> np.ndarray:
  return config.evaluate_every * (1 + np.arange(config.steps // config.evaluate_every))


def _curve_panels(
  config: Settings, panels: Mapping[str, Mapping[str, Trained]]
) -> pictures.Figure:
  """Plots best scores so far in small panels that share their axes and colours.

  Later curves are thinner, so that equal curves remain visible below each other.
  """
  figure, cells = pictures.panels(panels, _COLUMNS, 1.7, 0.9, sharex=True, sharey=True)
  names = list(dict.fromkeys(name for runs in panels.values() for name in runs))
  for axes, runs in zip(cells, panels.values(), strict=True):
    for name, run in runs.items():
      index = names.index(name)
      color = pictures.COLORS[index % len(pictures.COLORS)]
      width = max(1.0, 3.0 - 0.4 * index)
      axes.plot(_steps(config), run.best_so_far, color=color, lw=width, label=name)
    axes.locator_params(axis="x", nbins=3)
    axes.grid(axis="y", color="#E6E6E6", linewidth=0.8)
  for axes in cells[-_COLUMNS:]:
    axes.tick_params(labelbottom=True)  # also above an empty cell
  figure.supxlabel("step", fontsize=9)
  figure.supylabel(f"best {MAP} so far, validation", fontsize=9)
  pictures.name_curves(figure)
  return figure


def of_problems(
  runs: Runs, study: Study, config: problems.Config
) -> dict[str, pictures.Figure]:
  """Digits in the plane, curves over the problems."""
  figures: dict[str, pictures.Figure] = {}
  if config.data == "mnist":
    figures["plane"] = plane(runs, study)
  for curve, label in (
    ("spread", "mean distance of a class's proxies"),
    ("radius", "covering radius of the proxies"),
    ("cover", "covering radius / distance of classes"),
  ):
    run_curves = {
      name.removeprefix("digits, "): runs[name].curves[curve][0]
      for name in (RENEWED, ONCE)
      if name in runs and curve in runs[name].curves
    }
    if run_curves:
      figures[curve] = plotting.training_curves(
        run_curves, steps=_steps(config), ylabel=label, title="digits"
      )
  panels = {
    title: {
      "batch alone": runs[title],
      "proxies trained once": runs[f"{title}-Proxy"],
      "proxies renewed (CCP)": runs[f"{title}+CCP"],
    }
    for title in map(TITLES.__getitem__, config.losses)
  }
  if panels:
    figures["curves"] = _curve_panels(config, panels)
  return figures


def unseen(_: problems.Config, table: Table) -> dict[str, pictures.Figure]:
  """Retrieval of unseen classes by all trainings."""

  def label(name: str) -> str:
    name = re.sub("m = (.*), b = (.*)", r"\1 per class, pool \2", name)
    return re.sub("C2, (.*) ccp", r"C2+CCP, \1", name).removesuffix(" plain")

  scores = {
    label(name): table.values("MAP@R", name)
    for name in table.variants("MAP@R")
    if not name.startswith("digits") and "weight" not in name
  }
  if not scores:
    return {}
  return {"retrieval": pictures.dots({"": scores}, "MAP@R of unseen classes")}


def plane(runs: Runs, study: Study) -> pictures.Figure:
  """Test digits of the first seed, and the proxies of its best network."""
  figure = pictures.new_figure(9.0, 4.6)
  axes = figure.subplots(1, 2, sharex=True, sharey=True)
  labels = study.test_labels[:SHOWN]
  for panel, (name, (mark, title)) in zip(axes, _MARKS.items(), strict=True):
    points, proxies = runs[name].points[0, 0][:SHOWN], runs[name].proxies[0, 0]
    panel.scatter(*points.T, c=labels, cmap="tab10", s=4, alpha=0.5, linewidths=0)
    panel.scatter(
      *np.reshape(distances.unit_ball(proxies), (-1, 2)).T, cmap="tab10", marker=mark,
      c=np.repeat(np.arange(len(proxies)), proxies.shape[1]), s=45, linewidths=1,
      edgecolors="black",
    )  # fmt: skip
    panel.set(title=title, aspect="equal", xticks=[], yticks=[])
  return figure
