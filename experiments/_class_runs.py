"""What the trainings of one seed share, and what is kept of each of them."""

import dataclasses
import pathlib
from typing import Any, NamedTuple

import jax
import tqdm

from experiments import (
  _class_measures,
  _class_network,
  _class_sets,
  _class_settings,
  _class_training,
  _finished,
)
from spherejax import prototypes


class Ground(NamedTuple):
  """What all trainings of one seed share."""

  study: _class_sets.Study
  related: _class_measures.Relations
  fixed: jax.Array
  """Proxies after the tree."""
  key: jax.Array


def ground(config: Any, whole: _class_sets.Whole, seed: int) -> Ground:
  """Divides the images and lays out the proxies."""
  key = jax.random.key(seed)
  study = _class_sets.divide(
    whole, jax.random.fold_in(key, 0), config.train_images, config.validation_images
  )
  if config.test_images:
    study = study._replace(test=study.test[: config.test_images])
  related = _class_measures.relations(study.tree, study.living)
  fixed = prototypes.hierarchical_prototypes(
    related.similarities,
    config.dim,
    key=jax.random.fold_in(key, 1),
    steps=config.mds_steps,
  )
  return Ground(study, related, fixed.prototypes, key)


class Finished(NamedTuple):
  """What is kept of a training."""

  outcome: _class_measures.Outcome
  curves: dict[str, list[float]]


def train(
  name: str,
  shared: Ground,
  config: Any,
  path: pathlib.Path,
  progress: tqdm.tqdm,
) -> Finished:
  """One training and its measures, or what was kept of it."""
  # What changes this training; the rest says which others there are.
  others = {"settings": (), "seeds": 0, "trees": ()}
  settings = dataclasses.asdict(config) | others
  kept = _finished.restore(path, settings)
  if kept is not None:
    progress.update(config.epochs)
    outcome = _class_measures.Outcome(kept.figures["test"], **kept.arrays)
    return Finished(outcome, kept.figures["curves"])
  setting = _class_settings.SETTINGS[name]
  study = shared.study

  def report(figures: dict[str, float]) -> None:
    progress.set_postfix(last=f"{name}: {figures['validation top-1']:.3f}")
    progress.update()

  trained = _class_training.train(
    config,
    setting,
    study,
    shared.related.distances,
    _class_settings.initial_state(
      jax.random.fold_in(shared.key, 2),
      shared.fixed,
      settings=config,
      setting=setting,
      shapes=_class_network.shapes(study.train),
    ),
    augment=config.augment and _class_sets.SOURCES[config.data].augmented,
    key=jax.random.fold_in(shared.key, 3),
    checkpoints=path.with_name(f"{path.name}-{_finished.digest(settings)}"),
    report=report,
  )
  outcome = _class_measures.test(config, setting, study, shared.related, trained.state)
  figures = {"test": outcome.figures, "curves": trained.curves}
  arrays = {"proxies": outcome.proxies, "prototypes": outcome.prototypes}
  _finished.keep(path, settings, _finished.Finished(figures, arrays))
  return Finished(outcome, trained.curves)


def chance(config: Any, shared: Ground) -> dict[str, dict[str, float]]:
  """Mean correlations of what was never trained."""
  variables = _class_network.initial_variables(
    jax.random.fold_in(shared.key, 2),
    settings=config,
    shapes=_class_network.shapes(shared.study.train),
  )
  return _class_measures.controls(
    jax.random.fold_in(shared.key, 4), config, shared.study, shared.related, variables
  )
