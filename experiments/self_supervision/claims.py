"""Figures and claims of `projector_collapse`."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.frame.study import Claim, NotMeasured, Table
from experiments.self_supervision import toy
from experiments.self_supervision.geometry import ALIGNMENT, EXPLAINED, LOCAL, OVERLAP
from experiments.self_supervision.runs import Trained
from experiments.self_supervision.settings import CROP, LARGE, MODERATE, SMALL

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
