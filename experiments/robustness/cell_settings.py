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
  """Images to attack, which are also the sites of the Voronoi cells; for cifar10 and
  mnist, all training images. Toy figures and closed forms need digits."""
  percent: Annotated[int, Without("images", "digits")] = 100
  """Share of cifar10 or mnist to read, in percent."""
  seed: int = 0
  """Seed of the attacks' starting points."""
  train_images: OfDigits[int] = 1297
  """Number of digits that are sites, from the first; accuracy is measured on them."""
  test_images: OfDigits[int] = 500
  """Number of digits, from the end, whose shifts are measured, too."""
  shifted: OfDigits[tuple[Literal["cifar10", "mnist"], ...]] = ("cifar10",)
  """Image sets whose shifts are measured as well as the digits', if they are
  prepared."""
  toy_norms: OfDigits[tuple[Literal["l2", "linf", "l1"], ...]] = ("l2", "linf", "l1")
  """Norms of cells and balls in the plane, and of the smallest distances of digits."""
  norms: tuple[Literal["l2", "linf"], ...] = ("l2", "linf")
  """Norms of cells and balls of images."""
  classifiers: tuple[Literal["1-NN", "ridge"], ...] = ("1-NN", "ridge")
  """Classifiers to attack on images."""
  steps: int = 40
  """Steps of the attacks."""
  neighbours: int = 32
  """Nearest sites that bound a cell during an attack."""
  batch: int = 2000
  """Sites to attack at once, over all devices."""


PRESETS = {
  "cpu": Config(),
  "smoke": Config(
    train_images=100, test_images=100, shifted=(), toy_norms=("l2",), norms=("l2",),
    classifiers=("ridge",), steps=5,
  ),
  "full": Config(images="cifar10"),
}  # fmt: skip
