"""Rows and claims of the comparison on collages (DML 5.3.2 and 5.3.5)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from experiments.frame import poolings, results

Figures = Mapping[tuple[str, str], Sequence[float]]
"""By variant, which begins with its loss, and metric: one for each seed."""
ON_COLLAGES = ("GAP", "GAP + ZSP", "GSP", "GSP + ZSP")


def table(figures: Figures, images: str) -> list[dict[str, Any]]:
  """All rows, whose measure names the image set: the paper's is cifar100."""
  named = {(name, f"{metric}, {images}"): v for (name, metric), v in figures.items()}
  rows = [results.row(name, metric, values) for (name, metric), values in named.items()]
  return [*_gains(figures, images), *rows, *_places(figures, images)]


def claims(figures: Figures) -> list[dict[str, Any]]:
  """What both sections say and these trainings speak to."""
  scores = _scores(figures)
  return [
    claim
    for loss in _losses(scores)
    for claim in (
      _components(figures, loss) if _compared(scores, loss) else _best(scores, loss)
    )
  ]


def rivals_of(scores: Mapping[str, Sequence[float]], loss: str) -> list[str]:
  """The other poolings of the same dimension with a loss, the best mean first."""
  own = {f"{loss}, {title}" for title in ("GSP", *poolings.WIDE.values())}
  names = [x for x in scores if x.startswith(loss) and x not in own]
  return sorted(names, key=lambda name: -np.mean(scores[name]))


def _scores(figures: Figures) -> dict[str, Sequence[float]]:
  return {name: v for (name, metric), v in figures.items() if metric == "MAP@R"}


def _losses(scores: Mapping[str, Sequence[float]]) -> list[str]:
  return list(dict.fromkeys(name.partition(", ")[0] for name in scores))


def _compared(scores: Mapping[str, Sequence[float]], loss: str) -> bool:
  """Whether GAP and GSP are compared, with ZSP and without, and no other pooling."""
  return f"{loss}, {ON_COLLAGES[-1]}" in scores


def _gains(figures: Figures, images: str) -> Iterator[dict[str, Any]]:
  """How far the best variant on collages is above average pooling."""
  scores = _scores(figures)
  for loss in _losses(scores):
    if not _compared(scores, loss):
      continue
    average, *others = (f"{loss}, {name}" for name in ON_COLLAGES)
    best = max(others, key=lambda name: np.mean(scores[name]))
    title = f"{loss}, best ({best.partition(', ')[2]}) - GAP"
    gain = np.subtract(scores[best], scores[average])
    # DML chapter 6 says 17 points, and not with which loss.
    yield results.row(title, f"MAP@R, {images}", gain, paper=0.17)


def _places(figures: Figures, images: str) -> Iterator[dict[str, Any]]:
  """The place of GSP among all poolings, with every seed."""
  scores = _scores(figures)
  for loss in _losses(scores):
    own, rivals = f"{loss}, GSP", rivals_of(scores, loss)
    if own in scores and rivals and not _compared(scores, loss):
      above = np.array([scores[name] for name in rivals]) > np.array(scores[own])
      metric = f"place among {1 + len(rivals)} poolings, {images}"
      yield results.row(own, metric, 1.0 + above.sum(axis=0))


def _best(scores: Mapping[str, Sequence[float]], loss: str) -> Iterator[dict[str, Any]]:
  """DML 5.3.5: no other pooling is as good."""
  own, rivals = f"{loss}, GSP", rivals_of(scores, loss)
  places = (
    ("collage-poolings", "the best other pooling"),
    ("collage-poolings-second", "the second best other pooling"),
  )
  for (claim, words), rival in zip(places, rivals, strict=False):
    if own in scores:
      yield results.claim(
        f"{claim}-{loss.lower()}",
        f"MAP@R(GSP) > MAP@R of {words} ({rival}), unseen classes",
        np.subtract(scores[own], scores[rival]),
        paper="DML 5.3.5",
      )


def _components(figures: Figures, loss: str) -> Iterator[dict[str, Any]]:
  """DML 5.3.2: what GSP, ZSP and the other images of a collage are worth."""
  for claim, first, second in (
    ("collage-gsp", "GSP", "GAP"),
    ("collage-zsp", "GSP + ZSP", "GSP"),
    ("collage-distilled", "distilled", "GAP"),
  ):
    own, other = (figures[f"{loss}, {name}", "MAP@R"] for name in (first, second))
    yield results.claim(
      f"{claim}-{loss.lower()}",
      f"MAP@R({first}) > MAP@R({second}), {loss}, unseen classes",
      np.subtract(own, other),
      paper="DML 5.3.2",
    )
  weights = figures[f"{loss}, GSP + ZSP", "weight on the labelled image"]
  yield results.claim(
    f"collage-attention-{loss.lower()}",
    f"weight on the labelled image under GSP + ZSP > 0.25, {loss}",
    np.array(weights) - 0.25,
    paper="DML 5.3.2",
  )
