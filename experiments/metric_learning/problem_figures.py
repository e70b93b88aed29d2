"""Table and figures of `ccp_proxies`: retrieval, covers, problems."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.frame import dots, pictures
from experiments.frame.study import Table
from experiments.metric_learning.images import Study
from experiments.metric_learning.measures import NAMES
from experiments.metric_learning.methods import TITLES
from experiments.metric_learning.problems import DIGITS
from experiments.metric_learning.runs import Trained
from spherejax import plotting

if TYPE_CHECKING:
  import matplotlib.figure

SHOWN = 2000  # points in a plot of the plane
_MARKS = {"renewed": ("s", "squares"), "trained once": ("D", "diamonds")}


Runs = Mapping[str, Trained]
"""Outcomes of all trainings, by name."""


def lengths(trained: Trained) -> list[list[int]]:
  """Number of evaluations in every ended problem, for each seed of the first cell."""
  steps = []
  for problems in trained.curves["problem"][0]:
    known = problems[np.isfinite(problems)].astype(int)
    steps.append(np.bincount(known)[1:-1].tolist())
  return steps


def at_end(trained: Trained, name: str, problem: int) -> np.ndarray:
  """A figure [seeds] at the last evaluation of a problem, or of the last problem.

  NaN for a training with a single problem, as there is no other to compare it with.
  """
  ends = []
  for values, problems in zip(
    trained.curves[name][0], trained.curves["problem"][0], strict=True
  ):
    number = np.nanmax(problems)
    mask = problems == min(problem, number)
    ends.append(values[mask][-1] if number > 1 else np.nan)
  return np.array(ends)


def moves(trained: Trained, cell: int) -> np.ndarray:
  """Mean distance [seeds] of anchors of successive problems; NaN for one problem."""
  switches = trained.curves["moved"][cell] > 0
  sums = np.nansum(trained.curves["moved"][cell], axis=1)
  number = switches.sum(1)
  return np.where(number > 0, sums / np.maximum(number, 1), np.nan)


def radii(trained: Trained, name: str) -> np.ndarray:
  """Mean covering radius of pools after picks of a kind, [trainings that renewed]."""
  picked = trained.curves["random"][0] > 0
  renewed = picked.any(1)
  sums = np.where(picked, trained.curves[name][0], 0).sum(1)
  return sums[renewed] / picked.sum(1)[renewed]


def title(name: str) -> str:
  """Name of a training in the table."""
  if name in DIGITS:
    return f"digits, {name}"
  loss, _, kind = name.partition(" ")
  if loss in TITLES:
    return TITLES[loss] + {"plain": "", "proxy": "-Proxy", "ccp": "+CCP"}[kind]
  return f"C2+CCP, {name}" if name.startswith("m =") else f"C2, {name}"


def tabulate(runs: Runs, config: Any) -> Table:
  """The table, with unlisted figures for the claims."""
  table = Table()
  for name, trained in runs.items():
    for measure in NAMES:
      table.add(title(name), NAMES[measure], trained.test[measure][0])
    if "problem" in trained.curves:
      _problems(table, title(name), trained)
    if "radius" in trained.curves and name in DIGITS:
      _covers(table, title(name), trained)
  for cell, weight in enumerate(config.other_weights, start=1):
    trained, name = runs["c2 ccp"], f"{title('c2 ccp')}, weight {weight:g}"
    table.add(name, "MAP@R", trained.test["map_at_r"][cell])
    table.add(name, "moves", moves(trained, cell), listed=False)
  return table


def _problems(table: Table, name: str, trained: Trained) -> None:
  table.add(name, "problems", np.nanmax(trained.curves["problem"][0], axis=-1))
  ended = [length for of_seed in lengths(trained) for length in of_seed]
  table.add(name, "lengths", ended, listed=False)
  picks = radii(trained, "random") - radii(trained, "greedy")
  table.add(name, "random - greedy picks", picks, listed=False)


def _covers(table: Table, name: str, trained: Trained) -> None:
  def at(curve: str, place: int) -> list[float]:
    """Values of every seed, from the first or the last evaluation."""
    return [x[np.isfinite(x)][place] for x in trained.curves[curve][0]]

  if "spread" in trained.curves:
    table.add(name, "spread of the proxies at first", trained.first_spread[0])
    table.add(name, "spread of the proxies at last", at("spread", -1))
  for curve, text in (
    ("radius", "radius of the proxies' cover"),
    ("cover", "average covering radius / distance of classes"),
  ):
    table.add(name, f"{text}, first", at(curve, 0))
    table.add(name, f"{text}, last", at(curve, -1))
  for curve in ("radius", "cover", "score"):
    if "problem" in trained.curves:
      later = at_end(trained, curve, 4) - at_end(trained, curve, 1)
      table.add(name, f"{curve}, problem 4 - 1", later, listed=False)


def draw(runs: Runs, study: Study, config: Any) -> dict[str, Any]:
  """Digits in the plane, curves over the problems."""
  drawn: dict[str, Any] = {}
  if config.data == "mnist":
    drawn["plane"] = plane(runs, study)
  steps = config.evaluate_every * (1 + np.arange(config.steps // config.evaluate_every))
  for curve, label in (
    ("spread", "mean distance of a class's proxies"),
    ("radius", "covering radius of the proxies"),
    ("cover", "covering radius / distance of classes"),
  ):
    shown = {
      name: runs[name].curves[curve][0]
      for name in ("renewed", "trained once")
      if name in runs and curve in runs[name].curves
    }
    if shown:
      drawn[curve] = plotting.training_curves(
        shown, steps=steps, ylabel=label, title="digits"
      )
  panels = {
    TITLES[loss]: {
      label: runs[f"{loss} {kind}"].best_so_far
      for kind, label in (
        ("plain", "batch alone"),
        ("proxy", "proxies trained once"),
        ("ccp", "proxies renewed (CCP)"),
      )
    }
    for loss in config.losses
  }
  if panels:
    drawn["curves"] = pictures.curve_panels(
      panels, steps, xlabel="step", ylabel="best MAP@R so far, validation"
    )
  return drawn


def charts(config: Any, table: Table) -> dict[str, Any]:
  """Retrieval of unseen classes by all trainings."""
  del config

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
  return {"retrieval": dots.dots({"": scores}, "MAP@R of unseen classes")}


def plane(runs: Runs, study: Study) -> "matplotlib.figure.Figure":
  """Test digits of the first seed, and the proxies of its best network."""
  figure = pictures.new_figure(9.0, 4.6)
  axes = figure.subplots(1, 2, sharex=True, sharey=True)
  labels = study.test_labels[:SHOWN]
  for panel, (name, (mark, shape)) in zip(axes, _MARKS.items(), strict=True):
    trained = runs[name]
    points = trained.points[0, 0][:SHOWN]
    panel.scatter(*points.T, c=labels, cmap="tab10", s=4, alpha=0.5, linewidths=0)
    proxies = trained.proxies[0, 0]
    lengths = np.linalg.norm(proxies, axis=-1, keepdims=True)
    shown = proxies / np.maximum(lengths, 1)
    classes = np.repeat(np.arange(len(shown)), shown.shape[1])
    panel.scatter(
      *shown.reshape(-1, 2).T, c=classes, cmap="tab10", marker=mark, s=45,
      edgecolors="black", linewidths=1,
    )  # fmt: skip
    panel.set_title(f"proxies (large {shape}) {name}")
    panel.set_aspect("equal")
    panel.set_xticks([])
    panel.set_yticks([])
  return figure
