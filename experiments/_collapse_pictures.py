"""Pictures of `projector_collapse`: SSL's figures 1, 3 to 7, 9 and 10."""

import pathlib
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments import _figure
from experiments._collapse_full import HALFWAY
from experiments._collapse_runs import Trained
from experiments._collapse_toy import ANGLES
from experiments._collapse_training import BINS
from spherejax import plotting

if TYPE_CHECKING:
  import matplotlib.figure

_CURVES = {
  "rank": ("effective rank", "effective rank of the projector"),
  "accuracy": ("probe", "accuracy of a linear probe"),
  "sharing": ("sharing", "nearest negatives of the same label"),
  "coarse-sharing": ("coarse sharing", "nearest negatives of the same coarse label"),
  "unexplained": ("unexplained", "unexplained variance of displacements"),
}
_SPECTRA = {
  "spectrum h": "features",
  "spectrum augmented h": "features of augmented images",
  "spectrum W": "projector",
}


def draw(
  found: Trained, config: Any, turned: list[dict[str, Any]], output: pathlib.Path
) -> list[str]:
  """Writes all pictures; their names."""
  steps = config.measure_every * np.arange(config.steps // config.measure_every + 1)
  names = config.strengths
  drawn: dict[str, Any] = {}
  for file, (curve, label) in _CURVES.items():
    whole = np.concatenate(
      [found.start[curve][..., None], found.curves[curve]], axis=-1
    )
    curves = dict(zip(names, whole, strict=True))
    drawn[file] = plotting.training_curves(curves, steps=steps, ylabel=label)
  both = {
    f"{name}, {kind}": values
    for kind in ("loss", "bound")
    for name, values in zip(names[:3], found.curves[kind], strict=False)
  }
  drawn["bound"] = plotting.training_curves(
    both, steps=steps[1:], ylabel="InfoNCE and its bound"
  )
  drawn["spectra"] = spectra(found, names)
  drawn["distances"] = distances(found, names)
  if turned:
    ranks = np.array([row["values"] for row in turned]).T
    drawn["rotations"] = plotting.training_curves(
      {"rotations of a pixel": ranks},
      steps=np.array(ANGLES),
      ylabel="rank of the covariance",
      xlabel="range of angles, degrees",
    )
  return [
    plotting.save(figure, output / f"{name}.png").name for name, figure in drawn.items()
  ]


def spectra(found: Trained, names: tuple[str, ...]) -> "matplotlib.figure.Figure":
  """Logarithms of singular values, all seeds, halfway too where they are kept."""
  times = {", at first": found.start}
  if f"{next(iter(_SPECTRA))}{HALFWAY}" in found.shown:
    times[HALFWAY] = {key: found.shown[f"{key}{HALFWAY}"] for key in _SPECTRA}
  times[", at the end"] = found.shown
  figure = _figure.new_figure(11, 3.6 * len(times))
  rows = figure.subplots(len(times), 3, squeeze=False)
  for row, (time, shown) in zip(rows, times.items(), strict=True):
    for axes, (key, title) in zip(row, _SPECTRA.items(), strict=True):
      for index, (name, runs) in enumerate(zip(names, shown[key], strict=True)):
        for number, values in enumerate(runs):
          label = name if number == 0 else None
          axes.plot(values - runs.max(), color=f"C{index}", lw=1, label=label)
      axes.set_title(f"{title}{time}")
      axes.set_xlabel("singular value")
      axes.grid(alpha=0.3)
    row[0].set_ylabel("logarithm, over the largest")
  figure.axes[0].legend()
  return figure


def distances(found: Trained, names: tuple[str, ...]) -> "matplotlib.figure.Figure":
  """Shares of nearest distances at the end, mean over seeds."""
  figure = _figure.new_figure(6, 3.6)
  axes = figure.subplots()
  edges = np.linspace(0, 2, BINS + 1)
  for name, shares in zip(names, found.shown["distances"], strict=True):
    axes.stairs(shares.mean(0), edges, label=name, lw=1.5)
  axes.set_xlabel("distance of the nearest negative in the encoder")
  axes.set_ylabel("share of images")
  axes.legend()
  return figure
