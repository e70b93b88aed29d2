"""Figures of `projector_collapse`."""

from collections.abc import Mapping

import numpy as np

from experiments.frame import pictures
from experiments.frame.study import Table
from experiments.self_supervision.claims import SIMILAR, Names
from experiments.self_supervision.geometry import ALIGNMENT, HALFWAY, LOCAL
from experiments.self_supervision.runs import Trained
from experiments.self_supervision.settings import LARGE, SMALL, Config
from experiments.self_supervision.toy import ANGLES, PIXEL, RANKS
from experiments.self_supervision.training import BINS, ENCODER, PROJECTOR
from spherejax import plotting

_COARSE = "nearest negatives of the same coarse label"
# By file: label, and curves by what follows the name of the strength.
_CURVES = {
  "rank": ("effective rank of the projector", {"": "effective rank"}),
  "accuracy": ("accuracy of a linear probe", {"": "probe"}),
  "sharing": ("nearest negatives of the same label", {"": "sharing"}),
  "coarse-sharing": (_COARSE, {"": "coarse sharing"}),
  "unexplained": ("unexplained variance of displacements", {"": "unexplained"}),
  "bound": ("InfoNCE and its bound", {", loss": "loss", ", bound": "bound"}),
  "alike": (SIMILAR[1], {f", {x}": f"{SIMILAR[1]} {x}" for x in (ENCODER, PROJECTOR)}),
}
_PROJECTORS = (
  ("probe", "accuracy of a linear probe"),
  ("rank of h", "rank of the features, share"),
  (ALIGNMENT, "alignment of (local) maps"),
  (LOCAL[1], "effective rank of (local) maps"),
)
_SPECTRA = {
  "spectrum h": "features",
  "spectrum augmented h": "features of augmented images",
  "spectrum W": "projector",
}


def draw(
  trained: Trained, deep: Mapping[str, Trained], config: Config, table: Table
) -> dict[str, pictures.Figure]:
  """Draws all plots, by file name."""
  steps = config.measure_every * np.arange(config.steps // config.measure_every + 1)
  names = config.strengths
  figures: dict[str, pictures.Figure] = {}
  for file, (label, kinds) in _CURVES.items():
    shown = {"bound": names[:3], "alike": (LARGE, SMALL)}.get(file, names)
    curves = {
      f"{name}{kind}": values
      for kind, curve in kinds.items()
      for name, values in _going(trained, names, _with_start(trained, curve)).items()
      if name in shown
    }
    if curves:
      at = steps[1:] if file == "bound" else steps
      figures[file] = plotting.training_curves(curves, steps=at, ylabel=label)
  figures["spectra"] = spectra(trained, names)
  figures["distances"] = distances(trained, names)
  if deep:
    figures["projectors"] = projectors(trained, names, deep)
  if "rotations" in config.toys:
    ranks = np.stack([table.values(measure, PIXEL) for measure in RANKS], axis=1)
    figures["rotations"] = plotting.training_curves(
      {PIXEL: ranks},
      steps=np.array(ANGLES),
      ylabel="rank of the covariance",
      xlabel="range of angles, degrees",
    )
  return figures


def _with_start(trained: Trained, curve: str) -> np.ndarray:
  """Curves [strengths, seeds, measurements]; all but losses start before step 1."""
  starts = [trained.start[curve][..., None]] if curve in trained.start else []
  return np.concatenate([*starts, trained.curves[curve]], axis=-1)


def _going(trained: Trained, names: Names, values: np.ndarray) -> dict[str, np.ndarray]:
  """Values [seeds, ...] of the runs that did not collapse, by strength."""
  rows = zip(names, values, ~trained.collapsed, strict=True)
  return {name: of_seeds[mask] for name, of_seeds, mask in rows if mask.any()}


def spectra(trained: Trained, names: Names) -> pictures.Figure:
  """Logarithms of singular values relative to the largest: mean and range of seeds."""
  times = {
    "at first": trained.start,
    "halfway": {key: trained.shown[f"{key}{HALFWAY}"] for key in _SPECTRA},
    "at the end": trained.shown,
  }
  panels = {
    f"{title}\n{time}": time_spectra[key]
    for time, time_spectra in times.items()
    for key, title in _SPECTRA.items()
  }
  figure, cells = pictures.panels(panels, 3, 2.2, 0.2, sharex="col", sharey="col")
  for axes, of_strengths in zip(cells, panels.values(), strict=True):
    curves = zip(names, of_strengths, strict=True)
    for color, (name, runs) in zip(pictures.COLORS, curves, strict=False):
      values, at = runs - runs.max(), np.arange(runs.shape[-1])
      low, high = np.min(values, 0), np.max(values, 0)
      axes.fill_between(at, low, high, color=color, alpha=0.2, linewidth=0)
      axes.plot(at, np.mean(values, 0), color=color, lw=1.5, label=name)
    axes.grid(alpha=0.3)
  figure.supxlabel("number of the singular value; band: range of the seeds", fontsize=9)
  figure.supylabel("logarithm", fontsize=9)
  pictures.name_curves(figure, 5)
  return figure


def distances(trained: Trained, names: Names) -> pictures.Figure:
  """Histograms of distances to the nearest negatives at the end, mean over seeds."""
  figure = pictures.new_figure(6, 3.6)
  axes = figure.subplots()
  axes.set_xlabel("distance of the nearest negative in the encoder")
  axes.set_ylabel("share of images")
  edges = np.linspace(0, 2, BINS + 1)
  going = _going(trained, names, trained.shown["distances"])
  for color, (name, shares) in zip(pictures.COLORS, going.items(), strict=False):
    axes.stairs(shares.mean(0), edges, label=name, lw=1.8, color=color)
  if going:
    nonzero = np.flatnonzero(np.sum([x.mean(0) for x in going.values()], 0) > 0)
    axes.set_xlim(float(edges[nonzero[0]]), float(edges[nonzero[-1] + 1]))
    axes.legend()
  return figure


def projectors(
  linear: Trained, names: Names, deep: Mapping[str, Trained]
) -> pictures.Figure:
  """The study of depth and width, with a dot for every seed and a line for the mean."""
  places = {name: (trained, 0) for name, trained in deep.items()}
  if LARGE in names:
    places = {"linear": (linear, names.index(LARGE)), **places}
  figure = pictures.new_figure(7.2, 4.8)
  for axes, (key, title) in zip(figure.subplots(2, 2).flat, _PROJECTORS, strict=True):
    for place, (trained, row) in enumerate(places.values()):
      # The local map of a linear projector is W everywhere.
      is_linear = key == LOCAL[1] and trained is linear
      values = trained.at_end("effective rank" if is_linear else key)[row]
      values = values[~trained.collapsed[row]]
      color = pictures.COLORS[place % len(pictures.COLORS)]
      axes.plot(np.full(len(values), place), values, "o", color=color, alpha=0.5)
      if len(values):
        axes.hlines(values.mean(), place - 0.3, place + 0.3, "k", lw=1)
    axes.set_xticks(range(len(places)), places, fontsize=8.5)
    axes.set_title(title, fontsize=9.5, loc="left")
    axes.grid(alpha=0.3)
  return figure
