"""Trains one seed's embedding or softmax classifier of plankton and stores it."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from experiments.frame import images as class_sets
from experiments.frame import kept as finished
from experiments.frame import training as trainer
from experiments.frame.images import Parts
from experiments.hierarchies import methods, plankton_measures, triplets
from experiments.hierarchies import training as class_training
from experiments.hierarchies.plankton_measures import (
  ALL_TEST,
  BASELINE,
  EMBEDDING,
  SEEN,
  UNSEEN,
  UNTRAINED,
)
from experiments.hierarchies.triplets import Settings
from spherejax import data, losses, metrics, training

# Settings of the number of runs, or of what is drawn after them.
OTHERS = {"seeds": 0, "drawn": 0}
# Settings of measures, on which the training does not depend.
MEASURED = {"neighbours": (), "curve": ()}


def softmax_objective(params, batch_stats, batch, *, key, axis_name, settings):
  del key
  images, sizes = batch["image"], batch["size"]
  logits, moved = triplets.forward(
    settings, params, batch_stats, images, sizes, axis_name
  )
  values = losses.softmax(logits, batch["label"])
  return training.Outcome(training.global_mean(values, axis_name=axis_name), moved)


def train_baseline(
  settings: Settings,
  train: data.Images,
  validation: data.Images,
  key: Array,
  folder: pathlib.Path,
  report: triplets.Report,
) -> tuple[Callable[[data.Images], np.ndarray], list[float]]:
  """Trains the same network with one output per class, on batches of images.

  Returns a function from images to logits, and validation accuracies after each part.
  """
  network_key, step_key, data_key = jax.random.split(key, 3)
  head_settings = dataclasses.replace(settings, dim=len(train.label_names))
  batch, parts = settings.baseline_batch, settings.iterations
  per_epoch = trainer.steps_per_epoch(train, batch, "baseline_batch")
  images_seen = 3 * settings.triplets * parts * settings.steps
  total = settings.baseline_epochs * per_epoch or images_seen // batch
  every = max(total // parts, 1)
  variables = methods.initial_variables(
    network_key, settings=head_settings, shapes=methods.shapes(train), fresh=False
  )
  optimizer = triplets.make_optimizer(
    settings, settings.baseline_rate, settings.baseline_decay, every
  )
  state = training.create_state(step_key, optimizer, variables)

  known = 0

  def evaluate(state: training.TrainState) -> dict[str, float]:
    nonlocal known
    report(int(state.step) // every - known)
    known = int(state.step) // every
    logits = class_training.embed(state.variables(), validation, head_settings)
    return {"accuracy": float((logits.argmax(1) == validation.labels).mean())}

  done = trainer.single(
    lambda _: state,
    functools.partial(softmax_objective, settings=head_settings),
    optimizer,
    trainer.shuffled(
      train,
      data_key,
      batch=batch,
      epochs=-(-every * parts // per_epoch),
      per_epoch=per_epoch,
      columns={"size": class_sets.log_sizes(train)},
    ),
    folder,
    steps=every * parts,
    evaluate=evaluate,
    evaluate_every=every,
    checkpoint_every=every,
    report_every=every,
    progress=False,
  )
  logits = functools.partial(
    class_training.embed, done.state.variables(), settings=head_settings
  )
  return logits, [row["accuracy"] for row in done.evaluations]


class Found(NamedTuple):
  """Stored outcome of a seed.

  Attributes:
    figures: "curves", "kept margin", "start" and "by k" for the embedding, "accuracies"
      for the softmax classifier.
    counts: confusions [classes, classes] by network, group of classes and rule, such as
      "embedding, seen, k = 10".
    points: embedded test images of the groups "seen" and "unseen".
  """

  figures: dict[str, Any]
  counts: dict[str, np.ndarray]
  points: dict[str, np.ndarray]


def embedding(
  config: Any,
  study: Parts,
  key: jax.Array,
  folder: pathlib.Path,
  report: Callable[[int], object],
) -> Found:
  """Trains an embedding; classifies in it and in that of the untrained network."""
  train_key, seen_key, unseen_key, choice_key = jax.random.split(key, 4)
  trained = triplets.train_embedding(
    config, study.train, study.validation, train_key, folder, report
  )
  tests = {SEEN: (study.test, seen_key), UNSEEN: (study.unseen, unseen_key)}
  counts, points = {}, {}
  for name, variables in ((UNTRAINED, trained.start), (EMBEDDING, trained.variables)):
    for group, (images, half_key) in tests.items():
      points[group] = triplets.embed(variables, images, config)
      by_rule = plankton_measures.confusions(
        points[group], images, config.neighbours, half_key
      )
      counts |= {f"{name}, {group}, {way}": x for way, x in by_rule.items()}
  start = triplets.look(trained.start, study.validation, config)
  held = triplets.embed(trained.variables, study.validation, config)
  figures = {
    "curves": trained.curves,
    "kept margin": trained.kept_margin,
    "start": {"accuracy": float(start.accuracy), "radius": float(start.radii.mean())},
    "by k": plankton_measures.accuracies_by_k(
      held, study.validation, config.curve, choice_key
    ),
  }
  return Found(figures, counts, points)


def baseline(
  config: Any,
  study: Parts,
  key: jax.Array,
  folder: pathlib.Path,
  report: Callable[[int], object],
) -> Found:
  """Trains a softmax classifier; tests it on the same half as the embedding."""
  train_key, seen_key, _, _ = jax.random.split(key, 4)
  logits_of, accuracies = train_baseline(
    config, study.train, study.validation, train_key, folder, report
  )
  images = study.test
  judged = plankton_measures.halves(images.labels, seen_key)[1]
  guesses, labels = logits_of(images).argmax(1), np.asarray(images.labels)
  counts = {}
  for name, rows in ((ALL_TEST, slice(None)), ("half", judged)):
    counts[f"{BASELINE}, {SEEN}, {name}"] = np.asarray(
      metrics.confusion_counts(
        labels[rows], guesses[rows], num_classes=len(images.label_names)
      )
    )
  return Found({"accuracies": accuracies}, counts, {})


JOBS = {EMBEDDING: embedding, BASELINE: baseline}


def parts(kind: str, config: Any) -> int:
  """Iterations of a job, for the progress bar."""
  return triplets.length(config) if kind == EMBEDDING else config.iterations


def run(
  kind: str,
  seed: int,
  config: Any,
  study: Parts,
  output: pathlib.Path,
  report: Callable[[int], object],
) -> Found:
  """Runs one job, or reads its stored outcome."""
  settings = dataclasses.asdict(config) | OTHERS
  name = f"{kind.split()[0]}-{seed}"
  path = output / "kept" / name

  def make() -> finished.Finished:
    # Both jobs of a seed share a key, so that they are tested on the same half.
    key = jax.random.fold_in(jax.random.key(seed), 1)
    made_with = finished.digest(settings | MEASURED)
    folder = output / "checkpoints" / f"{name}-{made_with}"
    outcome = JOBS[kind](config, study, key, folder, report)
    arrays = {f"counts: {name}": x for name, x in outcome.counts.items()}
    arrays |= {f"points: {name}": x for name, x in outcome.points.items()}
    return finished.Finished(outcome.figures, arrays)

  stored = finished.once(
    path, made_with=settings, make=make, restored=lambda: report(parts(kind, config))
  )
  return Found(stored.figures, stored.part("counts: "), stored.part("points: "))
