"""Table, claims and pictures of the screening, of collages and of photographs."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from experiments.frame.study import Claim, Table
from experiments.gsp import screening_cells
from experiments.gsp.screening_cells import Cell, Plan
from spherejax import plotting

APART = "largest distance of pooled vectors from the average"
EFFECTS = "points of MAP@R"


def name(loss: str, cell: Cell) -> str:
  """A cell in the table, in the paper's symbols."""
  if cell[1] == 1 and not cell[3]:
    return f"{loss}, average pooling"
  return "{}, m {:g}, mu {:g}, beta {:g}, lambda {:g}".format(loss, *cell)


def tabulate(
  table: Table,
  plan: Plan,
  loss: str,
  scores: Mapping[Cell, np.ndarray],
  *,
  measure: str = "MAP@R",
  points: float = 1.0,
  paper: Mapping[Cell, float] | None = None,
) -> None:
  """Adds the effects of `points` times the scores beside the paper's, and all cells."""
  effects = screening_cells.screened(dict(scores)) if plan.screen else {}
  column = ("C2", "PNCA").index(loss)
  for word, by_hand in screening_cells.BY_HAND.items() if effects else ():
    title = screening_cells.effect_name(loss, word)
    table.add(title, EFFECTS, points * effects[word].value, paper=by_hand[column])
  for cell, values in scores.items():
    table.add(name(loss, cell), measure, values, paper=(paper or {}).get(cell))


def design_claim() -> Claim:
  """The effects of the paper's table, which it does not print."""
  cells = screening_cells.published()
  errors = [abs(cells[w].value - x).max() for w, x in screening_cells.BY_HAND.items()]
  return Claim(
    "screen-design",
    "effects of the paper's table within 0.01 of those worked out by hand",
    lambda _: 0.01 - np.array(errors),
    every_seed=True,
  )


def claims(
  plan: Plan,
  loss: str,
  table: Table,
  *,
  measure: str = "MAP@R",
  points: float = 1.0,
) -> Iterator[Claim]:
  """The claims of DML 5.3.4.5 that the trainings with one loss speak to."""
  suffix = loss.lower()

  def mean(cell: Cell) -> float:
    return table.values(measure, name(loss, cell)).mean()

  if plan.screen:
    strong, weak = (
      screening_cells.effect_name(loss, (word,))
      for word in ("inverse_temperature", "prototypes")
    )
    strength = screening_cells.strength
    yield Claim(
      f"screen-beta-{suffix}",
      f"|effect of beta| > |effect of m|, {loss}",
      lambda t: (
        (strength(t.values(EFFECTS, strong)) - strength(t.values(EFFECTS, weak)))
        / points
      ),
    )
  whole = plan.of_mass(1.0)
  small = [plan.of_mass(mass) for mass in plan.masses if mass <= 0.5]
  if 1.0 in plan.masses and small:
    # One mass for all seeds: a best one for each would gain from noise alone.
    best = max(small, key=mean)
    yield Claim(
      f"mu-sweep-{suffix}",
      f"MAP@R of the best mass up to 0.5 ({best[1]:g}) > MAP@R of mass 1, {loss}",
      lambda t: t.gain(measure, name(loss, best), over=name(loss, whole)),
      "DML Fig. 5.8",
    )
  if 1.0 in plan.masses:
    yield Claim(
      f"mu-sweep-average-{suffix}",
      "at mass 1 pooled vectors of every step equal the average to 1e-6 of its "
      f"largest entry (1e-6 less the largest difference), {loss}",
      lambda t: 1e-6 - t.values(APART, name(loss, whole)),
      "DML Claim 5.2.1",
      every_seed=True,
    )


def flat(plan: Plan, loss: str, table: Table) -> Iterator[Claim]:
  """Claims that the number of prototypes does not matter where it is large."""
  known = table.variants("MAP@R")
  names = [name(loss, plan.of_grid(n)) for n in plan.counts if n >= 64]
  many = [x for x in names if x in known]

  def difference(table: Table) -> np.ndarray:
    values = [table.values("MAP@R", x) for x in many]
    return np.ptp(values, axis=1) - np.ptp(np.mean(values, axis=1))

  if len(many) > 2:
    yield Claim(
      f"m-flat-{loss.lower()}",
      f"range of MAP@R over m in 64, 128, 256 < its range over seeds, {loss}",
      difference,
      "DML Fig. 5.11",
      every_seed=True,
    )


def draw(plan: Plan, loss: str, table: Table, measure: str = "MAP@R") -> dict[str, Any]:
  """The grid of prototypes and sharpness, and curves over the mass and prototypes."""

  def values(cell: Cell) -> np.ndarray:
    return table.values(measure, name(loss, cell))

  known, figures = table.variants(measure), {}
  counts = [number for number in plan.counts if number <= 128]
  if counts and len(plan.sharpness) > 1:
    figures["grid"] = plotting.heat_map(
      [[values(plan.of_grid(n, x)).mean() for x in plan.sharpness] for n in counts],
      rows=counts,
      columns=plan.sharpness,
      row_label="prototypes",
      column_label="inverse temperature",
      value_label=f"{measure}, {loss}, validation classes",
      number_format=".4f",
    )
  # Seeds have networks of their own, whose levels differ by more than the numbers do.
  average = values(plan.average) if plan.averaged else 0.0
  ylabel = f"{measure}{' above average pooling' * plan.averaged}, {loss}"
  curves = {
    "mass": {x: plan.of_mass(x) for x in plan.masses},
    "prototypes": {n: plan.of_grid(n) for n in plan.counts},
  }
  labels = f"{plan.centre[0]:g} prototypes", f"mass {plan.centre[1]:g}"
  for (xlabel, cells), label in zip(curves.items(), labels, strict=True):
    steps = [x for x, cell in cells.items() if name(loss, cell) in known]
    if len(steps) > 1:
      curve = np.transpose([values(cells[x]) - average for x in steps])
      figures[xlabel] = plotting.training_curves(
        {label: curve}, steps=steps, xlabel=xlabel, ylabel=ylabel
      )
  return {f"{key}-{loss.lower()}": figure for key, figure in figures.items()}
