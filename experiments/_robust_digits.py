"""Digits: trainings of all budgets, and what is measured on them alone."""

import functools
import operator
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tqdm

from experiments import (
  _robust_defences,
  _robust_inputs,
  _robust_networks,
  _robust_proposals,
  _robust_report,
  _robust_residuals,
  _robust_reweighting,
  _robust_structure,
  _robust_tables,
)
from experiments._robust_tables import CLASSES

STUDIES = {
  "defences": _robust_defences.side_by_side,
  "noise": _robust_defences.noisy,
  "combined": _robust_defences.combined,
  "rotation": _robust_residuals.within_classes,
  "reweighting": _robust_reweighting.of_features,
}


def trained(
  config, train, test, progress: tqdm.tqdm, folder: pathlib.Path
) -> _robust_report.Figures:
  """Networks of all budgets, and what their features look like."""
  figures: _robust_report.Figures = {}
  standard = None
  norms = [("l2", (0.0, *config.l2)), ("linf", config.linf)]
  for norm, budgets in [each for each in norms if each[1]]:
    progress.set_postfix(norm=norm)
    defence = _robust_networks.Defence(_robust_networks.adversarial(config), norm)
    result = _robust_networks.train(
      config,
      defence,
      {"epsilon": budgets},
      functools.partial(_same, train),
      test,
      classes=CLASSES,
      folder=folder / norm,
    )
    params = result.state.params
    found = _robust_structure.of_models(config, defence, params, train, classes=CLASSES)
    found["accuracy"] = result.scores[..., -1]
    judged = _robust_networks.judge(config, defence, test, classes=CLASSES)
    found["accuracy under attack"] = judged(params, jnp.array(budgets))
    names = [_robust_tables.network(norm, x) for x in budgets]
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


def _same(points: _robust_networks.Points, key, hyper) -> _robust_networks.Points:
  del key, hyper
  return points


def of_digits(
  config, train, test, progress: tqdm.tqdm, folder: pathlib.Path
) -> list[tuple[list[Any], list[Any]]]:
  """What is measured on digits alone."""
  parts = [
    *_robust_inputs.beside(config.beside),
    _robust_reweighting.of_pixels(train, test, CLASSES),
    _robust_proposals.known_discriminality(config, progress, folder),
    _robust_proposals.near_proxies(config, train, test, CLASSES, progress, folder),
  ]
  for study in config.studies:
    progress.set_postfix(study=study)
    parts.append(STUDIES[study](config, train, test, CLASSES, folder))
    progress.update()
  return parts
