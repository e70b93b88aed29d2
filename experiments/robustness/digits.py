"""Digits: trainings of all budgets, and what is measured on them alone."""

import functools
import operator
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tqdm

from experiments.robustness import (
  claims,
  defences,
  inputs,
  networks,
  proposals,
  residuals,
  reweighting,
  structure,
  tables,
)
from experiments.robustness.tables import CLASSES

STUDIES = {
  "defences": defences.side_by_side,
  "noise": defences.noisy,
  "combined": defences.combined,
  "rotation": residuals.within_classes,
  "reweighting": reweighting.of_features,
}


def trained(
  config, train, test, progress: tqdm.tqdm, folder: pathlib.Path
) -> claims.Figures:
  """Networks of all budgets, and what their features look like."""
  figures: claims.Figures = {}
  standard = None
  norms = [("l2", (0.0, *config.l2)), ("linf", config.linf)]
  for norm, budgets in [each for each in norms if each[1]]:
    progress.set_postfix(norm=norm)
    defence = networks.Defence(networks.adversarial(config), norm)
    result = networks.train(
      config,
      defence,
      {"epsilon": budgets},
      functools.partial(_same, train),
      test,
      classes=CLASSES,
      folder=folder / norm,
    )
    params = result.state.params
    found = structure.of_models(config, defence, params, train, classes=CLASSES)
    found["accuracy"] = result.scores[..., -1]
    judged = networks.judge(config, defence, test, classes=CLASSES)
    found["accuracy under attack"] = judged(params, jnp.array(budgets))
    names = [tables.network(norm, x) for x in budgets]
    for number, name in enumerate(names):
      figures[name] = {key: values[number] for key, values in found.items()}
    if standard is None:
      standard = jax.tree.map(lambda x: x[:1], params)
    same = np.zeros(len(budgets), int)
    attacked = judged(
      jax.tree.map(operator.itemgetter(same), standard), jnp.array(budgets)
    )
    for name, values in zip(names, attacked, strict=True):
      figures["standard"][f"accuracy under {name}"] = values
    progress.update()
  return figures


def _same(points: networks.Points, key, hyper) -> networks.Points:
  del key, hyper
  return points


def of_digits(
  config, train, test, progress: tqdm.tqdm, folder: pathlib.Path
) -> list[tuple[list[Any], list[Any]]]:
  """What is measured on digits alone."""
  parts = [
    *inputs.beside(config.beside),
    reweighting.of_pixels(train, test, CLASSES),
    proposals.known_discriminality(config, progress, folder),
    proposals.near_proxies(config, train, test, CLASSES, progress, folder),
  ]
  for study in config.studies:
    progress.set_postfix(study=study)
    parts.append(STUDIES[study](config, train, test, CLASSES, folder))
    progress.update()
  return parts
