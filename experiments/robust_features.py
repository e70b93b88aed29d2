"""Structure of features under adversarial training: discriminality, proxies.

Networks are trained with and without attacks of growing budgets. The study measures how
the distances of their features follow those of the images (MC), how far classes are
apart (phi, R2), and how many directions the features use (d_DoV, rho): DIST 2.4 and 5.
It tests what DIST 5.4 and 6.2 propose: inputs of a known discriminality, losses that
hold attacked images near their proxy, and re-weighted principal directions. It also
tests what DIST names without results: defences side by side, randomised smoothing
(3.2), training in the combined ball (A), residuals that tell the angle to other classes
(6.2.2), and re-weighted features of classes that no training has seen (6.2.3).

    python -m experiments.robust_features        # CIFAR-10 at 16 x 16: 14 min
    python -m experiments.robust_features --preset digits    # proposals: 46 min, 1 core
    python -m experiments.robust_features --preset smoke     # seconds
    python -m experiments.robust_features --preset cifar10   # accelerators
    python -m experiments.robust_features --preset svhn      # likewise

`digits` and `smoke` train on the digits of scikit-learn; `digits` also measures cifar10
if it is in TFDS_DATA_DIR. The pixels of digits already separate the classes, so
training under attack is studied on photographs. The other presets need cifar10 or
svhn_cropped, prepared by tensorflow-datasets in TFDS_DATA_DIR.
"""

import operator
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tqdm

from experiments.frame import images as class_sets
from experiments.frame.study import Study, Table
from experiments.robustness import (
  claims,
  defences,
  features,
  images,
  networks,
  photographs,
  proposals,
  structure,
)
from experiments.robustness.images import Points
from experiments.robustness.photographs import PRESETS, Config

STUDIES = {
  "defences": defences.add_side_by_side,
  "noise": defences.add_noisy,
  "combined": defences.add_combined,
  "rotation": features.add_residuals,
  "reweighting": features.add_features,
}


MEASURED = 1500
"""Largest number of training images whose features are measured."""


def trained(
  table: Table,
  config: Any,
  train: Points,
  test: Points,
  progress: tqdm.tqdm,
  folder: pathlib.Path,
) -> None:
  """Trains networks for all budgets; adds measures of their features."""
  standard = None
  for norm, budgets in config.budgets.items():
    progress.set_postfix(norm=norm)
    loss = networks.adversarial(config.clean_weight)
    defence = networks.Defence(config, loss, norm)
    columns = {"epsilon": budgets}
    result = networks.train(defence, columns, train, test, folder / norm)
    params = result.state.params
    subset = Points(train.x[:MEASURED], train.y[:MEASURED])
    measures = structure.of_models(defence, params, subset)
    measures["accuracy"] = result.scores[..., -1]
    judged = networks.judge(defence, test)
    measures["accuracy under attack"] = judged(params, jnp.array(budgets))
    if standard is None:
      standard = jax.tree.map(lambda x: x[:1], params)
    standard_rows = np.zeros(len(budgets), int)
    attacked = judged(
      jax.tree.map(operator.itemgetter(standard_rows), standard), jnp.array(budgets)
    )
    for number, budget in enumerate(budgets):
      name = structure.name_of(norm, budget)
      structure.add(table, name, {key: x[number] for key, x in measures.items()})
      table.add("standard", f"accuracy under {name}", attacked[number])
    progress.update()


def add_digits(
  table: Table,
  config: Any,
  train: Points,
  test: Points,
  progress: tqdm.tqdm,
  folder: pathlib.Path,
) -> None:
  """Adds all measures on digits."""
  trained(table, config, train, test, progress, folder)
  claims.add_beside(table, config.beside)
  features.add_pixels(table, train, test)
  proposals.add_radii(table, config, progress, folder)
  proposals.add_losses(table, config, train, test, progress, folder)
  for study in config.studies:
    progress.set_postfix(study=study)
    STUDIES[study](table, config, train, test, folder)
    progress.update()


def measure(config: Config, output: pathlib.Path) -> tuple[Table, None]:
  total = 2 + len(config.dims) + len(config.proposals) + len(config.studies)
  if config.images == "cifar10_16":
    total = 2
  elif config.images != "digits":
    total = config.seeds * len(claims.names_of(config))
  table = Table()
  with tqdm.tqdm(total=total, unit="program") as progress:
    if config.images == "digits":
      train, test = images.load_digits(config.train_images, config.test_images)
      add_digits(table, config, train, test, progress, output / "kept")
    elif config.images == "cifar10_16":
      train, test = (
        images.points_of(class_sets.read("cifar10", part, size=16))
        for part in ("train", "test")
      )
      trained(table, config, train, test, progress, output / "kept")
    else:
      train, test = photographs.trained(table, config, output, progress)
  claims.add_inputs(table, "images", config.images, train, test)
  return table, None


STUDY = Study(
  "robust_features", __doc__, "DIST 5.3", PRESETS, measure, claims.claims, claims.draw
)

if __name__ == "__main__":
  STUDY.main()
