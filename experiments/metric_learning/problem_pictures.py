"""Pictures of `ccp_proxies`: digits in the plane, and curves over the problems."""

import pathlib
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.frame import pictures
from experiments.metric_learning.images import Study
from experiments.metric_learning.problem_figures import PLANE, Runs, title
from spherejax import plotting

if TYPE_CHECKING:
  import matplotlib.figure

SHOWN = 2000  # points of a picture of the plane
_MARKS = {"renewed": "s", "trained once": "D"}


def draw(runs: Runs, study: Study, config: Any, output: pathlib.Path) -> list[str]:
  """Writes all pictures; their names."""
  drawn: dict[str, Any] = {}
  if runs.digits.dim == 2:
    drawn["plane"] = plane(runs, study)
  found = runs.found
  steps = config.evaluate_every * (1 + np.arange(config.steps // config.evaluate_every))
  for curve, label in (
    ("spread", "mean distance of a class's proxies"),
    ("radius", "covering radius of the proxies"),
    ("cover", "covering radius / distance of classes"),
  ):
    shown = {
      name: found[name].curves[curve][0]
      for name in ("renewed", "trained once")
      if curve in found[name].curves
    }
    if shown:
      drawn[curve] = plotting.training_curves(
        shown, steps=steps, ylabel=label, title="digits"
      )
  for loss in config.losses:
    drawn[f"curves-{loss}"] = plotting.training_curves(
      {
        title(name): found[name].curves["score"][0]
        for name in (f"{loss} plain", f"{loss} proxy", f"{loss} ccp")
      },
      steps=steps,
      ylabel="MAP@R, validation",
    )
  bars = {
    title(name): run.test["map_at_r"][0]
    for name, run in found.items()
    if name not in PLANE
  }
  if bars:
    drawn["retrieval"] = plotting.bars_with_intervals(
      {"unseen classes": bars}, ylabel="MAP@R"
    )
  return pictures.save(drawn, output)


def plane(runs: Runs, study: Study) -> "matplotlib.figure.Figure":
  """Test digits of the first seed, and the proxies beside the best network."""
  figure = pictures.new_figure(9.0, 4.6)
  axes = figure.subplots(1, 2, sharex=True, sharey=True)
  labels = study.test_labels[:SHOWN]
  for one, (name, mark) in zip(axes, _MARKS.items(), strict=True):
    found = runs.found[name]
    points = found.points[0, 0][:SHOWN]
    one.scatter(*points.T, c=labels, cmap="tab10", s=4, alpha=0.5, linewidths=0)
    proxies = found.proxies[0, 0]
    lengths = np.linalg.norm(proxies, axis=-1, keepdims=True)
    shown = proxies / np.maximum(lengths, 1)
    classes = np.repeat(np.arange(len(shown)), shown.shape[1])
    one.scatter(
      *shown.reshape(-1, 2).T, c=classes, cmap="tab10", marker=mark, s=45,
      edgecolors="black", linewidths=1,
    )  # fmt: skip
    one.set_title(f"proxies {name}")
    one.set_aspect("equal")
    one.set_xticks([])
    one.set_yticks([])
  return figure
