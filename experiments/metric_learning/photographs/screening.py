"""The screening on photographs: each cell trains a real backbone.

DML's table 5.4, and its figures 5.8, 5.10 and 5.11.
"""

import dataclasses
import pathlib
from collections.abc import Iterator
from typing import Literal

from experiments.frame.settings import Decided
from experiments.frame.study import Claim, Table
from experiments.gsp import screening_cells
from experiments.gsp.screening_cells import Plan
from experiments.metric_learning.methods import Method
from experiments.metric_learning.photographs import comparison, protocols
from experiments.metric_learning.photographs.methods import MASS, ZERO_SHOT, FullConfig
from experiments.published import dml

METHODS = {"C2": "c2", "PNCA": "proxy_nca"}
MEASURE = "MAP@R [%]"
BASELINE = {"C2": 39.77, "PNCA": 39.90}  # MAP@R without generalized sum pooling
_DESIGN = ("prototypes", "mass", "inverse_temperature", "zero_shot")
# Settings that the figures vary. The grid's steps are not printed (DML 5.3.4.5).
VARIED = {
  "table-5.4": _DESIGN,
  "figure-5.8": ("mass",),
  "figure-5.10": ("prototypes", "inverse_temperature"),
  "figure-5.11": ("prototypes",),
}
_MASSES = tuple(x / 10 for x in range(1, 11))
_COUNTS = (16, 32, 64, 128, 256)


@dataclasses.dataclass(frozen=True)
class FullScreening(FullConfig):
  """Settings of the trainings, except those that the design varies."""

  protocol: protocols.Name = "tuning"
  """Protocol: four fifths of the learned classes train, the last fifth validates."""
  trials: Decided[int] = 0
  losses: tuple[Literal["C2", "PNCA"], ...] = ("C2", "PNCA")
  """Losses to train with."""
  study: Literal["table-5.4", "figure-5.8", "figure-5.10", "figure-5.11"] = "table-5.4"
  """Parameters to vary: the two-level design (table-5.4), the mass (figure-5.8), the
  number of prototypes and inverse temperature (figure-5.10), or the number of
  prototypes alone (figure-5.11)."""


PRESETS = {
  "full": FullScreening(),
  "figure-5.8": FullScreening(study="figure-5.8", losses=("C2",)),
  "figure-5.10": FullScreening(study="figure-5.10"),
  "figure-5.11": FullScreening(study="figure-5.11", dataset="sop"),
}


def plan(config: FullScreening, loss: str) -> Plan:
  """The trainings with one loss, around the thesis's numbers."""
  centre = (
    config.prototypes or dml.NUMBERS[config.dataset].prototypes,
    config.mass or MASS,
    config.inverse_temperature or Method(METHODS[loss]).inverse_temperature,
    ZERO_SHOT if config.zero_shot is None else config.zero_shot,
  )
  if config.study == "table-5.4":
    return Plan(centre, screen=True)
  if config.study == "figure-5.8":
    return Plan(centre, _MASSES)
  if config.study == "figure-5.10":
    return Plan(centre, (), _COUNTS[:4], (0.5, 1.0, 5.0, 10.0, 20.0))
  return Plan(centre, (), _COUNTS, centre[2:3])


def measure(config: FullScreening, output: pathlib.Path) -> Table:
  if not config.losses:
    raise ValueError("losses must name at least one, got none")
  defaults = FullScreening()
  for name in ("methods", *VARIED[config.study]):
    if getattr(config, name) != getattr(defaults, name):
      raise ValueError(
        f"{name} is what {config.study} varies; it must stay {getattr(defaults, name)},"
        f" got {getattr(config, name)}"
      )
  table, sets = Table(), None
  for loss, method in METHODS.items():
    if loss not in config.losses:
      continue
    grid, scores = plan(config, loss), {}
    for cell in grid.cells:
      numbers = {"methods": (method,)}
      if cell != grid.average:
        varied = dict(zip(_DESIGN, cell, strict=True))
        numbers = {"methods": (f"{method}+gsp",), **varied}
      name = "-".join([loss, *(f"{x:g}" for x in cell)])
      settings = dataclasses.replace(config, **numbers)
      trials = comparison.Comparison(settings, output / name, sets)
      scores[cell], sets = trials.validated(), trials.sets
    paper = {grid.average: BASELINE[loss]}
    column = 4 + tuple(METHODS).index(loss)
    paper |= {tuple(row[:4]): row[column] for row in screening_cells.TABLE.tolist()}
    paper = paper if grid.screen else {}
    screening_cells.tabulate(table, grid, loss, scores, measure=MEASURE, paper=paper)
  return table


def claims(config: FullScreening, table: Table) -> Iterator[Claim]:
  """Claims of the thesis about the table or plot."""
  for loss in config.losses:
    grid = plan(config, loss)
    yield from screening_cells.claims(grid, loss, table, measure=MEASURE)
    if config.study == "figure-5.11":
      names = [
        screening_cells.name(loss, grid.of_grid(n)) for n in grid.counts if n >= 64
      ]
      worst = min(names, key=lambda name: table.values(MEASURE, name).mean())
      number = worst.split(", ")[1].removeprefix("m ")
      average = screening_cells.name(loss, grid.average)
      yield Claim(
        f"m-improves-{loss.lower()}",
        f"MAP@R of the worst m from 64 on ({number}) > of the average, {loss}",
        lambda t, worst=worst, average=average: t.gain(MEASURE, worst, over=average),
        "DML Fig. 5.11",
      )
