"""What the screening trains: its settings, and their cells."""

import collections
import dataclasses
from typing import Literal

from experiments.frame import command
from experiments.gsp import network, screening_design

Cell = tuple[float, float, float, float]
"""Mass, inverse temperature and weight of zero-shot prediction."""


@dataclasses.dataclass(frozen=True)
class Config(network.Settings):
  """Settings of the screening; the network's own are of the frozen part."""

  percent: int = 100
  """Share of the image set that is read, in percent."""
  most: int = 200
  """Images of a foreground sub-class at most; each is in one collage."""
  validation: int = 640
  """Validation collages."""
  losses: tuple[Literal["C2", "PNCA"], ...] = ("C2", "PNCA")
  """Losses to train heads with."""
  seeds: int = 5
  """Runs of each cell, each on a frozen network of its own."""
  at_once: int = 25
  """Cells that are one program: memory is in proportion."""
  pretraining: int = 2000
  """Steps in which the frozen network first learns to tell the sub-classes of single
  training images apart; 0 begins with random weights."""
  screen: bool = True
  """Whether to train the two-level design."""
  head_steps: int = 200
  """Training steps of a head."""
  counts: tuple[int, ...] = (16, 32, 64, 128, 256)
  """Numbers of prototypes; the low and the high level of the design among them."""
  sharpness: tuple[float, ...] = (0.5, 1.0, 5.0, 10.0, 20.0)
  """Inverse temperatures of the grid."""
  masses: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
  """Masses of the curve, which is of 64 prototypes."""
  # Those of each cell take their place.
  prototypes: network.Decided[int] = 64
  inverse_temperature: network.Decided[float] = 0.5
  centre: tuple[float, float, float] = (0.3, 5.0, 0.1)
  """Mass, inverse temperature and weight where they are not varied."""

  def __post_init__(self):
    super().__post_init__()
    command.check_parts(self.pretraining, self.parts, ("pretraining", "parts"))
    if self.norm != "group":
      raise ValueError(
        f"norm must be group, got {self.norm}: the frozen network keeps no statistics"
      )


def cells_of(config: Config) -> dict[int, list[Cell]]:
  """For each number of prototypes all mass, inverse temperature, weight to train."""
  mass, sharpness, weight = config.centre
  cells = collections.defaultdict(list)
  for number, *rest in screening_design.runs_of_design() if config.screen else ():
    cells[number].append(tuple(rest))
  for number in config.counts:
    row = config.sharpness if number <= 128 else (sharpness,)
    cells[number] += [(mass, x, weight) for x in row]
  if masses := curve_of(config):
    cells[64] += [(x, sharpness, weight) for x in masses]
  if 64 in config.counts:
    cells[64].append(average_of(config)[1:])
  return {number: list(dict.fromkeys(found)) for number, found in cells.items()}


def average_of(config: Config) -> tuple[int, float, float, float]:
  """The cell of average pooling alone: all of the mass, nothing predicted."""
  return 64, 1.0, config.centre[1], 0.0


def curve_of(config: Config) -> tuple[float, ...]:
  """Masses of the curve, where its number of prototypes is one of them."""
  return config.masses if 64 in config.counts else ()
