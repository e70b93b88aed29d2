"""Figures, claims and pictures of `projector_collapse`."""

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.frame import pictures
from experiments.frame.study import Claim, NotMeasured, Table
from experiments.self_supervision import toy
from experiments.self_supervision.geometry import (
  ALIGNMENT,
  EXPLAINED,
  HALFWAY,
  LOCAL,
  OVERLAP,
)
from experiments.self_supervision.runs import Trained
from experiments.self_supervision.settings import CROP, LARGE, MODERATE, SMALL
from experiments.self_supervision.toy import ANGLES, PIXEL, RANKS
from experiments.self_supervision.training import BINS
from spherejax import plotting

if TYPE_CHECKING:
  import matplotlib.figure


COLLAPSED, GAP, BEFORE = "collapsed runs", "least gap", ", before training"
CORRELATION = "correlation of the loss and its bound"
_PROBE = "accuracy of a probe of the features"
_FIGURES = (
  "effective rank", "relative rank", "probe", "probe of outputs", "neighbours",
  "sharing", "coarse sharing", "unexplained", "nearest distance", "invariance",
  "repulsion", "loss", "bound", "least gap", "rank of h", "rank of augmented h",
  "effective rank of h", "effective rank of augmented h", ALIGNMENT,
)  # fmt: skip
_STARTS = (*_FIGURES[:9], *_FIGURES[-5:])
_DEEP = (
  "probe", "sharing", "nearest distance", "invariance", "repulsion", "least gap",
  "rank of h", "effective rank of h", ALIGNMENT, *LOCAL,
)  # fmt: skip

_CURVES = {
  "rank": ("effective rank", "effective rank of the projector"),
  "accuracy": ("probe", "accuracy of a linear probe"),
  "sharing": ("sharing", "nearest negatives of the same label"),
  "coarse-sharing": ("coarse sharing", "nearest negatives of the same coarse label"),
  "unexplained": ("unexplained", "unexplained variance of displacements"),
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


def tabulate(
  linear: Trained, names: tuple[str, ...], deep: Mapping[str, Trained]
) -> Table:
  """All figures at the end of the trainings, and before them where they tell more.

  Runs that collapsed are counted, and have no part in the figures of the end.
  """
  table = Table()
  changes = [figure for figure in linear.end if figure.startswith(OVERLAP)]
  explained = [figure for figure in linear.end if figure.startswith(EXPLAINED)]
  own = (*_FIGURES, *changes, *explained), (*_STARTS, *changes)
  for cell, name in enumerate(names):
    _add(table, name, linear, cell, *own)
    kept = ~linear.collapsed[cell]
    if kept.any():
      correlation = _correlations(linear)[cell][kept]
      table.add(name, CORRELATION, correlation, listed=False)
  for projector, found in deep.items():
    name, kept = f"large, projector {projector}", ~found.collapsed[0]
    if kept.any():
      regions = found.regions[0][kept]
      table.add(name, "linear regions of the training images", regions)
    _add(table, name, found, 0, _DEEP, (ALIGNMENT, *LOCAL))
  every = linear, *deep.values()
  least = min(found.curves[GAP].min() for found in every)
  table.add("all runs", GAP, least, listed=False)
  return table


def _add(
  table: Table,
  name: str,
  found: Trained,
  cell: int,
  ends: tuple[str, ...],
  starts: tuple[str, ...],
) -> None:
  kept = ~found.collapsed[cell]
  for figure in ends if kept.any() else ():
    # The least gap is that of all steps.
    least = figure == GAP
    values = found.curves[GAP].min(-1) if least else found.at_end(figure)
    table.add(name, figure, values[cell][kept])
  for figure in starts:
    table.add(name, f"{figure}{BEFORE}", found.start[figure][cell])
  table.add(name, COLLAPSED, found.collapsed[cell])


def _names(table: Table) -> list[str]:
  """Strengths that a linear projector was trained with."""
  return [x for x in table.variants(COLLAPSED) if "projector" not in x]


def _end(table: Table, figure: str, name: str) -> np.ndarray:
  """Of the seeds of which no run of a linear projector collapsed."""
  gone = table.values(COLLAPSED, name) > 0
  kept = ~np.any([table.values(COLLAPSED, x) > 0 for x in _names(table)], axis=0)
  if not kept.any():
    raise NotMeasured("a run of every seed collapsed")
  if figure.endswith(BEFORE):
    return table.values(figure, name)[kept]
  return table.values(figure, name)[kept[~gone]]


def _apart(figure: str, more: str, less: str) -> Any:
  return lambda t: _end(t, figure, more) - _end(t, figure, less)


def _grown(figure: str, name: str, sign: int = 1) -> Any:
  before = f"{figure}{BEFORE}"
  return lambda t: sign * (_end(t, figure, name) - _end(t, before, name))


def _least(figure: str, names: tuple[str, ...] | None, threshold: float) -> Any:
  """Over the strengths, or over some of them, less a threshold."""
  return lambda t: (
    np.min([_end(t, figure, x) for x in names or _names(t)], axis=0) - threshold
  )


def claims(config: Any, table: Table) -> list[Claim]:
  """What trainings with a linear projector tell; collapsed runs do not count.

  But for the bound, which is of all of them, and of deep projectors, too.
  """
  del table
  some = tuple(x for x in (LARGE, MODERATE, SMALL) if x in config.strengths)
  made = [
    Claim(
      "S3-bound",
      "InfoNCE is at most its bound for every image of every step",
      lambda t: t.values(GAP, "all runs") + 1e-5,
      "SSL, figure 3",
      every_seed=True,
    ),
    Claim(
      "S3-correlation",
      "correlation of the loss and its bound over training > .5",
      _least(CORRELATION, None, 0.5),
      "SSL, figure 3",
    ),
    *_compared(some),
  ]
  for name in some:
    for key, kind in (("S4", ""), ("S4-coarse", "coarse ")):
      text = f"{kind}label sharing of the nearest negative grows, {name}"
      shared = _grown(f"{kind}sharing", name)
      made.append(Claim(f"{key}-{name}", text, shared, "SSL, figure 6"))
    text = f"unexplained variance falls, {name}"
    falls = _grown("unexplained", name, -1)
    made.append(Claim(f"S6-{name}", text, falls, "SSL, figure 7"))
  ranks = (
    ("S7-features", "rank of h", ""),
    ("S7-augmented", "rank of augmented h", " of augmented images"),
  )
  for key, figure, of in ranks if some else ():
    text = f"the features{of} keep .9 of their rank for all strengths"
    least = _least(figure, some, 0.9 - 1e-6)
    made.append(Claim(key, text, least, "SSL, figures 4, 9"))
  for other in some[:-1] if SMALL in some else ():
    text = f"distance of the nearest negative: small > {other}"
    far = _apart("nearest distance", SMALL, other)
    made.append(Claim(f"S8-{SMALL}-{other}", text, far, "SSL, figure 5"))
  text = "effective rank of W: all augmentations < crops alone"
  fewer = _apart("effective rank", CROP, LARGE)
  return [*made, Claim("S9", text, fewer, "SSL, section 4"), *toy.CLAIMS]


def _compared(some: tuple[str, ...]) -> list[Claim]:
  """What a stronger augmentation changes."""
  made = []
  for less, more in itertools.pairwise(some):
    text = f"effective rank of W: {less} < {more} augmentation"
    apart = _apart("effective rank", more, less)
    made.append(Claim(f"S1-{less}-{more}", text, apart, "SSL, figure 1"))
  for name, figure, text, source in (
    ("S2-large-small", "probe", _PROBE, "figure 1"),
    ("S5-repulsion", "repulsion", "repulsion", "section 4"),
    ("S5-invariance", "invariance", "invariance", "section 4"),
    ("S4-large-small", "sharing", "label sharing of the nearest negative", "figure 6"),
  ):
    apart = _apart(figure, LARGE, SMALL)
    made.append(Claim(name, f"{text}: large > small", apart, f"SSL, {source}"))
  for more, less in itertools.pairwise(some) if len(some) > 2 else ():
    text = f"{_PROBE}: {more} > {less}"
    apart = _apart("probe", more, less)
    made.append(Claim(f"S2-{more}-{less}", text, apart, "SSL, figure 1"))
  return made


def _correlations(found: Trained) -> np.ndarray:
  """[strengths, seeds], of the curves of the loss and its bound."""
  loss, bound = found.curves["loss"], found.curves["bound"]
  centred = [x - x.mean(-1, keepdims=True) for x in (loss, bound)]
  norms = np.sqrt((centred[0] ** 2).sum(-1) * (centred[1] ** 2).sum(-1))
  return (centred[0] * centred[1]).sum(-1) / norms


def draw(
  found: Trained,
  deep: Mapping[str, Trained],
  config: Any,
  table: Table,
) -> dict[str, Any]:
  """All pictures by the names of their files."""
  steps = config.measure_every * np.arange(config.steps // config.measure_every + 1)
  names = config.strengths
  drawn: dict[str, Any] = {}
  for file, (curve, label) in _CURVES.items():
    whole = np.concatenate(
      [found.start[curve][..., None], found.curves[curve]], axis=-1
    )
    if curves := _going(found, names, whole):
      drawn[file] = plotting.training_curves(curves, steps=steps, ylabel=label)
  both = {
    f"{name}, {kind}": values
    for kind in ("loss", "bound")
    for name, values in _going(found, names, found.curves[kind]).items()
    if name in names[:3]
  }
  if both:
    drawn["bound"] = plotting.training_curves(
      both, steps=steps[1:], ylabel="InfoNCE and its bound"
    )
  drawn["spectra"] = spectra(found, names)
  drawn["distances"] = distances(found, names)
  if deep:
    drawn["projectors"] = projectors(found, names, deep)
  if "rotations" in config.toys:
    ranks = np.stack([table.values(measure, PIXEL) for measure in RANKS], axis=1)
    drawn["rotations"] = plotting.training_curves(
      {PIXEL: ranks},
      steps=np.array(ANGLES),
      ylabel="rank of the covariance",
      xlabel="range of angles, degrees",
    )
  return drawn


def _going(
  found: Trained, names: tuple[str, ...], values: np.ndarray
) -> dict[str, np.ndarray]:
  """By strength, [seeds, ...] of the runs that did not collapse."""
  rows = zip(names, values, ~found.collapsed, strict=True)
  return {name: own[kept] for name, own, kept in rows if kept.any()}


def spectra(found: Trained, names: tuple[str, ...]) -> "matplotlib.figure.Figure":
  """Logarithms of singular values over the largest, all seeds, at three times."""
  times = {
    "at first": found.start,
    "halfway": {key: found.shown[f"{key}{HALFWAY}"] for key in _SPECTRA},
    "at the end": found.shown,
  }
  figure = pictures.new_figure(9, 7)
  rows = figure.subplots(len(times), 3, sharex="col", sharey="col")
  for row, (time, shown) in zip(rows, times.items(), strict=True):
    for axes, key in zip(row, _SPECTRA, strict=True):
      for index, (name, runs) in enumerate(zip(names, shown[key], strict=True)):
        for number, values in enumerate(runs):
          label = name if number == 0 else None
          axes.plot(values - runs.max(), color=f"C{index}", lw=0.8, label=label)
      axes.grid(alpha=0.3)
    row[0].set_ylabel(f"logarithm, {time}")
  for axes, title in zip(rows[0], _SPECTRA.values(), strict=True):
    axes.set_title(title)
  for axes in rows[-1]:
    axes.set_xlabel("singular value")
  rows[0, 0].legend()
  return figure


def distances(found: Trained, names: tuple[str, ...]) -> "matplotlib.figure.Figure":
  """Shares of nearest distances at the end, mean over seeds."""
  figure = pictures.new_figure(6, 3.6)
  axes = figure.subplots()
  edges = np.linspace(0, 2, BINS + 1)
  going = _going(found, names, found.shown["distances"])
  for name, shares in going.items():
    axes.stairs(shares.mean(0), edges, label=name, lw=1.5)
  axes.set_xlabel("distance of the nearest negative in the encoder")
  axes.set_ylabel("share of images")
  if going:
    axes.legend()
  return figure


def projectors(
  linear: Trained, names: tuple[str, ...], deep: Mapping[str, Trained]
) -> "matplotlib.figure.Figure":
  """The study of depth and width: every seed a dot, their mean a line."""
  places = {name: (own, 0) for name, own in deep.items()}
  if LARGE in names:
    places = {"linear": (linear, names.index(LARGE)), **places}
  figure = pictures.new_figure(11, 3.2)
  for axes, (key, title) in zip(figure.subplots(1, 4), _PROJECTORS, strict=True):
    for place, (own, row) in enumerate(places.values()):
      # The map of a linear projector is W, everywhere.
      is_linear = key == LOCAL[1] and own is linear
      values = own.at_end("effective rank" if is_linear else key)[row]
      values = values[~own.collapsed[row]]
      axes.plot(np.full(len(values), place), values, "o", color=f"C{place}", alpha=0.5)
      if len(values):
        axes.hlines(values.mean(), place - 0.3, place + 0.3, "k", lw=1)
    axes.set_xticks(range(len(places)), places, rotation=30)
    axes.set_title(title, fontsize="medium")
    axes.grid(alpha=0.3)
  return figure
