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
  """Of starts, noise and samples; the first one."""
  seeds: OfDigits[int] = 3
  """Of the studies of attacks, certificates and trade-offs."""
  train_images: OfDigits[int] = 1297
  """First digits: the sites, whose accuracy is measured."""
  test_images: OfDigits[int] = 500
  """Last digits: on some attacks are compared, with all of them shifts are measured."""
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
  samples: OfDigits[int] = 100_000
  """Draws for the trade-offs."""
  votes: OfDigits[int] = 200_000
  """For each smoothed point."""
  suite_images: OfDigits[int] = 200
  """First test images, on which attacks are compared with closed forms; 0: none."""
  suite_norms: OfDigits[tuple[Literal["linf", "l2", "l1"], ...]] = ("linf", "l2", "l1")
  """Of the attacks of one budget."""
  suite_steps: OfDigits[int] = 50
  """Of these attacks."""


PRESETS = {
  "cpu": Config(),
  "smoke": Config(
    seeds=1,
    train_images=100,
    test_images=100,
    shifted=(),
    toy_norms=("l2",),
    norms=("l2",),
    classifiers=("ridge",),
    steps=5,
    samples=5000,
    votes=5000,
    suite_images=0,
  ),
  "full": Config(images="cifar10", seeds=1),
}
