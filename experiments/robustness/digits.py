"""Digits: trainings of all budgets, and what is measured on them alone."""

import operator
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tqdm

from experiments.frame.digits import CLASSES, Points
from experiments.frame.study import Table
from experiments.robustness import (
  defences,
  inputs,
  networks,
  proposals,
  published,
  residuals,
  reweighting,
  structure,
)

STUDIES = {
  "defences": defences.add_side_by_side,
  "noise": defences.add_noisy,
  "combined": defences.add_combined,
  "rotation": residuals.add,
  "reweighting": reweighting.add_features,
}


def trained(
  table: Table,
  config: Any,
  train: Points,
  test: Points,
  progress: tqdm.tqdm,
  folder: pathlib.Path,
) -> None:
  """Adds networks of all budgets, and what their features look like."""
  standard = None
  norms: list[tuple[networks.Norm, tuple[float, ...]]] = [
    ("l2", (0.0, *config.l2)),
    ("linf", config.linf),
  ]
  for norm, budgets in [each for each in norms if each[1]]:
    progress.set_postfix(norm=norm)
    defence = networks.Defence(networks.adversarial(config), norm)
    result = networks.train(
      config,
      defence,
      {"epsilon": budgets},
      train,
      test,
      classes=CLASSES,
      folder=folder / norm,
    )
    params = result.state.params
    found = structure.of_models(config, defence, params, train, classes=CLASSES)
    found["accuracy"] = result.scores[..., -1]
    judged = networks.judge(config, defence, test, classes=CLASSES)
    found["accuracy under attack"] = judged(params, jnp.array(budgets))
    if standard is None:
      standard = jax.tree.map(lambda x: x[:1], params)
    same = np.zeros(len(budgets), int)
    attacked = judged(
      jax.tree.map(operator.itemgetter(same), standard), jnp.array(budgets)
    )
    for number, budget in enumerate(budgets):
      name = published.network(norm, budget)
      structure.add(table, name, {key: x[number] for key, x in found.items()})
      table.add("standard", f"accuracy under {name}", attacked[number])
    progress.update()


def add(
  table: Table,
  config: Any,
  train: Points,
  test: Points,
  progress: tqdm.tqdm,
  folder: pathlib.Path,
) -> None:
  """Adds all that is measured on digits."""
  trained(table, config, train, test, progress, folder)
  inputs.add_beside(table, config.beside)
  reweighting.add_pixels(table, train, test)
  proposals.add_radii(table, config, progress, folder)
  proposals.add_losses(table, config, train, test, progress, folder)
  for study in config.studies:
    progress.set_postfix(study=study)
    STUDIES[study](table, config, train, test, folder)
    progress.update()
