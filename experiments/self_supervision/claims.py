"""Figures and claims of `projector_collapse`."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.frame.study import Claim, NotMeasured, Table
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
from experiments.self_supervision.settings import CROP, LARGE, MODERATE, SMALL
from experiments.self_supervision.training import (
  ENCODER,
  PROJECTOR,
)

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


def tabulate(
  linear: Trained, names: tuple[str, ...], deep: Mapping[str, Trained]
) -> Table:
  """Tabulates all measures after training, and before it where that tells more.

  Runs that collapsed are counted, and have no part in the figures of the end.
  """
  table = Table()
  changes, explained = (
    [
      figures_of_cell
      for figures_of_cell in (f"{kind}{change}" for change in _CHANGES)
      if figures_of_cell in linear.end
    ]
    for kind in (OVERLAP, EXPLAINED)
  )
  figures_of_cell = (*_FIGURES, *changes, *explained), (*_STARTS, *changes)
  for cell, name in enumerate(names):
    _add(table, name, linear, cell, *figures_of_cell)
    mask = ~linear.collapsed[cell]
    if mask.any():
      correlation = _correlations(linear)[cell][mask]
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
  table: Table,
  name: str,
  trained: Trained,
  cell: int,
  ends: tuple[str, ...],
  starts: tuple[str, ...],
) -> None:
  mask = ~trained.collapsed[cell]
  for figure in ends if mask.any() else ():
    # The least gap is that of all steps.
    least = figure == GAP
    values = trained.curves[GAP].min(-1) if least else trained.at_end(figure)
    table.add(name, figure, values[cell][mask])
  for figure in starts:
    table.add(name, f"{figure}{BEFORE}", trained.start[figure][cell])
  table.add(name, COLLAPSED, trained.collapsed[cell])


def _names(table: Table) -> list[str]:
  """Strengths that a linear projector was trained with."""
  return [x for x in table.variants(COLLAPSED) if "projector" not in x]


def _end(table: Table, figure: str, name: str) -> np.ndarray:
  """Values of the seeds of which no run collapsed."""
  gone = table.values(COLLAPSED, name) > 0
  every = [table.values(COLLAPSED, x) > 0 for x in table.variants(COLLAPSED)]
  mask = ~np.any(every, axis=0)
  if not mask.any():
    raise NotMeasured("a run of every seed collapsed")
  if figure.endswith(BEFORE):
    return table.values(figure, name)[mask]
  return table.values(figure, name)[mask[~gone]]


def _difference(figure: str, more: str, less: str) -> Any:
  return lambda t: _end(t, figure, more) - _end(t, figure, less)


def _above(figure: str, other: str, name: str) -> Any:
  """Difference between two runs' values of one measure."""
  return lambda t: _end(t, figure, name) - _end(t, other, name)


def _grown(figure: str, name: str, sign: int = 1) -> Any:
  before = f"{figure}{BEFORE}"
  return lambda t: sign * (_end(t, figure, name) - _end(t, before, name))


def _least(figure: str, names: tuple[str, ...] | None, threshold: float) -> Any:
  """Minimum over the strengths, or over some of them, less a threshold."""
  return lambda t: (
    np.min([_end(t, figure, x) for x in names or _names(t)], axis=0) - threshold
  )


def _lead(kind: str, name: str) -> Any:
  """Difference in how much the views converge, in the projector and the encoder."""
  of_projector, of_encoder = (
    _grown(f"{kind} {x}{ALL}", name) for x in (PROJECTOR, ENCODER)
  )
  return lambda t: of_projector(t) - of_encoder(t)


def claims(config: Any, table: Table) -> list[Claim]:
  """Claims about trainings; ignores seeds with a collapsed run."""
  del table
  some = tuple(x for x in (LARGE, MODERATE, SMALL) if x in config.strengths)
  statements = [
    Claim(
      "S3-correlation",
      "correlation of the loss and its bound over training > .5",
      _least(CORRELATION, None, 0.5),
      "SSL, figure 3",
    ),
    *_compared(some),
  ]
  for name in some:
    statements += _during(name)
  ranks = (
    ("S7-features", "rank of h", ""),
    ("S7-augmented", "rank of augmented h", " of augmented images"),
  )
  for key, figure, of in ranks if some else ():
    text = f"the features{of} keep .9 of their rank for all strengths"
    least = _least(figure, some, 0.9 - 1e-6)
    statements.append(Claim(key, text, least, "SSL, figures 4, 9"))
  for other in some[:-1] if SMALL in some else ():
    text = f"distance of the nearest negative: small > {other}"
    far = _difference(f"nearest distance{ALL}", SMALL, other)
    statements.append(Claim(f"S8-{SMALL}-{other}", text, far, "SSL, figure 5"))
  if CROP in config.strengths:
    text = "effective rank of W: all augmentations < crops alone"
    fewer = _difference("effective rank", CROP, LARGE)
    statements.append(Claim("S9", text, fewer, "SSL, section 4"))
  for projector in config.projectors:
    statements += _of_depth(projector)
  return [*statements, *toy.CLAIMS]


def _compared(some: tuple[str, ...]) -> list[Claim]:
  """Claims about the effect of a stronger augmentation."""
  statements = []
  for less, more in itertools.pairwise(some):
    text = f"effective rank of W: {less} < {more} augmentation"
    difference = _difference("effective rank", more, less)
    statements.append(Claim(f"S1-{less}-{more}", text, difference, "SSL, figure 1"))
  unseen = f"share in the kernel of W{{}}: {LARGE} > {SMALL} augmentation"
  for name, figure, text, source in (
    ("S2-large-small", "probe", f"{_PROBE}: large > small", "figure 1"),
    ("S5-repulsion", "repulsion", "repulsion: large > small", "section 4"),
    ("S5-invariance", "invariance", "invariance: large > small", "section 4"),
    (
      "S4-large-small",
      f"sharing{ALL}",
      "label sharing of the nearest negative: large > small",
      "figure 6",
    ),
    (
      "S14-moves-large-small",
      f"{MOVES}{ALL}",
      unseen.format(" of what moves one view to the other"),
      "Prop. 4.1",
    ),
    *(
      (
        f"S14-{change}",
        f"{OVERLAP}{change}",
        unseen.format(f", generator of {change}"),
        "Prop. 4.3",
      )
      for change in _CHANGES
    ),
  ):
    difference = _difference(figure, LARGE, SMALL)
    statements.append(Claim(name, text, difference, f"SSL, {source}"))
  for more, less in itertools.pairwise(some) if len(some) > 2 else ():
    text = f"{_PROBE}: {more} > {less}"
    difference = _difference("probe", more, less)
    statements.append(Claim(f"S2-{more}-{less}", text, difference, "SSL, figure 1"))
  for key, kind in zip(("S13", "S13-centred"), SIMILAR, strict=True):
    large, small = _lead(kind, LARGE), _lead(kind, SMALL)
    text = f"{kind}: grows more in the projector than in the encoder"
    statements += [
      Claim(f"{key}-large", f"{text}, large", large, "SSL, abstract"),
      Claim(
        f"{key}-large-small",
        f"{text}, by more under large than under small augmentation",
        lambda t, large=large, small=small: large(t) - small(t),
        "SSL, abstract",
      ),
    ]
  return statements


def _during(name: str) -> list[Claim]:
  """Claims about a linear projector during training at one strength."""
  unseen = f"unexplained{ALL}"
  statements = [
    Claim(
      f"{key}-{name}",
      f"{kind}label sharing of the nearest negative grows, {name}",
      _grown(f"{kind}sharing{ALL}", name),
      "SSL, figure 6",
    )
    for key, kind in (("S4", ""), ("S4-coarse", "coarse "))
  ]
  statements += [
    Claim(
      f"S6-{name}",
      f"unexplained variance falls, {name}",
      _grown(unseen, name, -1),
      "SSL, figure 7",
    ),
    Claim(
      f"S6-chance-{name}",
      f"W leaves less unexplained than as many random directions, {name}",
      _above(f"{BY_CHANCE}{ALL}", unseen, name),
      "SSL, section 5",
    ),
    Claim(
      f"S15-{name}",
      f"accuracy of a probe: features > outputs of the projector, {name}",
      _above("probe", _OUTPUTS, name),
      "SSL, abstract",
    ),
    Claim(
      f"S15-chance-{name}",
      f"accuracy of a probe: as many random directions > outputs, {name}",
      _above(DRAWN, _OUTPUTS, name),
      "SSL, abstract",
    ),
  ]
  text = "share in the kernel of W of what moves one view to the other grows"
  moves = _grown(f"{MOVES}{ALL}", name)
  return [*statements, Claim(f"S14-{name}", f"{text}, {name}", moves, "SSL, Prop. 4.1")]


def _of_depth(projector: str) -> list[Claim]:
  """Claims about the effect of hidden layers, under large augmentation."""
  deep = _deep(projector)
  text = f"projector {projector}: its affine map at an image holds more of its move"
  return [
    Claim(f"S16-{key}-{projector}", f"{text}{than}", difference, "SSL, section 5")
    for key, than, difference in (
      ("training", " after the training", _grown(ALIGNMENT, deep)),
      ("chance", " than random directions", _above(ALIGNMENT, CHANCE, deep)),
      ("linear", " than a linear projector", _difference(ALIGNMENT, deep, LARGE)),
    )
  ] + [
    Claim(
      f"S17-{projector}",
      f"{_PROBE}: projector {projector} > a linear one",
      _difference("probe", deep, LARGE),
      "SSL, section 5",
    )
  ]


def _correlations(trained: Trained) -> np.ndarray:
  """[strengths, seeds], of the curves of the loss and its bound."""
  loss, bound = trained.curves["loss"], trained.curves["bound"]
  centred = [x - x.mean(-1, keepdims=True) for x in (loss, bound)]
  norms = np.sqrt((centred[0] ** 2).sum(-1) * (centred[1] ** 2).sum(-1))
  return (centred[0] * centred[1]).sum(-1) / norms
