"""The Voronoi-epsilon adversary: robustness that does not ask two answers of a point.

Points may be moved as far as they stay nearest to where they came from. Measured are
accuracies within balls (SAA) and within balls and cells (VAA) of the nearest neighbour
and of a linear classifier, on eight points in the plane and on digits, beside closed
forms and what no classifier can exceed; and what DIST 1 and 3.3 say of distances of
images and of trade-offs (DIST, article III). Then attacks, the combined ball and
randomised smoothing where a closed form says what they should find (3.1, 3.2, A).

    python -m experiments.voronoi                    # digits, 10 min on 2 cores
    python -m experiments.voronoi --preset smoke     # seconds

Needs no data but the digits that scikit-learn embeds.
"""

import dataclasses
import math
import pathlib
import sys
import time
from typing import Any, Literal

import jax
import numpy as np
import tqdm

from experiments import (
  _cli,
  _digits,
  _finished,
  _report,
  _voronoi_attacks,
  _voronoi_digits,
  _voronoi_statements,
  _voronoi_toy,
)
from spherejax import metrics, plotting

BUDGETS = {
  "l2": (0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, math.inf),
  "linf": (0.02, 0.05, 0.09, 0.15, 0.2, 0.25, 0.3, 0.4, math.inf),
}
PAIRS = {"odd or even": (), "3 or 8": (3, 8)}


@dataclasses.dataclass(frozen=True)
class Config:
  """Settings of the study."""

  seed: int = 0
  """Of the attacks' starts."""
  train_images: int = 1297
  """First digits: the sites, whose accuracy is measured."""
  test_images: int = 500
  """Last digits: on some attacks are compared, with all of them shifts are measured."""
  norms: tuple[Literal["l2", "linf"], ...] = ("l2", "linf")
  """Of cells and balls."""
  classifiers: tuple[Literal["1-NN", "ridge"], ...] = ("1-NN", "ridge")
  """What is attacked on the digits."""
  steps: int = 40
  """Of the attacks."""
  neighbours: int = 32
  """Sites about each that bound its cell during an attack."""
  samples: int = 100_000
  """Draws for the trade-offs."""
  votes: int = 200_000
  """For each smoothed point."""
  suite_images: int = 200
  """First test images, on which attacks are compared with closed forms; 0: none."""
  suite_steps: int = 50
  """Of these attacks."""


PRESETS = {
  "cpu": Config(),
  "smoke": Config(
    train_images=150,
    test_images=100,
    norms=("l2",),
    classifiers=("ridge",),
    steps=5,
    samples=5000,
    votes=5000,
    suite_images=0,
  ),
}


def best_binary(train) -> list[Any]:
  """What no classifier of two classes of digits can exceed."""
  x, y = np.asarray(train.x), np.asarray(train.y)
  budgets = np.array([0.7, 0.8, 1.0, 1.5])
  rows = []
  for name, pair in PAIRS.items():
    kept = np.isin(y, pair) if pair else np.ones(len(y), bool)
    labels = (y == pair[0]).astype(int) if pair else y % 2
    best = metrics.best_accuracy(x[kept], labels[kept], budgets)
    rows += [
      _report.row(f"digits, {name}", f"best SAA of all at {budget:g}, l2", [value])
      for budget, value in zip(budgets, best, strict=True)
    ]
  return rows


def curves(
  config: Config, key: jax.Array, train: _digits.Points, norm: str, folder: pathlib.Path
) -> _voronoi_digits.Curves:
  """Accuracies under attack in one norm; what an earlier run found of them is kept."""
  settings = {"made with": _finished.digest(config)}
  done = _finished.restore(folder / norm, settings)
  if done is None:
    found = _voronoi_digits.curves(
      key,
      train.x,
      train.y,
      norm=norm,
      budgets=BUDGETS[norm],
      steps=config.steps,
      neighbours=config.neighbours,
      names=config.classifiers,
    )
    done = _finished.Finished({"margin": found.margin}, found.accuracy)
    _finished.keep(folder / norm, settings, done)
  return _voronoi_digits.Curves(done.arrays, done.figures["margin"])


def run(config: Config, output: pathlib.Path, preset: str = "cpu") -> dict[str, Any]:
  """All parts; returns figures and claims."""
  start = time.perf_counter()
  key = jax.random.key(config.seed)
  train, test = _digits.load(config.train_images, config.test_images)
  rows, claims = _voronoi_toy.rows_and_claims(key, config.norms)
  parts = [
    _voronoi_statements.shifts(train, test),
    _voronoi_statements.trade_offs(config.seed, config.samples),
    _voronoi_attacks.smoothing(key, config.votes),
  ]
  if config.suite_images:
    attacked = jax.tree.map(lambda x: x[: config.suite_images], test)
    parts += _voronoi_attacks.against_closed_forms(
      key, train, attacked, config.suite_steps
    )
  for part in parts:
    rows, claims = rows + part[0], claims + part[1]
  rows += best_binary(train)
  drawn = {"toy": _voronoi_toy.draw()}
  for norm in tqdm.tqdm(config.norms, file=sys.stderr):
    budgets = BUDGETS[norm]
    found = curves(config, key, train, norm, output / "kept")
    weights, offset = _voronoi_digits.ridge(train.x, train.y)
    moves = _voronoi_digits.least_linear_moves(weights, offset, train.x, train.y, norm)
    closed = np.array([np.mean(moves > x) for x in budgets if math.isfinite(x)])
    shown = [0.0, *budgets]
    rows += [
      _report.row(f"digits, {name}, {norm}", f"at {budget:g}", [value])
      for name, values in found.accuracy.items()
      for budget, value in zip(shown, values, strict=False)
    ] + [
      _report.row(f"digits, ridge, least moves, {norm}", f"at {budget:g}", [value])
      for budget, value in zip(budgets, closed, strict=False)
    ]
    reached = _voronoi_digits.attacked_linear(
      train.x, train.y, norm=norm, budgets=budgets
    )
    claims += _voronoi_digits.claims(
      found,
      closed,
      reached,
      budgets=budgets,
      sites=train.x,
      labels=train.y,
      norm=norm,
    )
    finite = [x for x in shown if math.isfinite(x)]
    lines = {name: values[: len(finite)] for name, values in found.accuracy.items()}
    if norm == "l2":
      exact, more = _voronoi_digits.exact_neighbour(train.x, train.y, budgets, found)
      claims += more
      lines["1-NN, SAA, exact"] = np.array([1.0, *exact])
      rows += [
        _report.row("digits, 1-NN, SAA exactly, l2", f"at {budget:g}", [value])
        for budget, value in zip(budgets, exact, strict=False)
      ]
    drawn[f"curves-{norm}"] = plotting.training_curves(
      {name: values[None] for name, values in lines.items()},
      steps=finite,
      xlabel=f"{norm} budget",
      ylabel="accuracy under attack",
    )
  pictures = [
    plotting.save(figure, output / f"{name}.png").name for name, figure in drawn.items()
  ]
  return _report.result(
    experiment="voronoi",
    preset=preset,
    config=config,
    seconds=time.perf_counter() - start,
    rows=rows,
    claims=claims,
    pictures=pictures,
  )


def main() -> None:
  """The command line."""
  preset, config, output = _cli.parse(PRESETS, name="voronoi", doc=__doc__)
  _report.write(run(config, output, preset), output)


if __name__ == "__main__":
  main()
