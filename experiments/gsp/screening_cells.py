"""Settings and cells of the screening, and the effects of its design."""

import dataclasses
from typing import Literal, NamedTuple

import numpy as np

from experiments.frame import command
from experiments.gsp import network
from spherejax import metrics, training

Cell = tuple[float, float, float, float]
"""Prototypes, mass, inverse temperature and weight of zero-shot prediction."""


@dataclasses.dataclass(frozen=True)
class Config(network.Settings):
  """Settings of the screening; the network's own are of the frozen part."""

  percent: int = 100
  """Share of the image set to read, in percent."""
  most: int = 200
  """Largest number of images per foreground sub-class; each is in one collage."""
  validation: int = 640
  """Number of validation collages."""
  losses: tuple[Literal["C2", "PNCA"], ...] = ("C2", "PNCA")
  """Losses to train heads with."""
  seeds: int = 5
  """Runs of each cell, each on another frozen network."""
  at_once: int = 25
  """Cells per program; memory grows in proportion."""
  pretraining: int = 2000
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
  # Those of each cell take their place.
  prototypes: network.Decided[int] = 64
  inverse_temperature: network.Decided[float] = 0.5
  centre: tuple[float, float, float] = (0.3, 5.0, 0.1)
  """Default mass, inverse temperature and weight."""

  def __post_init__(self):
    super().__post_init__()
    command.check_parts(self.pretraining, self.parts, ("pretraining", "parts"))
    if self.norm != "group":
      raise ValueError(
        f"norm must be group, got {self.norm}: the frozen network keeps no statistics"
      )

  @property
  def plan(self) -> "Plan":
    """Lists the heads to train and their purpose."""
    curves = 64 in self.counts
    return Plan(
      (64, *self.centre),
      self.masses if curves else (),
      self.counts,
      self.sharpness,
      self.screen,
      curves,
    )


class Plan(NamedTuple):
  """Trainings with one loss."""

  centre: Cell
  """Default of every number."""
  masses: tuple[float, ...] = ()
  """Masses of the curve."""
  counts: tuple[int, ...] = ()
  """Prototypes of the grid."""
  sharpness: tuple[float, ...] = ()
  """Inverse temperatures of the grid, up to 128 prototypes."""
  screen: bool = False
  """Trains the two-level design."""
  averaged: bool = True
  """Trains average pooling."""

  @property
  def average(self) -> Cell:
    """Average pooling alone: all of the mass, nothing predicted."""
    return self.centre[0], 1.0, self.centre[2], 0.0

  def of_mass(self, mass: float) -> Cell:
    """A cell of the curve over the mass."""
    return self.centre[0], mass, *self.centre[2:]

  def of_grid(self, number: int, sharpness: float | None = None) -> Cell:
    """A cell of the grid; the usual inverse temperature for None."""
    _, mass, usual, weight = self.centre
    return number, mass, usual if sharpness is None else sharpness, weight

  @property
  def cells(self) -> list[Cell]:
    """Lists all cells, each once."""
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
# DML Table 5.4: m, mu, beta, lambda, MAP@R with C2 and with ProxyNCA++.
TABLE = np.array(
  [
    [16, 0.3, 0.5, 0.1, 40.63, 40.59],
    [16, 0.7, 0.5, 0.5, 40.41, 40.34],
    [128, 0.3, 0.5, 0.5, 40.22, 40.35],
    [128, 0.7, 0.5, 0.1, 40.07, 40.85],
    [16, 0.3, 20, 0.5, 36.11, 40.51],
    [16, 0.7, 20, 0.1, 39.11, 39.88],
    [128, 0.3, 20, 0.1, 39.61, 39.12],
    [128, 0.7, 20, 0.5, 35.36, 39.92],
  ]
)
# Its effects, worked out by hand.
BY_HAND = {
  ("prototypes",): (-0.25, -0.27),
  ("mass",): (-0.41, 0.11),
  ("inverse_temperature",): (-2.79, -0.68),
  ("zero_shot_weight",): (-1.83, 0.17),
  ("prototypes", "mass"): (-1.80, 0.55),
  ("prototypes", "inverse_temperature"): (0.13, -0.41),
  ("prototypes", "zero_shot_weight"): (-0.22, -0.02),
}


def runs_of_design() -> list[tuple]:
  """The eight cells of the two-level design (DML Table 5.4)."""
  design = training.factorial(LEVELS, relation=[tuple(LEVELS)])
  return list(zip(*(column.tolist() for column in design.values()), strict=True))


def published() -> dict[tuple[str, ...], metrics.Effect]:
  """Effects of the paper's table."""
  design = dict(zip(LEVELS, TABLE.T[:4], strict=True))
  return metrics.factorial_effects(design, TABLE[:, 4:])


def screened(scores: dict) -> dict[tuple[str, ...], metrics.Effect]:
  """Effects of our runs, [seeds]."""
  runs = runs_of_design()
  design = {name: [run[i] for run in runs] for i, name in enumerate(LEVELS)}
  return metrics.factorial_effects(design, np.stack([scores[run] for run in runs]))


def strength(values: np.ndarray) -> np.ndarray:
  """[seeds], the size of an effect: along its mean, so that noise has none."""
  return np.sign(values.mean()) * values


def label(word: tuple[str, ...], effect: metrics.Effect) -> str:
  """An effect and what it is confounded with, in the paper's symbols."""
  words = [word, *effect.aliases]
  return " = ".join("*".join(SYMBOLS[name] for name in factors) for factors in words)


def effect_name(loss: str, word: tuple[str, ...]) -> str:
  """An effect in the table; its confounding is that of the paper's design."""
  return f"{loss}, effect of {label(word, published()[word])}"
