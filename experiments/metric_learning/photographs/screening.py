"""The screening on photographs: each cell trains a real backbone.

DML's table 5.4, and its figures 5.8, 5.10 and 5.11.
"""

import dataclasses
import itertools
import pathlib
import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from experiments.frame import results
from experiments.gsp import screening_design
from experiments.metric_learning.photographs import comparison as retrieval_full
from experiments.metric_learning.photographs import protocols
from experiments.metric_learning.photographs import sets as retrieval_full_sets
from experiments.metric_learning.photographs.comparison import FullConfig
from spherejax import plotting

METHODS = {"C2": "c2", "PNCA": "proxy_nca"}
_COUNTS = (16, 32, 64, 128, 256)
# What the figures vary. The grid's steps are not printed (DML 5.3.4.5).
FIGURES: dict[str, dict[str, tuple[float, ...]]] = {
  "figure-5.8": {"mass": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)},
  "figure-5.10": {
    "prototypes": _COUNTS[:4],
    "inverse_temperature": (0.5, 1.0, 5.0, 10.0, 20.0),
  },
  "figure-5.11": {"prototypes": _COUNTS},
}
_DESIGN = ("prototypes", "mass", "inverse_temperature", "zero_shot")
Score = Callable[..., np.ndarray]
BASELINE = {"C2": 39.77, "PNCA": 39.90}  # MAP@R without generalized sum pooling


@dataclasses.dataclass(frozen=True)
class FullScreening(FullConfig):
  """Settings of the trainings; what the design varies is not among them."""

  protocol: protocols.Name = "tuning"
  """Four fifths of the learned classes train, the last fifth validates."""
  losses: tuple[Literal["C2", "PNCA"], ...] = ("C2", "PNCA")
  """Losses to train with."""
  study: Literal["table-5.4", "figure-5.8", "figure-5.10", "figure-5.11"] = "table-5.4"
  """What is varied: the two-level design, the mass, prototypes and inverse temperature,
  or prototypes alone."""


PRESETS = {
  "full": FullScreening(),
  "figure-5.8": FullScreening(study="figure-5.8", losses=("C2",)),
  "figure-5.10": FullScreening(study="figure-5.10"),
  "figure-5.11": FullScreening(study="figure-5.11", dataset="sop"),
}


def run(config: FullScreening, output: pathlib.Path, preset: str) -> dict[str, Any]:
  """Trains all cells; returns figures and claims."""
  start = time.perf_counter()
  if not config.losses:
    raise ValueError("losses must name at least one, got none")
  usual = FullScreening()
  for name in ("methods", *FIGURES.get(config.study, _DESIGN)):
    if getattr(config, name) != getattr(usual, name):
      raise ValueError(
        f"{name} is what {config.study} varies; it must stay {getattr(usual, name)},"
        f" got {getattr(config, name)}"
      )
  rows, claims, pictures = [], [], []
  sets: retrieval_full_sets.Sets | None = None

  def score(name: str, method: str, **numbers: Any) -> np.ndarray:
    """[repeats], MAP@R of the validation classes."""
    nonlocal sets
    own = dataclasses.replace(config, methods=(method,), **numbers)
    comparison = retrieval_full.Comparison(own, output / name, sets)
    sets = comparison.sets
    ((found,),) = comparison.train().values()
    return np.array([one.best["MAP@R"] for one in found])

  for loss in config.losses:
    if config.study in FIGURES:
      found = of_figure(loss, score, config.study)
      rows += found.rows()
      claims += found.claims()
      pictures.append(found.draw(output))
    else:
      made, claimed = of_loss(loss, score)
      rows += made
      claims += claimed
  return results.result(
    experiment="gsp_screening",
    preset=preset,
    config=config,
    seconds=time.perf_counter() - start,
    rows=rows,
    claims=claims,
    pictures=pictures,
  )


def baseline(loss: str, score: Score) -> np.ndarray:
  """[repeats], MAP@R of a training with average pooling."""
  return score(f"{loss}-average", METHODS[loss])


class Figure(NamedTuple):
  """Trainings with one loss over what a figure varies; the paper's values are lost."""

  study: str
  loss: str
  average: np.ndarray
  """[repeats], MAP@R without generalized sum pooling."""
  scores: dict[tuple[float, ...], np.ndarray]
  """[repeats], by the values of what is varied."""

  def rows(self) -> list[dict[str, Any]]:
    """Every cell, and average pooling."""
    names = [screening_design.SYMBOLS[name] for name in FIGURES[self.study]]
    titled = {"average": self.average} | {
      ", ".join(f"{n} {x:g}" for n, x in zip(names, cell, strict=True)): values
      for cell, values in self.scores.items()
    }
    return [
      results.row(f"{self.loss}, {title}", "MAP@R [%]", values)
      for title, values in titled.items()
    ]

  def claims(self) -> list[dict[str, Any]]:
    """What the thesis says of the figure."""
    if self.study == "figure-5.8":
      # One mass for all repeats: a best one for each would gain from noise alone.
      best = max((x for x in self.scores if x[0] <= 0.5), key=self._mean)
      statement = f"MAP@R of the best mass up to 0.5 ({best[0]:g}) > MAP@R of mass 1"
      gain = self.scores[best] - self.scores[1.0,]
      name = "mu-sweep"
    elif self.study == "figure-5.11":
      worst = min((x for x in self.scores if x[0] >= 64), key=self._mean)
      statement = f"MAP@R of the worst m from 64 on ({worst[0]:g}) > of the average"
      gain = self.scores[worst] - self.average
      name = "m-improves"
    else:
      return []
    return [
      results.claim(
        f"{name}-{self.loss.lower()}",
        f"{statement}, {self.loss}",
        gain,
        paper=f"DML Fig. {self.study.removeprefix('figure-')}",
      )
    ]

  def _mean(self, cell: tuple[float, ...]) -> float:
    return self.scores[cell].mean()

  def draw(self, output: pathlib.Path) -> str:
    """The figure: a map of the means, or curves."""
    steps = tuple(FIGURES[self.study].values())
    label = f"MAP@R [%], {self.loss}, validation classes"
    words = [name.replace("_", " ") for name in FIGURES[self.study]]
    if len(steps) == 2:
      drawn = plotting.heat_map(
        [[self._mean((row, column)) for column in steps[1]] for row in steps[0]],
        rows=steps[0],
        columns=steps[1],
        row_label=words[0],
        column_label=words[1],
        value_label=label,
        number_format=".2f",
      )
    else:
      curves = {
        "generalized sum pooling": np.transpose(list(self.scores.values())),
        "average pooling": np.tile(self.average[:, None], len(steps[0])),
      }
      drawn = plotting.training_curves(
        curves, steps=steps[0], xlabel=words[0], ylabel=label
      )
    return plotting.save(drawn, output / f"{self.study}-{self.loss.lower()}.png").name


def of_figure(loss: str, score: Score, study: str) -> Figure:
  """Trains all that a figure shows of one loss."""
  average = baseline(loss, score)
  scores = {}
  for cell in itertools.product(*FIGURES[study].values()):
    numbers = dict(zip(FIGURES[study], cell, strict=True))
    name = "-".join(f"{key}-{x:g}" for key, x in numbers.items())
    scores[cell] = score(f"{loss}-{name}", f"{METHODS[loss]}+gsp", **numbers)
  return Figure(study, loss, average, scores)


def of_loss(
  loss: str, score: Score
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
  """The cells and effects of one loss beside the thesis's, and its claim."""
  column = tuple(METHODS).index(loss)
  method = METHODS[loss]
  rows = [
    results.row(
      f"{loss}, average",
      "MAP@R [%]",
      baseline(loss, score),
      paper=BASELINE[loss],
    )
  ]
  printed = {tuple(row[:4]): float(row[4 + column]) for row in screening_design.TABLE}
  scores = {}
  for cell in screening_design.runs_of_design():
    numbers = dict(zip(screening_design.LEVELS, cell, strict=True))
    numbers["zero_shot"] = numbers.pop("zero_shot_weight")
    name = "-".join(f"{x:g}" for x in cell)
    scores[cell] = score(f"{loss}-{name}", f"{method}+gsp", **numbers)
    title = "{}, m {:g}, mu {:g}, beta {:g}, lambda {:g}".format(loss, *cell)
    paper = printed[tuple(float(x) for x in cell)]
    rows.append(results.row(title, "MAP@R [%]", scores[cell], paper=paper))
  effects = screening_design.screened(scores)
  rows += screening_design.effect_rows(loss, effects)
  return rows, [screening_design.claim(loss, effects)]
