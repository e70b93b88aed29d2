"""What the trainings of one seed share, and what is kept of each of them."""

import dataclasses
import pathlib
from typing import Any, NamedTuple

import jax
import tqdm

from experiments.frame import class_network, images
from experiments.frame import kept as finished
from experiments.hierarchies import measures, methods, training
from spherejax import prototypes


class Ground(NamedTuple):
  """What all trainings of one seed share."""

  study: images.Study
  related: measures.Relations
  fixed: jax.Array
  """Proxies after the tree."""
  key: jax.Array


def ground(config: Any, whole: images.Whole, seed: int) -> Ground:
  """Divides the images and lays out the proxies."""
  key = jax.random.key(seed)
  study = images.divide(
    whole, jax.random.fold_in(key, 0), config.train_images, config.validation_images
  )
  if config.test_images:
    study = study._replace(test=study.test[: config.test_images])
  related = measures.relations(study.tree, study.living)
  fixed = prototypes.hierarchical_prototypes(
    related.similarities,
    config.dim,
    key=jax.random.fold_in(key, 1),
    steps=config.mds_steps,
  )
  return Ground(study, related, fixed.prototypes, key)


class Finished(NamedTuple):
  """What is kept of a training."""

  outcome: measures.Outcome
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
  kept = finished.restore(path, settings)
  if kept is not None:
    progress.update(config.epochs)
    outcome = measures.Outcome(kept.figures["test"], **kept.arrays)
    return Finished(outcome, kept.figures["curves"])
  setting = methods.SETTINGS[name]
  study = shared.study

  def report(figures: dict[str, float]) -> None:
    progress.set_postfix(last=f"{name}: {figures['validation top-1']:.3f}")
    progress.update()

  trained = training.train(
    config,
    setting,
    study,
    shared.related.distances,
    methods.initial_state(
      jax.random.fold_in(shared.key, 2),
      shared.fixed,
      settings=config,
      setting=setting,
      shapes=class_network.shapes(study.train),
    ),
    augment=config.augment and images.SOURCES[config.data].augmented,
    key=jax.random.fold_in(shared.key, 3),
    checkpoints=path.with_name(f"{path.name}-{finished.digest(settings)}"),
    report=report,
  )
  outcome = measures.test(config, setting, study, shared.related, trained.state)
  figures = {"test": outcome.figures, "curves": trained.curves}
  arrays = {"proxies": outcome.proxies, "prototypes": outcome.prototypes}
  finished.keep(path, settings, finished.Finished(figures, arrays))
  return Finished(outcome, trained.curves)


def chance(config: Any, shared: Ground) -> dict[str, dict[str, float]]:
  """Mean correlations of what was never trained."""
  variables = class_network.initial_variables(
    jax.random.fold_in(shared.key, 2),
    settings=config,
    shapes=class_network.shapes(shared.study.train),
  )
  return measures.controls(
    jax.random.fold_in(shared.key, 4), config, shared.study, shared.related, variables
  )
