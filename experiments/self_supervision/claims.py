"""Figures and claims of `projector_collapse`."""

import itertools
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from experiments.frame.study import Claim, NotMeasured, Placed, Table
from experiments.self_supervision import toy
from experiments.self_supervision.geometry import (
  ALIGNMENT,
  ALL,
  BY_CHANCE,
  CHANCE,
  DRAWN,
  EXPLAINED,
  LOCAL,
  MOVES,
  OVERLAP,
)
from experiments.self_supervision.runs import Trained
from experiments.self_supervision.settings import CROP, LARGE, MODERATE, SMALL, Config
from experiments.self_supervision.training import ENCODER, PROJECTOR

COLLAPSED, GAP, BEFORE = "collapsed runs", "least gap", ", before training"
CORRELATION = "correlation of the loss and its bound"
_PROBE = "accuracy of a probe of the features"
_OUTPUTS = "probe of outputs"
SIMILAR = "similarity of views", "centred similarity of views"
_CHANGES = "brightness", "contrast", "saturation", "zoom", "flip"
_WHOLE = tuple(
  f"{name}{ALL}"
  for name in (
    "sharing", "coarse sharing", "nearest distance", "unexplained",
    BY_CHANCE, MOVES,
    *(f"{kind} {place}" for kind in SIMILAR for place in (ENCODER, PROJECTOR)),
  )
)  # fmt: skip
_STARTS = (
  "effective rank", "relative rank", "probe", _OUTPUTS, DRAWN, *_WHOLE,
  "rank of h", "rank of augmented h", "effective rank of h",
  "effective rank of augmented h", ALIGNMENT,
)  # fmt: skip
_FIGURES = (*_STARTS, "invariance", "repulsion", "loss", "bound", GAP)
_DEEP = (
  "probe", _OUTPUTS, f"sharing{ALL}", f"nearest distance{ALL}", "invariance",
  "repulsion", GAP, "rank of h", "effective rank of h", ALIGNMENT, *LOCAL, CHANCE,
)  # fmt: skip
Names = tuple[str, ...]
Values = Callable[[Table], np.ndarray]


def tabulate(linear: Trained, names: Names, deep: Mapping[str, Trained]) -> Table:
  """Tabulates all measures after training, and some of them before it.

  Collapsed runs are counted, and left out of the measures after training.
  """
  table = Table()
  changes, explained = (
    [x for x in (f"{kind}{change}" for change in _CHANGES) if x in linear.end]
    for kind in (OVERLAP, EXPLAINED)
  )
  ends, starts = (*_FIGURES, *changes, *explained), (*_STARTS, *changes)
  for cell, name in enumerate(names):
    _add(table, name, linear, cell, ends, starts)
    mask = ~linear.collapsed[cell]
    if mask.any():
      pair = (linear.curves[x][cell][mask] for x in ("loss", "bound"))
      correlation = [np.corrcoef(*x)[0, 1] for x in zip(*pair, strict=True)]
      table.add(name, CORRELATION, correlation, listed=False)
  for projector, trained in deep.items():
    name, mask = _deep(projector), ~trained.collapsed[0]
    if mask.any():
      regions = trained.regions[0][mask]
      table.add(name, "linear regions of the training images", regions)
    _add(table, name, trained, 0, _DEEP, (ALIGNMENT, *LOCAL))
  return table


def _deep(projector: str) -> str:
  return f"{LARGE}, projector {projector}"


def _add(
  table: Table, name: str, trained: Trained, cell: int, ends: Names, starts: Names
) -> None:
  mask = ~trained.collapsed[cell]
  for figure in ends if mask.any() else ():
    # The least gap is the minimum over all steps.
    least = figure == GAP
    values = trained.curves[GAP].min(-1) if least else trained.at_end(figure)
    table.add(name, figure, values[cell][mask])
  for figure in starts:
    table.add(name, f"{figure}{BEFORE}", trained.start[figure][cell])
  table.add(name, COLLAPSED, trained.collapsed[cell])


def _end(table: Table, figure: str, name: str) -> np.ndarray:
  """Values of the seeds without a collapsed run."""
  collapsed = table.values(COLLAPSED, name) > 0
  all_collapsed = [table.values(COLLAPSED, x) > 0 for x in table.variants(COLLAPSED)]
  mask = ~np.any(all_collapsed, axis=0)
  if not mask.any():
    raise NotMeasured("a run of every seed collapsed")
  if figure.endswith(BEFORE):
    return table.values(figure, name)[mask]
  return table.values(figure, name)[mask[~collapsed]]


def _less(first: Values, second: Values) -> Values:
  return lambda t: first(t) - second(t)


def _difference(figure: str, more: str, less: str) -> Values:
  return lambda t: _end(t, figure, more) - _end(t, figure, less)


def _above(figure: str, other: str, name: str) -> Values:
  """Difference between two measures of one strength."""
  return lambda t: _end(t, figure, name) - _end(t, other, name)


def _grown(figure: str, name: str) -> Values:
  return _above(figure, f"{figure}{BEFORE}", name)


def _least(figure: str, names: Names, threshold: float) -> Values:
  """Minimum over some strengths, less a threshold."""
  return lambda t: np.min([_end(t, figure, x) for x in names], axis=0) - threshold


def _lead(kind: str, name: str) -> Values:
  """Growth of the views' similarity after the projector less that in the encoder."""
  return _less(*(_grown(f"{kind} {x}{ALL}", name) for x in (PROJECTOR, ENCODER)))


def claims(config: Config, table: Table) -> list[Claim]:
  """Claims about trainings; ignores seeds with a collapsed run."""
  del table
  used = tuple(x for x in (LARGE, MODERATE, SMALL) if x in config.strengths)
  rows: list[Placed] = [
    ("S3-correlation", "correlation of the loss and its bound over training > .5",
     _least(CORRELATION, config.strengths, 0.5), "figure 3"),
    *_compared(used),
    *(row for name in used for row in _during(name)),
  ]  # fmt: skip
  if used:
    text = "the features{} keep .9 of their rank for all strengths"
    rows += [
      (f"S7-{key}", text.format(of), _least(figure, used, 0.9 - 1e-6), "figures 4, 9")
      for key, figure, of in (
        ("features", "rank of h", ""),
        ("augmented", "rank of augmented h", " of augmented images"),
      )
    ]
  rows += [
    (f"S8-{SMALL}-{other}", f"distance of the nearest negative: small > {other}",
     _difference(f"nearest distance{ALL}", SMALL, other), "figure 5")
    for other in used if other != SMALL
  ]  # fmt: skip
  text = "effective rank of W: all augmentations < crops alone"
  rows.append(("S9", text, _difference("effective rank", CROP, LARGE), "section 4"))
  rows += [row for projector in config.projectors for row in _of_depth(projector)]
  return Claim.of_rows(rows, "SSL,") + toy.CLAIMS


def _compared(strengths: Names) -> Iterator[Placed]:
  """Claims about the effect of a stronger augmentation."""
  for less, more in itertools.pairwise(strengths):
    text = f"effective rank of W: {less} < {more} augmentation"
    rank = _difference("effective rank", more, less)
    yield f"S1-{less}-{more}", text, rank, "figure 1"
  unseen = f"share in the kernel of W{{}}: {LARGE} > {SMALL} augmentation"
  for name, figure, text, place in (
    ("S2-large-small", "probe", f"{_PROBE}: large > small", "figure 1"),
    ("S5-repulsion", "repulsion", "repulsion: large > small", "section 4"),
    ("S5-invariance", "invariance", "invariance: large > small", "section 4"),
    ("S4-large-small", f"sharing{ALL}",
     "label sharing of the nearest negative: large > small", "figure 6"),
    ("S14-moves-large-small", f"{MOVES}{ALL}",
     unseen.format(" of what moves one view to the other"), "Prop. 4.1"),
    *(
      (f"S14-{x}", f"{OVERLAP}{x}", unseen.format(f", generator of {x}"), "Prop. 4.3")
      for x in _CHANGES
    ),
  ):  # fmt: skip
    yield name, text, _difference(figure, LARGE, SMALL), place
  for more, less in itertools.pairwise(strengths) if len(strengths) > 2 else ():
    probe = _difference("probe", more, less)
    yield f"S2-{more}-{less}", f"{_PROBE}: {more} > {less}", probe, "figure 1"
  for key, kind in zip(("S13", "S13-centred"), SIMILAR, strict=True):
    large, small = _lead(kind, LARGE), _lead(kind, SMALL)
    text = f"{kind}: grows more in the projector than in the encoder"
    yield f"{key}-large", f"{text}, large", large, "abstract"
    text += ", by more under large than under small augmentation"
    yield f"{key}-large-small", text, _less(large, small), "abstract"


def _during(name: str) -> list[Placed]:
  """Claims about a linear projector during training at one strength."""
  unseen, view = f"unexplained{ALL}", "of what moves one view to the other"
  return [
    (f"{key}-{name}", f"{text}, {name}", difference, place)
    for key, text, difference, place in (
      ("S4", "label sharing of the nearest negative grows",
       _grown(f"sharing{ALL}", name), "figure 6"),
      ("S4-coarse", "coarse label sharing of the nearest negative grows",
       _grown(f"coarse sharing{ALL}", name), "figure 6"),
      ("S6", "unexplained variance falls",
       _above(f"{unseen}{BEFORE}", unseen, name), "figure 7"),
      ("S6-chance", "W leaves less unexplained than as many random directions",
       _above(f"{BY_CHANCE}{ALL}", unseen, name), "section 5"),
      ("S15", "accuracy of a probe: features > outputs of the projector",
       _above("probe", _OUTPUTS, name), "abstract"),
      ("S15-chance", "accuracy of a probe: as many random directions > outputs",
       _above(DRAWN, _OUTPUTS, name), "abstract"),
      ("S14", f"share in the kernel of W {view} grows",
       _grown(f"{MOVES}{ALL}", name), "Prop. 4.1"),
    )
  ]  # fmt: skip


def _of_depth(projector: str) -> list[Placed]:
  """Claims about the effect of hidden layers, under large augmentation."""
  deep, name = _deep(projector), f"projector {projector}"
  text = f"{name}: its affine map at an image holds more of its move"
  return [
    (f"{key}-{projector}", statement, difference, "section 5")
    for key, statement, difference in (
      ("S16-training", f"{text} after the training", _grown(ALIGNMENT, deep)),
      ("S16-chance", f"{text} than random directions",
       _above(ALIGNMENT, CHANCE, deep)),
      ("S16-linear", f"{text} than a linear projector",
       _difference(ALIGNMENT, deep, LARGE)),
      ("S17", f"{_PROBE}: {name} > a linear one", _difference("probe", deep, LARGE)),
    )
  ]  # fmt: skip
