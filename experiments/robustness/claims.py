"""Rows, claims and pictures of what adversarial training does to features."""

import functools
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.frame import pictures, results
from experiments.robustness import tables
from experiments.robustness.tables import CLASSES
from spherejax import metrics, plotting

Figures = dict[str, dict[str, np.ndarray]]
"""For each network (standard, l2 0.3, ...) and measure a figure for each seed."""


def _column(figures: Figures, measure: str, names: Sequence[str]) -> np.ndarray:
  """[networks, seeds]."""
  return np.stack([figures[name][measure] for name in names])


def _least_gain(
  figures: Figures, measure: str, names: Sequence[str], sign: int = 1
) -> np.ndarray:
  """[seeds]: by how much a measure is above the standard network's, at least.

  With sign -1 below.
  """
  gains = _column(figures, measure, names) - figures["standard"][measure][None]
  return (sign * gains).min(0)


def _rank(first: Sequence[float] | np.ndarray, second: np.ndarray) -> float:
  found = metrics.correlation(first, second, method="spearman").value
  return float(np.nan_to_num(found))  # of a constant measure 0


def claims_of_training(figures: Figures, l2: tuple[float, ...]) -> list[Any]:
  """The statements of DIST 5.3 about adversarial training, of the budgets there are."""
  standard = figures["standard"]
  robust = [name for name in figures if name != "standard"]
  growing = [f"l2 {x:g}" for x in l2]
  strong = [f"l2 {x:g}" for x in l2 if x >= 0.25]
  column = functools.partial(_column, figures)
  gain = functools.partial(_least_gain, figures)
  mc, r2, density = (column(name, list(figures)) for name in ("MC, l2", "R2", "d_DoV"))
  seeds = range(mc.shape[1])
  # Of which networks each speaks; without them it is not made.
  made = {
    "X8-mc": (
      "MC (l2): every robust network > standard + 0.01",
      robust,
      lambda: gain("MC, l2", robust) - 0.01,
    ),
    "X8-mc-grows": (
      "rank correlation of the l2 budget and MC (l2) >= 0.8",
      growing[1:],
      lambda: [_rank(l2, column("MC, l2", growing)[:, i]) - 0.799 for i in seeds],
    ),
    "X8-phi": (
      "phi: robust < standard, l2 budgets from 0.25 on",
      strong,
      lambda: gain("phi", strong, -1),
    ),
    "X8-r2": (
      "R2: robust < standard, l2 budgets from 0.25 on",
      strong,
      lambda: gain("R2", strong, -1),
    ),
    "X8-intra": (
      "D_intra: robust > standard, l2 budgets from 0.25 on",
      strong,
      lambda: gain("D_intra", strong),
    ),
    "X8-density": (
      "d_DoV: robust >= standard for two thirds of the budgets",
      robust,
      lambda: (
        np.mean(column("d_DoV", robust) >= standard["d_DoV"][None], axis=0) - 0.666
      ),
    ),
    "X8-mc-r2": (
      "over the networks, rank correlation of MC and R2 <= -0.5",
      robust,
      lambda: [-0.499 - _rank(mc[:, i], r2[:, i]) for i in seeds],
    ),
    "X8-mc-density": (
      "over the networks, rank correlation of MC and d_DoV > 0",
      robust,
      lambda: [_rank(mc[:, i], density[:, i]) for i in seeds],
    ),
    "X8-accuracy": (
      "accuracy under attack of the budget: robust > standard, l2 from 0.25 on",
      strong,
      lambda: _gain_under_attack(figures, strong),
    ),
  }
  return [
    *(
      results.claim(name, statement, values(), paper="DIST 5.3")
      for name, (statement, networks, values) in made.items()
      if networks
    ),
    _identity(column("phi", list(figures)), r2),
  ]


def _gain_under_attack(figures: Figures, names: Sequence[str]) -> np.ndarray:
  """[seeds]: robust less standard network, each under the robust one's attack."""
  gains = [
    figures[name]["accuracy under attack"]
    - figures["standard"][f"accuracy under {name}"]
    for name in names
  ]
  return np.stack(gains).min(0)


def _identity(phi: np.ndarray, r2: np.ndarray) -> Any:
  share = 2 * CLASSES / (CLASSES - 1)
  return results.claim(
    "X8-identity",
    "R2 = phi / (phi + 20/9) of every network to 1e-4",
    1e-4 - np.abs(r2 - phi / (phi + share)).max(0),
    paper="DIST 2.4",
    every_seed=True,
  )


def figure_rows(figures: Figures, images: str) -> list[Any]:
  """The figures of all networks, beside the paper's where it has them."""
  return [
    results.row(
      name,
      measure,
      values,
      paper=tables.trained(images, name, measure),
    )
    for name, found in figures.items()
    for measure, values in found.items()
    if np.isfinite(values).all()  # rho of features that span less is infinite
  ]


def draw(figures: Figures, l2: tuple[float, ...], output: pathlib.Path) -> list[str]:
  """Measures against the l2 budget, 0 being the standard network."""
  names = ["standard", *(f"l2 {x:g}" for x in l2)]
  drawn = {}
  for file, measures, label in (
    ("mc", ("MC, l2", "MC, linf"), "mean correlation of distances"),
    ("variance", ("R2",), "R2 of normalised features"),
    ("density", ("d_DoV",), "directions above the mean (d_DoV)"),
    ("accuracy", ("accuracy", "accuracy under attack"), "share of test images"),
  ):
    curves = {
      measure: np.transpose([figures[name][measure] for name in names])
      for measure in measures
    }
    if file == "accuracy":
      curves["standard network, under the same attack"] = np.transpose(
        [figures["standard"][f"accuracy under {name}"] for name in names]
      )
    drawn[file] = plotting.training_curves(
      curves, steps=(0.0, *l2), xlabel="l2 budget in training", ylabel=label
    )
  return pictures.save(drawn, output)
