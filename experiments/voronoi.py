"""The Voronoi-epsilon adversary: robustness that asks one label of each point.

The adversary may move a point as long as its original stays the nearest training point.
The study measures accuracy within balls (SAA) and within balls and cells (VAA), for the
nearest neighbour and a linear classifier, on eight points in the plane and on images.
It compares them with closed forms and with the best value of any classifier, and tests
what DIST 1 says about distances between images. DIST, article III.

    python -m experiments.voronoi                    # digits, 12 min on one core
    python -m experiments.voronoi --preset smoke     # seconds
    python -m experiments.voronoi --preset full      # all of CIFAR-10, accelerators
    python -m experiments.voronoi --preset full --images mnist

The first two need only the digits of scikit-learn. The first also shifts the images of
cifar10 if tensorflow-datasets prepared them in TFDS_DATA_DIR. The last two need
prepared cifar10 or mnist.
"""

import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import tqdm

from experiments.frame import images as class_sets
from experiments.frame import pictures
from experiments.frame.study import Measured, Study, Table
from experiments.robustness import cells, curves, plane
from experiments.robustness import images as voronoi_sets
from experiments.robustness.cell_settings import PRESETS, Config
from experiments.robustness.images import Points
from spherejax import plotting


def add_digits(table: Table, config: Config, train: Points, test: Points) -> None:
  plane.add(table, jax.random.key(config.seed), config.toy_norms)
  all_points = Points(*map(jnp.concatenate, zip(train, test, strict=True)))
  cells.add_shifts(table, "digits", all_points)
  load = functools.partial(voronoi_sets.prepared, split="train")
  for name, images in class_sets.available(config.shifted, load):
    cells.add_shifts(table, name, images)
  cells.add_best_binary(table, train.flat())
  for norm in config.toy_norms:
    if norm not in config.norms:
      curves.add_distances(table, "digits", train.flat(), norm)


def measure(config: Config, output: pathlib.Path) -> Measured:
  """Runs all attacks; adds their measures and those that need no attack."""
  train, test = voronoi_sets.load(config)
  table, sites = Table(), train.sites()
  if config.images == "digits":
    add_digits(table, config, train, test)
  else:
    cells.add_shifts(table, config.images, train)
    table.add(config.images, "sites, each place once", len(sites.y))
  budgets = voronoi_sets.BUDGETS[config.images]
  # Besides the budgets: no attack, no budget, and 1-NN with a wrong label.
  runs_per_norm = 2 * len(config.classifiers) + (curves.NEIGHBOUR in config.classifiers)
  total = sum(
    len(budgets[x]) * len(config.classifiers) + runs_per_norm for x in config.norms
  )
  with tqdm.tqdm(total=total, unit="attack") as progress:
    for norm in config.norms:
      task = curves.Task(config, sites, norm)
      curves.add_distances(table, config.images, sites, norm)
      curves.add(table, task, output / "kept", progress)
      if config.images == "digits" and norm == "l2":
        curves.add_exact(table, task)
  if curves.LINEAR in config.classifiers:
    curves.add_natural(table, config.images, sites, test.flat())
  return table, lambda: draw(table, config)


def draw(table: Table, config: Config) -> dict[str, pictures.Figure]:
  """Regions in the plane, and the curves."""
  budgets = voronoi_sets.BUDGETS[config.images]
  figures = {"toy": plane.draw()} if config.images == "digits" else {}
  for norm in config.norms:
    at = [0.0, *budgets[norm]]
    lines = {
      f"{x}, {y}": cells.curve(table, f"{config.images}, {x}, {y}, {norm}", at)
      for x in config.classifiers
      for y in ("VAA", "SAA")
    }
    if config.images == "digits" and norm == "l2":
      lines["1-NN, SAA, exact"] = np.append(1, cells.curve(table, curves.EXACT, at[1:]))
    label = f"{norm} budget"
    figures[f"curves-{norm}"] = plotting.robust_accuracy(lines, at, xlabel=label)
  return figures


STUDY = Study("voronoi", __doc__, "DIST, article III", PRESETS, measure, cells.claims)

if __name__ == "__main__":
  STUDY.main()
