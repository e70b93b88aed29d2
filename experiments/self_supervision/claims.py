"""Figures and claims of `projector_collapse`."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from experiments.frame import results
from experiments.self_supervision.geometry import ALIGNMENT, EXPLAINED, LOCAL, OVERLAP
from experiments.self_supervision.runs import Trained
from experiments.self_supervision.toy import claim

LARGE, MODERATE, SMALL, CROP = "large", "moderate", "small", "large, crops alone"
SIMCLR = "simclr"
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


def rows(
  linear: Trained, names: tuple[str, ...], deep: Mapping[str, Trained]
) -> list[dict[str, Any]]:
  """All figures at the end of the trainings, and before them where they tell more.

  Runs that collapsed are counted, and have no part in the figures of the end.
  """
  made = []
  for cell, name in enumerate(names):
    kept = ~linear.collapsed[cell]
    changes = [figure for figure in linear.end if figure.startswith(OVERLAP)]
    explained = [figure for figure in linear.end if figure.startswith(EXPLAINED)]
    for figure in (*_FIGURES, *changes, *explained) if kept.any() else ():
      made.append(results.row(name, figure, _told(linear, figure)[cell][kept]))
    made += _before(linear, name, cell, (*_STARTS, *changes))
    made.append(results.row(name, "collapsed runs", linear.collapsed[cell]))
  for projector, found in deep.items():
    name, kept = f"large, projector {projector}", ~found.collapsed[0]
    if kept.any():
      regions = found.regions[0][kept]
      made.append(results.row(name, "linear regions of the training images", regions))
      for figure in _DEEP:
        made.append(results.row(name, figure, _told(found, figure)[0][kept]))
    made += _before(found, name, 0, (ALIGNMENT, *LOCAL))
    made.append(results.row(name, "collapsed runs", found.collapsed[0]))
  return made


def _told(found: Trained, figure: str) -> np.ndarray:
  """[strengths, seeds], at the end; the least gap is that of all steps."""
  if figure == "least gap":
    return found.curves[figure].min(-1)
  return found.at_end(figure)


def _before(
  found: Trained, name: str, cell: int, figures: tuple[str, ...]
) -> list[dict[str, Any]]:
  return [
    results.row(name, f"{figure}, before training", found.start[figure][cell])
    for figure in figures
  ]


def claims(
  found: Trained, names: tuple[str, ...], deep: Mapping[str, Trained]
) -> list[dict[str, Any]]:
  """What trainings with a linear projector tell; collapsed runs do not count.

  But for the bound, which is of all of them, and of deep projectors, too.
  """
  kept = np.asarray(~found.collapsed.any(0))
  below = _below(found, *deep.values())
  if not kept.any():
    return [below, claim("collapsed", "a run did not collapse", [-1.0], "figure 1")]

  def end(figure: str, name: str) -> np.ndarray:
    return found.at_end(figure)[names.index(name)][kept]

  def grown(figure: str, name: str) -> np.ndarray:
    cell = names.index(name)
    return found.at_end(figure)[cell][kept] - found.start[figure][cell][kept]

  text = "correlation of the loss and its bound over training > .5"
  correlation = _correlations(found)[:, kept].min(0) - 0.5
  made = [below, claim("S3-correlation", text, correlation, "figure 3")]
  some = [name for name in (LARGE, MODERATE, SMALL) if name in names]
  made += _compared(end, some)
  for name in some:
    for key, kind in (("S4", ""), ("S4-coarse", "coarse ")):
      text = f"{kind}label sharing of the nearest negative grows, {name}"
      shared = grown(f"{kind}sharing", name)
      made.append(claim(f"{key}-{name}", text, shared, "figure 6"))
    text = f"unexplained variance falls, {name}"
    made.append(claim(f"S6-{name}", text, -grown("unexplained", name), "figure 7"))
  ranks = (
    ("S7-features", "rank of h", ""),
    ("S7-augmented", "rank of augmented h", " of augmented images"),
  )
  for key, figure, of in ranks if some else ():
    text = f"the features{of} keep .9 of their rank for all strengths"
    least = np.min([end(figure, name) for name in some], axis=0) - 0.9 + 1e-6
    made.append(claim(key, text, least, "figures 4, 9"))
  for other in some[:-1] if SMALL in names else ():
    far = end("nearest distance", SMALL) - end("nearest distance", other)
    text = f"distance of the nearest negative: small > {other}"
    made.append(claim(f"S8-{SMALL}-{other}", text, far, "figure 5"))
  if {LARGE, CROP} <= {*names}:
    fewer = end("effective rank", CROP) - end("effective rank", LARGE)
    text = "effective rank of W: all augmentations < crops alone"
    made.append(claim("S9", text, fewer, "section 4.2"))
  return made


def _compared(
  end: Callable[[str, str], np.ndarray], some: list[str]
) -> list[dict[str, Any]]:
  """What a stronger augmentation changes; `end` has a figure of a strength."""
  made = []
  for less, more in itertools.pairwise(some):
    made.append(
      claim(
        f"S1-{less}-{more}",
        f"effective rank of W: {less} < {more} augmentation",
        end("effective rank", more) - end("effective rank", less),
        "figure 1",
      )
    )
  texts = (
    ("S2-large-small", "probe", _PROBE, "figure 1"),
    ("S5-repulsion", "repulsion", "repulsion", "section 4"),
    ("S5-invariance", "invariance", "invariance", "section 4"),
    ("S4-large-small", "sharing", "label sharing of the nearest negative", "figure 6"),
  )
  for name, figure, text, source in texts if {LARGE, SMALL} <= {*some} else ():
    difference = end(figure, LARGE) - end(figure, SMALL)
    made.append(claim(name, f"{text}: large > small", difference, source))
  for more, less in itertools.pairwise(some) if len(some) > 2 else ():
    apart = end("probe", more) - end("probe", less)
    text = f"{_PROBE}: {more} > {less}"
    made.append(claim(f"S2-{more}-{less}", text, apart, "figure 1"))
  return made


def _below(*found: Trained) -> dict[str, Any]:
  least = min(one.curves["least gap"].min() for one in found)
  text = "InfoNCE is at most its bound for every image of every step"
  return claim("S3-bound", text, [least + 1e-5], "figure 3", every=True)


def _correlations(found: Trained) -> np.ndarray:
  """[strengths, seeds], of the curves of the loss and its bound."""
  loss, bound = found.curves["loss"], found.curves["bound"]
  centred = [x - x.mean(-1, keepdims=True) for x in (loss, bound)]
  norms = np.sqrt((centred[0] ** 2).sum(-1) * (centred[1] ** 2).sum(-1))
  return (centred[0] * centred[1]).sum(-1) / norms
