"""Settings of `robust_features` and its presets."""

import dataclasses
from typing import Annotated, Literal

from experiments.frame.settings import Without
from experiments.robustness import defences as robust_defences
from experiments.robustness import networks
from experiments.robustness import photographs as robust_photographs


@dataclasses.dataclass(frozen=True)
class Config(networks.Settings):
  """Settings of the study."""

  images: Literal["digits", "cifar10", "svhn_cropped"] = "digits"
  """What the networks are trained on."""
  photographs: Annotated[
    robust_photographs.Photographs, Without("images", "digits")
  ] = dataclasses.field(default_factory=robust_photographs.Photographs)
  """Networks of photographs and their training, in place of those of the digits."""
  train_images: networks.OfDigits[int] = 1297
  """First digits, to train on."""
  test_images: networks.OfDigits[int] = 500
  """Last digits, to test on."""
  l2: tuple[float, ...] = (0.15, 0.3, 0.6, 1.0)
  """Budgets in l2; images are in [0, 1]^64."""
  linf: tuple[float, ...] = (0.05, 0.1)
  """Budgets in l-infinity."""
  dims: networks.OfDigits[tuple[int, ...]] = (8, 32, 128)
  """Input dimensions of the classes of known discriminality."""
  radii: networks.OfDigits[tuple[float, ...]] = (0.3, 1.0, 3.0)
  """Distances of their means from the origin."""
  proposals: networks.OfDigits[
    tuple[Literal["cross-entropy", "NormFace", "negative margin", "proxy cap"], ...]
  ] = ("cross-entropy", "NormFace", "negative margin", "proxy cap")
  """Losses to compare."""
  proposed_budget: networks.OfDigits[float] = 0.6
  """l2 budget of these losses, and of the defences."""
  studies: networks.OfDigits[
    tuple[Literal["defences", "noise", "combined", "rotation", "reweighting"], ...]
  ] = ("defences", "noise", "combined", "rotation", "reweighting")
  """What DIST 3.2, 6.2.2, 6.2.3 and its appendix A name without results."""
  beside: networks.OfDigits[tuple[Literal["cifar10", "svhn_cropped"], ...]] = (
    "cifar10",
  )
  """Photographs that are measured beside the digits, where they are there."""
  defences: networks.OfDigits[tuple[robust_defences.Name, ...]] = (
    robust_defences.DEFENCES
  )
  """Trainings to compare."""
  neighbours: networks.OfDigits[int] = 32
  """Sites that bound a Voronoi cell during an attack."""
  combined: networks.OfDigits[tuple[float, float]] = (1.0, 0.1)
  """Radii of the l1 and the l-infinity ball that the combined ball contains."""
  noise: networks.OfDigits[float] = 0.25
  """Deviation of the noise of randomised smoothing."""
  votes: networks.OfDigits[int] = 1000
  """Draws that bound the class's probability."""


PRESETS = {
  "cpu": Config(),
  "smoke": Config(
    seeds=1,
    hidden=16,
    dim=8,
    steps=20,
    batch=32,
    attack_steps=2,
    judge_steps=4,
    train_images=200,
    test_images=100,
    l2=(0.3, 1.0),
    linf=(),
    dims=(),
    proposals=(),
    studies=(),
    beside=(),
  ),
  # Budgets of the tables; the attack's and the training's numbers are not in DIST. Of
  # CIFAR-10 they are those of the public networks that have its budgets.
  "cifar10": Config(
    images="cifar10",
    seeds=1,
    clean_weight=0.0,
    l2=(0.25, 0.5, 1.0),
    linf=(8 / 255,),
    dims=(),
    proposals=(),
    studies=(),
  ),
  "svhn": Config(
    images="svhn_cropped",
    seeds=1,
    l2=(0.25, 0.5, 1.0),
    linf=(8 / 255, 12 / 255),
    dims=(),
    proposals=(),
    studies=(),
  ),
}
