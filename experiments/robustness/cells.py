"""Settings of `voronoi`, and claims of DIST about cells, balls and shifts."""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

import numpy as np

from experiments.frame.settings import Without
from experiments.frame.study import Claim, NotMeasured, Statement, Table
from experiments.robustness import plane
from experiments.robustness.curves import EXACT, FLIPPED, LINEAR, MARGIN, NEIGHBOUR
from experiments.robustness.images import BUDGETS, Points
from spherejax import distances, metrics

_T = TypeVar("_T")
OfDigits = Annotated[_T, Without("images", ("cifar10", "mnist"))]

SHIFTED = "share that a shift moves further"
PAIRS = {"odd or even": (), "3 or 8": (3, 8)}
SHIFT_NORMS: tuple[Literal["l2", "linf"], ...] = ("l2", "linf")
# Bounds of 1-NN's SAA on the first 1297 digits in l2, computed by other means.
BRACKETS = {
  0.7: (0.979, 0.979), 0.8: (0.878, 0.881), 0.9: (0.667, 0.675), 1.0: (0.329, 0.353),
  1.2: (0.004, 0.078),
}  # fmt: skip


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


def add_shifts(table: Table, name: str, images: Points) -> None:
  """Adds how far images [n, height, width, channels] move by a shift of one pixel.

  Compares this with the distance to the nearest image of another class (DIST fig. 1.1).
  """
  x, y = map(np.asarray, images)
  shifted = np.pad(x[:, :, :-1], ((0, 0), (0, 0), (1, 0), (0, 0)))
  step, flat = (v.reshape(len(x), -1) for v in (shifted - x, x))
  for norm in SHIFT_NORMS:
    shift_lengths = np.linalg.norm(step, plane.ORDERS[norm], axis=1)
    nearest = distances.k_nearest(flat, flat, k=1, norm=norm, apart=(y, y)).distances
    nearest = np.asarray(nearest)[:, 0]
    table.add(f"{name}, {norm}", "distance of a shift by a pixel", shift_lengths.mean())
    table.add(f"{name}, {norm}", "distance to another class", nearest.mean())
    table.add(f"{name}, {norm}", SHIFTED, np.mean(shift_lengths > nearest))


def of_shifts(name: str) -> list[Claim]:
  """Claims about shifts of images."""
  farther = "further than the nearest of another class is"
  rows: list[Statement] = [
    (f"X1-{name}-some",
     f"a shift by a pixel moves images of {name} {farther}, l2: the share of them",
     lambda t: t.values(SHIFTED, f"{name}, l2")),
    (f"X1-{name}-half",
     f"a shift by a pixel moves half of {name} {farther}, l2",
     lambda t: t.values(SHIFTED, f"{name}, l2") - 0.5),
  ]  # fmt: skip
  if name == "digits":
    rows = [
      (f"X1-{norm}", f"a shift by a pixel moves 95 % of the digits {farther}, {norm}",
       lambda t, norm=norm: t.values(SHIFTED, f"digits, {norm}") - 0.95)
      for norm in SHIFT_NORMS
    ]  # fmt: skip
  return Claim.of_rows(rows, "DIST fig. 1.1", every_seed=True)


def add_best_binary(table: Table, train: Points) -> None:
  """Adds the best accuracy that any classifier of two digits can reach."""
  x, y = map(np.asarray, train)
  budgets = np.array([0.7, 0.8, 1.0, 1.5])
  for name, pair in PAIRS.items():
    mask = np.isin(y, pair) if pair else np.ones(len(y), bool)
    labels = (y == pair[0]).astype(int) if pair else y % 2
    best = metrics.best_accuracy(x[mask], labels[mask], budgets)
    for budget, value in zip(budgets, best, strict=True):
      table.add(f"digits, {name}", f"best SAA of all at {budget:g}, l2", value)


def curve(table: Table, config: Any, name: str, measure: str, norm: str) -> np.ndarray:
  """Accuracies at budget 0 and at each finite budget."""
  row = f"{config.images}, {name}, {measure}, {norm}"
  return np.concatenate(
    [table.values(f"at {x:g}", row) for x in (0, *_budgets(config, norm))]
  )


def exact(table: Table, config: Any) -> np.ndarray:
  """SAA of 1-NN from exact least distances, at each finite budget in l2."""
  budgets = _budgets(config, "l2")
  return np.concatenate([table.values(f"at {x:g}", EXACT) for x in budgets])


def _budgets(config: Any, norm: str) -> np.ndarray:
  return np.array(BUDGETS[config.images][norm])


def _above(table: Table, config: Any, norm: str) -> np.ndarray:
  """VAA less SAA of the linear classifier."""
  vaa, saa = (curve(table, config, LINEAR, x, norm) for x in ("VAA", "SAA"))
  return vaa - saa


def _near(table: Table, config: Any, norm: str) -> float:
  half = table.values("least distance of two", f"{config.images}, {norm}") / 2
  gaps = _above(table, config, norm)[1:][_budgets(config, norm) < half]
  return 1e-6 - np.abs(gaps).max(initial=0)


def _always(table: Table, config: Any, norm: str) -> float:
  last = table.values("at inf", f"{config.images}, {NEIGHBOUR}, VAA, {norm}")
  return min(*curve(table, config, NEIGHBOUR, "VAA", norm), *last) - 1 + 1e-6


def _sure(table: Table, config: Any, norm: str) -> float:
  half = table.values("least distance of two classes", f"{config.images}, {norm}") / 2
  saa = curve(table, config, NEIGHBOUR, "SAA", norm)[1:]
  return saa[_budgets(config, norm) < half].min(initial=1) - 1 + 1e-6


def _global(table: Table, config: Any, norm: str) -> np.ndarray:
  accuracy = table.values("accuracy of the sites", f"{config.images}, {LINEAR}")
  robust_accuracy = table.values("at inf", f"{config.images}, {LINEAR}, VAA, {norm}")
  return accuracy - robust_accuracy + 1e-6


def _unbeaten(table: Table, config: Any, norm: str) -> float:
  attacked = curve(table, config, NEIGHBOUR, "SAA", norm)[1:]
  return (attacked - exact(table, config)).min() + 1e-6


def _bracket(table: Table, config: Any, norm: str) -> float:
  if config.train_images != 1297:
    raise NotMeasured("bounds are of 1297 digits")
  values = dict(zip(_budgets(config, norm), exact(table, config), strict=True))
  inside = [min(values[x] - a, b - values[x]) for x, (a, b) in BRACKETS.items()]
  return min(inside) + 5e-4


Theorem = tuple[str, Callable[[Table, Any, str], Any]]
THEOREMS: dict[str, Theorem] = {
  "inside": (
    "attacked points are nearer to their own site, {}",
    lambda t, config, norm: t.values(MARGIN, f"{config.images}, {norm}"),
  ),
  "vaa-above-saa": (
    "VAA >= SAA of the linear classifier, {}",
    lambda t, config, norm: _above(t, config, norm).min() + 1e-6,
  ),
  "observation-1": (
    "VAA = SAA below half the distance of the two nearest points, {}",
    _near,
  ),
  "theorem-1": ("VAA of 1-NN is 1 at every budget, {}", _always),
  "unique": (
    "1-NN with one label changed: VAA without a budget loses that site alone, {}",
    lambda t, config, norm: 1e-9 - abs(t.values(FLIPPED, f"{config.images}, {norm}")),
  ),
  "sure": (
    "SAA of 1-NN is 1 below half the distance of the two nearest classes, {}",
    _sure,
  ),
  "global": (
    "VAA of the linear classifier without a budget <= its accuracy, {}",
    _global,
  ),
}
EXACTLY: dict[str, Theorem] = {
  "unbeaten": (
    "no attack of 1-NN finds more than its exact least moves allow", _unbeaten),
  "bracket": ("SAA of 1-NN is within its known bounds, {}", _bracket),
}  # fmt: skip
"""Claims about digits in l2, whose smallest shifts are known."""


def claims(config: Any, table: Table) -> list[Claim]:
  """Claims about the plane, about shifts, then about each norm."""
  del table
  names = (config.images,)
  if config.images == "digits":
    names = ("digits", *config.shifted)
  statements = [claim for name in names for claim in of_shifts(name)]
  for norm in config.norms:
    theorems = THEOREMS
    if config.images == "digits" and norm == "l2":
      theorems = THEOREMS | EXACTLY
    statements += [
      Claim(
        f"X3-{key}-{norm}",
        text.format(norm),
        lambda t, of=difference, norm=norm: of(t, config, norm),
        every_seed=True,
      )
      for key, (text, difference) in theorems.items()
    ]
  return [*(plane.CLAIMS if config.images == "digits" else ()), *statements]
