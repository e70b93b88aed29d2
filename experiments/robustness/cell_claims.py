"""What DIST says of cells, balls and shifts, as claims."""

import math
from typing import Any

import numpy as np

from experiments.frame.study import Claim, NotMeasured, Table
from experiments.robustness import plane, statements
from experiments.robustness.curves import EXACT, FLIPPED, LINEAR, MARGIN, NEIGHBOUR
from experiments.robustness.images import BUDGETS

# SAA of 1-NN on the first 1297 digits in l2, between bounds found by other means.
BRACKETS = {
  0.7: (0.979, 0.979),
  0.8: (0.878, 0.881),
  0.9: (0.667, 0.675),
  1.0: (0.329, 0.353),
  1.2: (0.004, 0.078),
}


def curve(table: Table, config: Any, name: str, measure: str, norm: str) -> np.ndarray:
  """At budget 0 and at each finite one."""
  finite = [x for x in BUDGETS[config.images][norm] if math.isfinite(x)]
  row = f"{config.images}, {name}, {measure}, {norm}"
  return np.concatenate([table.values(f"at {x:g}", row) for x in (0, *finite)])


def exact(table: Table, config: Any) -> np.ndarray:
  """SAA of 1-NN by its least moves, at each finite budget in l2."""
  finite = [x for x in BUDGETS[config.images]["l2"] if math.isfinite(x)]
  return np.concatenate([table.values(f"at {x:g}", EXACT) for x in finite])


def claims(config: Any, table: Table) -> list[Claim]:
  """Of the plane, of shifts, then of each norm."""
  del table
  if config.images != "digits":
    made = statements.of_shifts(config.images)
  else:
    made = [*plane.CLAIMS, *statements.of_shifts("digits")]
    made += [claim for name in config.shifted for claim in statements.of_shifts(name)]
  for norm in config.norms:
    made += _theorems(config, norm)
  return made


def _theorems(config: Any, norm: str) -> list[Claim]:
  """Of article III."""
  budgets = [x for x in BUDGETS[config.images][norm] if math.isfinite(x)]
  place = f"{config.images}, {norm}"

  def below(table: Table, measure: str) -> np.ndarray:
    """Which finite budgets are below half of a distance."""
    return np.array(budgets) < table.values(measure, place) / 2

  def above(table: Table) -> np.ndarray:
    """VAA less SAA of the linear classifier."""
    vaa, saa = (curve(table, config, LINEAR, x, norm) for x in ("VAA", "SAA"))
    return vaa - saa

  def near(table: Table) -> np.ndarray:
    gaps = above(table)[1:][below(table, "least distance of two")]
    return 1e-6 - np.abs(gaps).max(initial=0)

  def always(table: Table) -> np.ndarray:
    last = table.values("at inf", f"{config.images}, {NEIGHBOUR}, VAA, {norm}")
    return min(*curve(table, config, NEIGHBOUR, "VAA", norm), *last) - 1 + 1e-6

  def sure(table: Table) -> np.ndarray:
    saa = curve(table, config, NEIGHBOUR, "SAA", norm)
    kept = saa[1:][below(table, "least distance of two classes")]
    return kept.min(initial=1) - 1 + 1e-6

  def unbeaten(table: Table) -> np.ndarray:
    attacked = curve(table, config, NEIGHBOUR, "SAA", norm)[1:]
    return (attacked - exact(table, config)).min() + 1e-6

  def bracket(table: Table) -> float:
    if config.train_images != 1297:
      raise NotMeasured("bounds are of 1297 digits")
    values = dict(zip(budgets, exact(table, config), strict=True))
    inside = [min(values[x] - a, b - values[x]) for x, (a, b) in BRACKETS.items()]
    return min(inside) + 5e-4

  made = {
    "inside": (
      f"attacked points are nearer to their own site, {norm}",
      lambda t: t.values(MARGIN, place),
    ),
    "vaa-above-saa": (
      f"VAA >= SAA of the linear classifier, {norm}",
      lambda t: above(t).min() + 1e-6,
    ),
    "observation-1": (
      f"VAA = SAA below half the distance of the two nearest points, {norm}",
      near,
    ),
    "theorem-1": (f"VAA of 1-NN is 1 at every budget, {norm}", always),
    "unique": (
      "1-NN with one label changed: VAA without a budget loses that site alone, "
      f"{norm}",
      lambda t: 1e-9 - abs(t.values(FLIPPED, place)),
    ),
    "sure": (
      f"SAA of 1-NN is 1 below half the distance of the two nearest classes, {norm}",
      sure,
    ),
    "global": (
      f"VAA of the linear classifier without a budget <= its accuracy, {norm}",
      lambda t: (
        t.values("accuracy of the sites", f"{config.images}, {LINEAR}")
        - t.values("at inf", f"{config.images}, {LINEAR}, VAA, {norm}")
        + 1e-6
      ),
    ),
  }
  if config.images == "digits" and norm == "l2":
    text = "no attack of 1-NN finds more than its exact least moves allow"
    made["unbeaten"] = text, unbeaten
    made["bracket"] = "SAA of 1-NN is within its known bounds, l2", bracket
  return [
    Claim(f"X3-{key}-{norm}", text, difference, every_seed=True)
    for key, (text, difference) in made.items()
  ]
