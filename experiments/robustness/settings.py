"""Settings of `robust_features`."""

import dataclasses
from typing import Annotated, Literal, TypeVar, get_args

from experiments.frame.settings import Without

Norm = Literal["l2", "linf", "l1"]
Ball = tuple[Norm, float]  # norm and budget
LossName = Literal["cross-entropy", "NormFace", "negative margin", "proxy cap"]
LOSSES: tuple[LossName, ...] = get_args(LossName)
DefenceName = Literal[
  "standard", "attacked", "clean and attacked", "TRADES, ce, weight 1",
  "TRADES, ce, weight 6", "TRADES, kl, weight 1", "TRADES, kl, weight 6",
  "cells of all", "cells of other classes",
]  # fmt: skip
DEFENCES: tuple[DefenceName, ...] = get_args(DefenceName)
Further = Literal["defences", "noise", "combined", "rotation", "reweighting"]
FURTHER: tuple[Further, ...] = get_args(Further)
_T = TypeVar("_T")
OfSmall = Annotated[_T, Without("images", ("cifar10", "svhn_cropped"))]
OfDigits = Annotated[_T, Without("images", ("cifar10_16", "cifar10", "svhn_cropped"))]


@dataclasses.dataclass(frozen=True)
class Photographs:
  """Settings of the networks of photographs and of their training."""

  network: Literal["ResNet18", "ResNet50"] = "ResNet50"
  """Network; the public robust networks of CIFAR-10 have 50 layers."""
  width: int = 64
  """Channels of the first stage."""
  epochs: int = 150
  """Passes over the training images."""
  batch: int = 128
  """Images per step."""
  learning_rate: float = 0.1
  """Learning rate of SGD with momentum 0.9, divided by 10 after each third of the
  epochs."""
  weight_decay: float = 5e-4
  """Weight decay, added to the gradients."""
  percent: int = 100
  """Share of the image set to read, in percent."""


@dataclasses.dataclass(frozen=True)
class Config:
  """Settings of the study."""

  seed: int = 0
  """First seed."""
  seeds: int = 3
  """Runs of each training."""
  hidden: OfSmall[int] = 128
  """Units of the first layer."""
  dim: OfSmall[int] = 64
  """Units of the second layer, whose values are the features."""
  steps: OfSmall[int] = 600
  """Training steps: 60 epochs of the digits."""
  batch: OfSmall[int] = 128
  """Images per step."""
  learning_rate: OfSmall[float] = 1e-3
  """Learning rate of Adam."""
  clean_weight: float = 0.5
  """Weight of the clean images in the loss (DIST eq. 3.7)."""
  attack_steps: int = 7
  """Steps of the attack in training, of size 2.5 budget / steps."""
  judge_steps: int = 40
  """Steps of the attack that measures accuracy."""
  scale: OfDigits[float] = 16.0
  """Scale of the cosines, for losses of angles."""
  images: Literal["digits", "cifar10_16", "cifar10", "svhn_cropped"] = "digits"
  """Training images; cifar10_16 is CIFAR-10 at 16 x 16 pixels, with the small networks
  of the digits."""
  photographs: Annotated[Photographs, Without("images", ("digits", "cifar10_16"))] = (
    dataclasses.field(default_factory=Photographs)
  )
  """Settings for networks of photographs."""
  train_images: OfDigits[int] = 1297
  """Number of training digits, from the first."""
  test_images: OfDigits[int] = 500
  """Number of test digits, from the end."""
  l2: tuple[float, ...] = (0.15, 0.3, 0.6, 1.0)
  """Budgets in l2; images are in [0, 1]^64."""
  linf: tuple[float, ...] = (0.05, 0.1)
  """Budgets in l-infinity."""
  dims: OfDigits[tuple[int, ...]] = (8, 32, 128)
  """Input dimensions of the classes with known discriminality."""
  radii: OfDigits[tuple[float, ...]] = (0.3, 1.0, 3.0)
  """Distances of the class means from the origin."""
  proposals: OfDigits[tuple[LossName, ...]] = LOSSES
  """Losses to compare."""
  proposed_budget: OfDigits[float] = 0.6
  """Budget of the proposals and of the defences, in l2."""
  studies: OfDigits[tuple[Further, ...]] = FURTHER
  """Studies that DIST 3.2, 6.2.2, 6.2.3 and appendix A name without results."""
  beside: OfDigits[tuple[Literal["cifar10", "svhn_cropped"], ...]] = ("cifar10",)
  """Image sets to measure as well as the digits, if they are prepared."""
  defences: OfDigits[tuple[DefenceName, ...]] = DEFENCES
  """Defences to compare."""
  neighbours: OfDigits[int] = 32
  """Sites that bound a Voronoi cell during an attack."""
  combined: OfDigits[tuple[float, float]] = (1.0, 0.1)
  """Radii of the l1 and the l-infinity ball that the combined ball contains."""
  noise: OfDigits[float] = 0.25
  """Standard deviation of the noise of randomised smoothing."""
  votes: OfDigits[int] = 1000
  """Number of noisy draws that bound the probability of a class."""

  @property
  def budgets(self) -> dict[Norm, tuple[float, ...]]:
    """Budgets of the networks by norm; the standard network has a budget of 0."""
    by_norm: dict[Norm, tuple[float, ...]] = {"l2": (0.0, *self.l2), "linf": self.linf}
    return {norm: budgets for norm, budgets in by_norm.items() if budgets}

  @property
  def networks(self) -> list[Ball]:
    """Norm and budget of each network; the standard network comes first."""
    return [(norm, x) for norm, values in self.budgets.items() for x in values]


_SMALL = Config(
  images="cifar10_16", seeds=12, clean_weight=0.0, attack_steps=5, l2=(0.25, 0.5, 1.0),
  linf=(8 / 255,), beside=(),
)  # fmt: skip
PRESETS = {
  "cpu": _SMALL,
  # Twelve seeds leave eight claims undecided; these are further ones.
  "long": dataclasses.replace(_SMALL, seed=12, seeds=20),
  "digits": Config(seeds=8, l2=(), linf=()),
  "smoke": Config(
    seeds=1, hidden=16, dim=8, steps=20, batch=32, attack_steps=2, judge_steps=4,
    train_images=200, test_images=100, l2=(0.3, 1.0), linf=(), dims=(), proposals=(),
    studies=(), beside=(),
  ),
  # Budgets of the tables. DIST does not print settings of attack and training; those
  # for CIFAR-10 are from the public networks with the same budgets.
  "cifar10": Config(
    images="cifar10", seeds=1, clean_weight=0.0, l2=(0.25, 0.5, 1.0), linf=(8 / 255,),
    dims=(), proposals=(), studies=(),
  ),
  "svhn": Config(
    images="svhn_cropped", seeds=1, l2=(0.25, 0.5, 1.0), linf=(8 / 255, 12 / 255),
    dims=(), proposals=(), studies=(),
  ),
}  # fmt: skip
