"""Claims of DIST about cells, balls and shifts."""

from collections.abc import Iterable
from typing import Literal

import numpy as np

from experiments.frame.study import Claim, NotMeasured, Statement, Table
from experiments.robustness import plane
from experiments.robustness.cell_settings import Config
from experiments.robustness.curves import EXACT, FLIPPED, LINEAR, MARGIN, NEIGHBOUR
from experiments.robustness.images import BUDGETS, Points
from spherejax import distances, metrics

SHIFTED = "share that a shift moves further"
PAIRS = {"odd or even": range(10), "3 or 8": (3, 8)}
SHIFT_NORMS: tuple[Literal["l2", "linf"], ...] = ("l2", "linf")
# Bounds of 1-NN's SAA on the first 1297 digits in l2, computed by other means.
BRACKETS = {
  0.7: (0.979, 0.979), 0.8: (0.878, 0.881), 0.9: (0.667, 0.675), 1.0: (0.329, 0.353),
  1.2: (0.004, 0.078),
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
  for name, digits in PAIRS.items():
    mask = np.isin(y, digits)
    best = metrics.best_accuracy(x[mask], y[mask] % 2, budgets)
    for budget, value in zip(budgets, best, strict=True):
      table.add(f"digits, {name}", f"best SAA of all at {budget:g}, l2", value)


def curve(table: Table, row: str, budgets: Iterable[float]) -> np.ndarray:
  """Accuracies of a row at budgets."""
  return np.concatenate([table.values(f"at {x:g}", row) for x in budgets])


def _of_norm(config: Config, norm: str) -> list[Statement]:
  """Claims about balls and cells in one norm; those about digits have closed forms."""
  images, place = config.images, f"{config.images}, {norm}"
  budgets = np.array(BUDGETS[images][norm])

  def of(t: Table, name: str, measure: str) -> np.ndarray:
    """Accuracies at budget 0 and at each finite one."""
    return curve(t, f"{images}, {name}, {measure}, {norm}", (0, *budgets))

  def last(t: Table, name: str) -> np.ndarray:
    return t.values("at inf", f"{images}, {name}, VAA, {norm}")

  def above(t: Table) -> np.ndarray:
    return of(t, LINEAR, "VAA") - of(t, LINEAR, "SAA")

  def below(t: Table, what: str, values: np.ndarray) -> np.ndarray:
    """Values at budgets below half the least distance of two."""
    return values[1:][budgets < t.values(f"least distance of {what}", place) / 2]

  def bracket(t: Table) -> float:
    if config.train_images != 1297:
      raise NotMeasured("bounds are of 1297 digits")
    values = dict(zip(budgets, curve(t, EXACT, budgets), strict=True))
    return min(min(values[x] - a, b - values[x]) for x, (a, b) in BRACKETS.items())

  rows: list[Statement] = [
    ("inside", f"attacked points are nearer to their own site, {norm}",
     lambda t: t.values(MARGIN, place)),
    ("vaa-above-saa", f"VAA >= SAA of the linear classifier, {norm}",
     lambda t: above(t).min() + 1e-6),
    ("observation-1",
     f"VAA = SAA below half the distance of the two nearest points, {norm}",
     lambda t: 1e-6 - abs(below(t, "two", above(t))).max(initial=0)),
    ("theorem-1", f"VAA of 1-NN is 1 at every budget, {norm}",
     lambda t: min(*of(t, NEIGHBOUR, "VAA"), *last(t, NEIGHBOUR)) - 1 + 1e-6),
    ("unique",
     f"1-NN with one label changed: VAA without a budget loses that site alone, {norm}",
     lambda t: 1e-9 - abs(t.values(FLIPPED, place))),
    ("sure",
     f"SAA of 1-NN is 1 below half the distance of the two nearest classes, {norm}",
     lambda t: below(t, "two classes", of(t, NEIGHBOUR, "SAA")).min(initial=1)
     - 1 + 1e-6),
    ("global",
     f"VAA of the linear classifier without a budget <= its accuracy, {norm}",
     lambda t: t.values("accuracy of the sites", f"{images}, {LINEAR}")
     - last(t, LINEAR) + 1e-6),
    ("unbeaten", "no attack of 1-NN finds more than its exact least moves allow",
     lambda t: (of(t, NEIGHBOUR, "SAA")[1:] - curve(t, EXACT, budgets)).min() + 1e-6),
    ("bracket", f"SAA of 1-NN is within its known bounds, {norm}",
     lambda t: bracket(t) + 5e-4),
  ]  # fmt: skip
  return rows if images == "digits" and norm == "l2" else rows[:-2]


def claims(config: Config, table: Table) -> list[Claim]:
  """Claims about the plane, about shifts, then about each norm."""
  del table
  digits = config.images == "digits"
  names = ("digits", *config.shifted) if digits else (config.images,)
  statements = [claim for name in names for claim in of_shifts(name)]
  for norm in config.norms:
    rows = [(f"X3-{x}-{norm}", text, of) for x, text, of in _of_norm(config, norm)]
    statements += Claim.of_rows(rows, every_seed=True)
  return [*(plane.CLAIMS if digits else ()), *statements]
