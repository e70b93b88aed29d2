"""The screening on photographs (DML Table 5.4): each cell trains a real backbone."""

import dataclasses
import pathlib
import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from experiments import (
  _report,
  _retrieval_full,
  _retrieval_full_sets,
  _screening_design,
)
from experiments._retrieval_full import FullConfig

METHODS = {"C2": "c2", "PNCA": "proxy_nca"}
_VARIED = ("methods", "prototypes", "mass", "inverse_temperature", "zero_shot")
BASELINE = {"C2": 39.77, "PNCA": 39.90}  # MAP@R without generalized sum pooling


@dataclasses.dataclass(frozen=True)
class FullScreening(FullConfig):
  """Settings of the trainings; what the design varies is not among them."""

  protocol: Literal["fair", "fair534", "conventional", "ablation", "tuning"] = "tuning"
  """Four fifths of the learned classes train, the last fifth validates."""
  losses: tuple[Literal["C2", "PNCA"], ...] = ("C2", "PNCA")
  """Losses of the table."""


def run(config: FullScreening, output: pathlib.Path, preset: str) -> dict[str, Any]:
  """Trains all cells; returns figures and claims."""
  start = time.perf_counter()
  if not config.losses:
    raise ValueError("losses must name at least one, got none")
  usual = FullScreening()
  for name in _VARIED:
    if getattr(config, name) != getattr(usual, name):
      raise ValueError(
        f"{name} is what the design varies; it must stay {getattr(usual, name)}, got"
        f" {getattr(config, name)}"
      )
  rows, claims = [], []
  sets: _retrieval_full_sets.Sets | None = None

  def score(name: str, method: str, **numbers: Any) -> np.ndarray:
    """[repeats], MAP@R of the validation classes."""
    nonlocal sets
    own = dataclasses.replace(config, methods=(method,), **numbers)
    comparison = _retrieval_full.Comparison(own, output / name, sets)
    sets = comparison.sets
    ((found,),) = comparison.train().values()
    return np.array([one.best["MAP@R"] for one in found])

  for loss in config.losses:
    made, claimed = of_loss(loss, score)
    rows += made
    claims += claimed
  return _report.result(
    experiment="gsp_screening",
    preset=preset,
    config=config,
    seconds=time.perf_counter() - start,
    rows=rows,
    claims=claims,
  )


def of_loss(
  loss: str, score: Callable[..., np.ndarray]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
  """The cells and effects of one loss beside the thesis's, and its claim."""
  column = tuple(METHODS).index(loss)
  method = METHODS[loss]
  rows = [
    _report.row(
      f"{loss}, average",
      "MAP@R [%]",
      score(f"{loss}-average", method),
      paper=BASELINE[loss],
    )
  ]
  printed = {tuple(row[:4]): float(row[4 + column]) for row in _screening_design.TABLE}
  scores = {}
  for cell in _screening_design.runs_of_design():
    numbers = dict(zip(_screening_design.LEVELS, cell, strict=True))
    numbers["zero_shot"] = numbers.pop("zero_shot_weight")
    name = "-".join(f"{x:g}" for x in cell)
    scores[cell] = score(f"{loss}-{name}", f"{method}+gsp", **numbers)
    title = "{}, m {:g}, mu {:g}, beta {:g}, lambda {:g}".format(loss, *cell)
    paper = printed[tuple(float(x) for x in cell)]
    rows.append(_report.row(title, "MAP@R [%]", scores[cell], paper=paper))
  effects = _screening_design.screened(scores)
  rows += [
    _report.row(
      f"{loss}, effect of {_screening_design.label(word, effects[word])}",
      "points of MAP@R",
      effects[word].value,
      paper=by_hand[column],
    )
    for word, by_hand in _screening_design.BY_HAND.items()
  ]
  strong, weak = (
    _screening_design.strength(effects[(name,)])
    for name in ("inverse_temperature", "prototypes")
  )
  claim = _report.claim(
    f"screen-beta-{loss.lower()}",
    f"|effect of beta| > |effect of m|, {loss}",
    strong - weak,
    paper="DML Tab. 5.4",
  )
  return rows, [claim]
