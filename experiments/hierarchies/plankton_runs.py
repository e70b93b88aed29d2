"""Trains one seed's embedding or softmax classifier of plankton; stores confusions."""

import dataclasses
import functools
import pathlib
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from experiments.frame import kept as finished
from experiments.frame import training as trainer
from experiments.frame.images import Parts
from experiments.hierarchies import methods, triplets
from experiments.hierarchies import training as class_training
from experiments.hierarchies.plankton_images import Config
from experiments.hierarchies.triplets import Report
from spherejax import data, losses, metrics, prototypes, training

EMBEDDING, BASELINE = "embedding", "softmax classifier"
UNTRAINED = "untrained network"
SEEN, UNSEEN = "seen", "unseen"
HALF, ALL_TEST = "half", "all test images"
CENTROID = "centroid"


def way(k: int) -> str:
  """The name of a classification by k neighbours."""
  return f"k = {k}"


def ways(neighbours: tuple[int, ...]) -> list[str]:
  """The names of all classifications in an embedding."""
  return [CENTROID, *map(way, neighbours)]


@functools.partial(jax.jit, static_argnames=("classes", "neighbours"))
def predictions(
  references, labels, queries, classes: int, neighbours: tuple[int, ...]
) -> dict[str, Array]:
  """Predicts the classes of the queries by each rule; k is at most all references."""
  means = prototypes.class_means(references, labels, classes, normalize="none")
  nearest = functools.partial(
    prototypes.nearest_neighbours, queries, references, labels, num_classes=classes
  )
  return {CENTROID: triplets.nearest_centroids(means, queries)} | {
    way(k): nearest(k=min(k, len(references)), ties="label") for k in neighbours
  }


def confusions(
  points: np.ndarray, images: data.Images, neighbours: tuple[int, ...], key: Array
) -> dict[str, np.ndarray]:
  """Confusion counts [classes, classes] per rule; half of the images are references."""
  labels, classes = images.labels, len(images.label_names)
  first, second = data.split_within_classes(labels, key=key)
  by_rule = predictions(
    points[first], labels[first], points[second], classes, neighbours
  )
  return {name: _counts(labels[second], x, classes) for name, x in by_rule.items()}


def _counts(labels: np.ndarray, predicted: np.ndarray, classes: int) -> np.ndarray:
  return np.asarray(metrics.confusion_counts(labels, predicted, num_classes=classes))


def softmax_objective(params, batch_stats, batch, *, key, axis_name, settings):
  del key
  logits, updated = methods.forward(
    settings, params, batch_stats, batch["image"], axis_name
  )
  values = losses.softmax(logits, batch["label"])
  return training.Outcome(training.global_mean(values, axis_name=axis_name), updated)


class RunResult(NamedTuple):
  """Stored outcome of a seed."""

  figures: dict[str, Any]
  """For the embedding "curves", "kept margin", "start" and "by k", for the softmax
  classifier "accuracies"."""
  counts: dict[str, np.ndarray]
  """Confusions [classes, classes] by network, group of classes and rule, such as
  "embedding, seen, k = 10"."""
  points: dict[str, np.ndarray]  # embedded test images of the groups "seen", "unseen"


def embedding(
  config: Config, study: Parts, key: Array, folder: pathlib.Path, report: Report
) -> RunResult:
  """Trains an embedding; classifies in it and in that of the untrained network."""
  train_key, seen_key, unseen_key, choice_key = jax.random.split(key, 4)
  first, last, curves, kept_margin = triplets.train_embedding(
    config, study, train_key, folder, report
  )
  tests = {SEEN: (study.test, seen_key), UNSEEN: (study.unseen, unseen_key)}
  counts, points = {}, {}
  for name, variables in ((UNTRAINED, first), (EMBEDDING, last)):
    for group, (images, half_key) in tests.items():
      points[group] = triplets.embed(variables, images, config)
      by_rule = confusions(points[group], images, config.neighbours, half_key)
      counts |= {f"{name}, {group}, {rule}": x for rule, x in by_rule.items()}
  accuracy = triplets.distribution(first, study.validation, config)[2]
  validation_points = triplets.embed(last, study.validation, config)
  by_k = confusions(validation_points, study.validation, config.curve, choice_key)
  figures = {
    "curves": curves,
    "kept margin": kept_margin,
    "start": {"accuracy": float(accuracy)},
    "by k": {
      str(k): float(by_k[way(k)].trace() / by_k[way(k)].sum()) for k in config.curve
    },
  }
  return RunResult(figures, counts, points)


def baseline(
  config: Config, study: Parts, key: Array, folder: pathlib.Path, report: Report
) -> RunResult:
  """Trains the same network as a softmax classifier, on batches of images.

  Its accuracy in validation is measured after each iteration's share of the steps. It
  is tested on all test images, and on the half that the embedding is tested on.
  """
  train_key, seen_key, _, _ = jax.random.split(key, 4)
  network_key, step_key, data_key = jax.random.split(train_key, 3)
  train, validation, test = study[:3]
  settings = dataclasses.replace(config, dim=len(train.label_names))
  batch, iterations = settings.baseline_batch, settings.iterations
  per_epoch = trainer.steps_per_epoch(train, batch, "baseline_batch")
  in_triplets = 3 * settings.triplets * iterations * settings.steps
  total = settings.baseline_epochs * per_epoch or in_triplets // batch
  per_part = max(total // iterations, 1)
  variables = methods.initial_variables(
    network_key, settings=settings, shapes=methods.shapes(train), fresh=False
  )
  optimizer = triplets.make_optimizer(
    settings, settings.baseline_rate, settings.baseline_decay, per_part
  )
  state = training.create_state(step_key, optimizer, variables)
  objective = functools.partial(softmax_objective, settings=settings)
  reported = 0

  def predicted(state: training.TrainState, images: data.Images) -> np.ndarray:
    return class_training.embed(state.variables(), images, settings).argmax(1)

  def evaluate(state: training.TrainState) -> dict[str, float]:
    nonlocal reported
    report(int(state.step) // per_part - reported)
    reported = int(state.step) // per_part
    right = predicted(state, validation) == validation.labels
    return {"accuracy": float(right.mean())}

  with training.Checkpoints(folder) as checkpoints:
    result = training.fit(
      state,
      training.make_step(objective, optimizer),
      data.batches(train, data_key, batch_size=batch),
      checkpoints=checkpoints,
      steps=per_part * iterations,
      evaluate=evaluate,
      evaluate_every=per_part,
      checkpoint_every=per_part,
      report_every=per_part,
      progress=False,
    )
  guesses, labels = predicted(result.state, test), np.asarray(test.labels)
  judged = data.split_within_classes(labels, key=seen_key)[1]
  counts = {
    f"{BASELINE}, {SEEN}, {name}": _counts(labels[rows], guesses[rows], settings.dim)
    for name, rows in ((ALL_TEST, slice(None)), (HALF, judged))
  }
  accuracies = [row["accuracy"] for row in result.evaluations]
  return RunResult({"accuracies": accuracies}, counts, {})


JOBS = {EMBEDDING: embedding, BASELINE: baseline}


def parts(kind: str, config: Config) -> int:
  """Iterations of a job, for the progress bar."""
  return triplets.length(config) if kind == EMBEDDING else config.iterations


def run(
  kind: str,
  seed: int,
  config: Config,
  study: Parts,
  output: pathlib.Path,
  report: Report,
) -> RunResult:
  """Runs one job, or reads its stored outcome."""
  # The number of runs, and what is drawn, change no outcome.
  settings = dataclasses.asdict(config) | {"seeds": 0, "drawn": 0}
  name = f"{kind.split()[0]}-{seed}"
  path = output / "kept" / name

  def make() -> finished.Finished:
    # Both jobs of a seed share a key, so that they are tested on the same half.
    key = jax.random.fold_in(jax.random.key(seed), 1)
    # The training does not depend on what is measured after it.
    made_with = finished.digest(settings | {"neighbours": (), "curve": ()})
    folder = output / "checkpoints" / f"{name}-{made_with}"
    outcome = JOBS[kind](config, study, key, folder, report)
    arrays = {f"counts: {name}": x for name, x in outcome.counts.items()}
    arrays |= {f"points: {name}": x for name, x in outcome.points.items()}
    return finished.Finished(outcome.figures, arrays)

  stored = finished.once(
    path, made_with=settings, make=make, restored=lambda: report(parts(kind, config))
  )
  return RunResult(stored.figures, stored.part("counts: "), stored.part("points: "))
