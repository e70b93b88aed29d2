"""Settings of `voronoi`."""

import dataclasses
from typing import Annotated, Literal, TypeVar

from experiments.frame.settings import Without

_T = TypeVar("_T")
OfDigits = Annotated[_T, Without("images", ("cifar10", "mnist"))]


@dataclasses.dataclass(frozen=True)
class Config:
  """Settings of the study."""

  images: Literal["digits", "cifar10", "mnist"] = "digits"
  """The sites; of the last two all training images. Toy, closed forms: digits only."""
  percent: Annotated[int, Without("images", "digits")] = 100
  """Share of cifar10 or mnist that is read, in percent."""
  seed: int = 0
  """Of the starts of attacks."""
  train_images: OfDigits[int] = 1297
  """First digits: the sites, whose accuracy is measured."""
  test_images: OfDigits[int] = 500
  """Last digits, of which shifts are measured, too."""
  shifted: OfDigits[tuple[Literal["cifar10", "mnist"], ...]] = ("cifar10",)
  """Images that are shifted beside the digits, where they are there."""
  toy_norms: OfDigits[tuple[Literal["l2", "linf", "l1"], ...]] = ("l2", "linf", "l1")
  """Of cells and balls in the plane, and of the least distances of digits."""
  norms: tuple[Literal["l2", "linf"], ...] = ("l2", "linf")
  """Of cells and balls of images."""
  classifiers: tuple[Literal["1-NN", "ridge"], ...] = ("1-NN", "ridge")
  """What is attacked on images."""
  steps: int = 40
  """Of the attacks."""
  neighbours: int = 32
  """Sites about each that bound its cell during an attack."""
  batch: int = 2000
  """Sites that are attacked at once, over all devices."""


PRESETS = {
  "cpu": Config(),
  "smoke": Config(
    train_images=100,
    test_images=100,
    shifted=(),
    toy_norms=("l2",),
    norms=("l2",),
    classifiers=("ridge",),
    steps=5,
  ),
  "full": Config(images="cifar10"),
}
