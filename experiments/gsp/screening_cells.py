"""The screenings on collages and on photographs: cells, effects, claims and plots."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, NamedTuple

import numpy as np

from experiments.frame.pictures import Figure
from experiments.frame.settings import Decided, MultipleOf
from experiments.frame.study import Claim, Table
from experiments.gsp import network
from experiments.published import figures
from spherejax import metrics, plotting, training

# Prototypes, mass, inverse temperature and weight of zero-shot prediction.
Cell = tuple[float, float, float, float]


@dataclasses.dataclass(frozen=True)
class Config(network.Settings):
  """Settings of the screening; those of the network concern its frozen part."""

  percent: int = 100
  """Share of the image set to read, in percent."""
  most: int = 200
  """Largest number of images per foreground sub-class; each is in one collage."""
  validation: int = 640
  """Number of validation collages."""
  losses: tuple[Literal["C2", "PNCA"], ...] = ("C2", "PNCA")
  """Losses to train heads with."""
  seeds: int = 8
  """Runs of each cell, each on another frozen network."""
  at_once: int = 25
  """Cells per program; memory grows in proportion."""
  norm: Decided[Literal["group"]] = "group"  # the frozen network keeps no statistics
  pretraining: Annotated[int, MultipleOf("parts")] = 2000
  """Steps that train the frozen network to classify single training images by
  sub-class; 0 keeps random weights."""
  screen: bool = True
  """Trains the two-level design."""
  head_steps: int = 200
  """Training steps of a head."""
  counts: tuple[int, ...] = (16, 32, 64, 128, 256)
  """Numbers of prototypes; they include the low and high level of the design."""
  sharpness: tuple[float, ...] = (0.5, 1.0, 5.0, 10.0, 20.0)
  """Inverse temperatures of the grid."""
  masses: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
  """Masses of the curve, at 64 prototypes."""
  # Each cell replaces these.
  prototypes: Decided[int] = 64
  inverse_temperature: Decided[float] = 0.5
  centre: tuple[float, float, float] = (0.3, 5.0, 0.1)
  """Default mass, inverse temperature and weight."""

  @property
  def plan(self) -> "Plan":
    curves = 64 in self.counts
    centre, masses = (64, *self.centre), self.masses if curves else ()
    return Plan(centre, masses, self.counts, self.sharpness, self.screen, curves)


class Plan(NamedTuple):
  """Trainings with one loss."""

  centre: Cell  # default of every number
  masses: tuple[float, ...] = ()  # masses of the curve
  counts: tuple[int, ...] = ()  # prototypes of the grid
  sharpness: tuple[float, ...] = ()  # of the grid, up to 128 prototypes
  screen: bool = False  # trains the two-level design
  averaged: bool = True  # trains average pooling

  @property
  def average(self) -> Cell:
    """The cell of average pooling alone: all of the mass, no prediction."""
    return self.centre[0], 1.0, self.centre[2], 0.0

  def of_mass(self, mass: float) -> Cell:
    return self.centre[0], mass, *self.centre[2:]

  def of_grid(self, number: int, sharpness: float | None = None) -> Cell:
    """Returns a cell of the grid; None takes the default inverse temperature."""
    _, mass, default, weight = self.centre
    return number, mass, default if sharpness is None else sharpness, weight

  @property
  def cells(self) -> list[Cell]:
    cells = runs_of_design() if self.screen else []
    for number in self.counts:
      row = self.sharpness if number <= 128 else (None,)
      cells += [self.of_grid(number, x) for x in row]
    cells += [self.of_mass(mass) for mass in self.masses]
    cells += [self.average] if self.averaged else []
    return list(dict.fromkeys(cells))


LEVELS = {
  "prototypes": (16, 128),
  "mass": (0.3, 0.7),
  "inverse_temperature": (0.5, 20.0),
  "zero_shot_weight": (0.1, 0.5),
}
SYMBOLS = dict(zip(LEVELS, ("m", "mu", "beta", "lambda"), strict=True))
_PUBLISHED = figures("dml")["screening"]
# DML Table 5.4: m, mu, beta, lambda, MAP@R with C2 and with ProxyNCA++; its effects,
# worked out by hand.
TABLE = np.array(_PUBLISHED["runs"])
BY_HAND = {tuple(word.split(", ")): x for word, x in _PUBLISHED["effects"].items()}


def runs_of_design() -> list[tuple]:
  """The eight cells of the two-level design (DML Table 5.4)."""
  design = training.factorial(LEVELS, relation=[tuple(LEVELS)])
  return list(zip(*(column.tolist() for column in design.values()), strict=True))


def published() -> dict[tuple[str, ...], metrics.Effect]:
  """Effects of the paper's table."""
  design = dict(zip(LEVELS, TABLE.T[:4], strict=True))
  return metrics.factorial_effects(design, TABLE[:, 4:])


def label(word: tuple[str, ...], effect: metrics.Effect) -> str:
  """Name of an effect and of its confounded effects, in the paper's symbols."""
  words = [word, *effect.aliases]
  return " = ".join("*".join(SYMBOLS[name] for name in factors) for factors in words)


def effect_name(loss: str, word: tuple[str, ...]) -> str:
  """Name of an effect in the table; its confounding is that of the paper's design."""
  return f"{loss}, effect of {label(word, published()[word])}"


APART = "largest distance of pooled vectors from the average"
EFFECTS = "points of MAP@R"


def name(loss: str, cell: Cell) -> str:
  """Name of a cell in the table, in the paper's symbols."""
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
  if plan.screen:
    runs = runs_of_design()
    design = dict(zip(LEVELS, zip(*runs, strict=True), strict=True))
    effects = metrics.factorial_effects(design, np.stack([scores[run] for run in runs]))
    column = ("C2", "PNCA").index(loss)
    for word, by_hand in BY_HAND.items():
      title = effect_name(loss, word)
      table.add(title, EFFECTS, points * effects[word].value, paper=by_hand[column])
  for cell, values in scores.items():
    table.add(name(loss, cell), measure, values, paper=(paper or {}).get(cell))


def design_claim() -> Claim:
  """Claim about the effects of the paper's table, which the paper does not print."""
  cells = published()
  errors = [abs(cells[w].value - x).max() for w, x in BY_HAND.items()]
  return Claim(
    "screen-design",
    "effects of the paper's table within 0.01 of those worked out by hand",
    lambda _: 0.01 - np.array(errors),
    every_seed=True,
  )


def claims(
  plan: Plan, loss: str, table: Table, *, measure: str = "MAP@R", points: float = 1.0
) -> Iterator[Claim]:
  """Claims of DML 5.3.4.5 that the trainings with one loss can test."""
  suffix = loss.lower()

  def mean(cell: Cell) -> float:
    return table.values(measure, name(loss, cell)).mean()

  def size(table: Table, word: str) -> np.ndarray:
    """Size of an effect, [seeds], signed by its mean, so that noise cancels."""
    values = table.values(EFFECTS, effect_name(loss, (word,)))
    return np.sign(values.mean()) * values

  yield Claim(
    f"screen-beta-{suffix}",
    f"|effect of beta| > |effect of m|, {loss}",
    lambda t: (size(t, "inverse_temperature") - size(t, "prototypes")) / points,
  )
  full_mass = name(loss, plan.of_mass(1.0))
  small = [plan.of_mass(mass) for mass in plan.masses if mass <= 0.5]
  if small:
    # One mass for all seeds: choosing the best for each seed would gain from noise.
    best = max(small, key=mean)
    yield Claim(
      f"mu-sweep-{suffix}",
      f"MAP@R of the best mass up to 0.5 ({best[1]:g}) > MAP@R of mass 1, {loss}",
      lambda t: t.gain(measure, name(loss, best), over=full_mass),
      "DML Fig. 5.8",
    )
  yield Claim(
    f"mu-sweep-average-{suffix}",
    "at mass 1 pooled vectors of every step equal the average to 1e-6 of its "
    f"largest entry (1e-6 less the largest difference), {loss}",
    lambda t: 1e-6 - t.values(APART, full_mass),
    "DML Claim 5.2.1",
    every_seed=True,
  )


def flat(plan: Plan, loss: str) -> Iterator[Claim]:
  """Claims that the number of prototypes does not matter where it is large."""
  names = [name(loss, plan.of_grid(n)) for n in plan.counts if n >= 64]

  def difference(table: Table) -> np.ndarray:
    values = [table.values("MAP@R", x) for x in names]
    return np.ptp(values, axis=1) - np.ptp(np.mean(values, axis=1))

  if len(names) > 2:
    yield Claim(
      f"m-flat-{loss.lower()}",
      f"range of MAP@R over m in 64, 128, 256 < its range over seeds, {loss}",
      difference,
      "DML Fig. 5.11",
      every_seed=True,
    )


def draw(
  plan: Plan, loss: str, table: Table, measure: str = "MAP@R"
) -> dict[str, Figure]:
  """The grid of prototypes and sharpness, and curves over the mass and prototypes."""

  def values(cell: Cell) -> np.ndarray:
    return table.values(measure, name(loss, cell))

  variants, plots = table.variants(measure), {}
  counts = [number for number in plan.counts if number <= 128]
  if counts and len(plan.sharpness) > 1:
    plots["grid"] = plotting.heat_map(
      [[values(plan.of_grid(n, x)).mean() for x in plan.sharpness] for n in counts],
      rows=counts,
      columns=plan.sharpness,
      row_label="prototypes",
      column_label="inverse temperature",
      value_label=f"{measure}, {loss}, validation classes",
      number_format=".4f",
    )
  # Every seed has another network; their levels differ by more than the effects.
  average = values(plan.average) if plan.averaged else 0.0
  ylabel = f"{measure}{' above average pooling' * plan.averaged}, {loss}"
  curves = {
    "mass": {x: plan.of_mass(x) for x in plan.masses},
    "prototypes": {n: plan.of_grid(n) for n in plan.counts},
  }
  labels = f"{plan.centre[0]:g} prototypes", f"mass {plan.centre[1]:g}"
  for (xlabel, cells), label in zip(curves.items(), labels, strict=True):
    steps = [x for x, cell in cells.items() if name(loss, cell) in variants]
    if len(steps) > 1:
      curve = np.transpose([values(cells[x]) - average for x in steps])
      plots[xlabel] = plotting.training_curves(
        {label: curve}, steps=steps, xlabel=xlabel, ylabel=ylabel
      )
  return {f"{key}-{loss.lower()}": figure for key, figure in plots.items()}
