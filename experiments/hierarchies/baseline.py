"""The softmax classifier beside the triplets of plankton."""

import dataclasses
import functools
import pathlib
from typing import Any, NamedTuple

import jax
from jax import Array

from experiments.frame import class_network
from experiments.frame import images as class_sets
from experiments.frame import training as epochs
from experiments.hierarchies import training as class_training
from experiments.hierarchies import triplet_settings, triplets
from experiments.hierarchies.triplet_settings import Settings
from spherejax import data, losses, training


def softmax_objective(params, batch_stats, batch, *, key, axis_name, settings):
  """Cross-entropy of a batch."""
  del key
  images, sizes = batch["image"], batch["size"]
  logits, moved = triplets.forward(
    settings, params, batch_stats, images, sizes, axis_name
  )
  each = losses.softmax(logits, batch["label"])
  return training.Outcome(training.global_mean(each, axis_name=axis_name), moved)


class Classified(NamedTuple):
  """A trained softmax classifier, whose outputs are logits."""

  settings: Settings
  variables: Any
  accuracies: list[float]
  """On validation images, after each part of the training."""


def train_baseline(
  settings: Settings,
  train: data.Images,
  validation: data.Images,
  key: Array,
  folder: pathlib.Path,
  report: triplets.Report,
) -> Classified:
  """The same network with an output for each class, on batches of images."""
  network_key, step_key, data_key = jax.random.split(key, 3)
  own = dataclasses.replace(settings, dim=len(train.label_names))
  batch, parts = settings.baseline_batch, settings.iterations
  per_epoch = triplet_settings.epoch_length(settings, len(train))
  seen = 3 * settings.triplets * parts * settings.steps
  total = settings.baseline_epochs * per_epoch or seen // batch
  every = max(total // parts, 1)
  variables = class_network.initial_variables(
    network_key, settings=own, shapes=class_network.shapes(train), fresh=False
  )
  optimizer = triplets.make_optimizer(
    settings, settings.baseline_rate, settings.baseline_decay, every
  )
  state = training.create_state(step_key, optimizer, variables)

  def evaluate(state: training.TrainState) -> dict[str, float]:
    logits = class_training.embed(state.variables(), validation, own)
    report(1)
    return {"accuracy": float((logits.argmax(1) == validation.labels).mean())}

  with training.Checkpoints(folder) as kept:
    restored = kept.restore(state)
    if restored is not None:
      report(int(restored.state.step) // every)
    done = training.fit(
      state,
      training.make_step(functools.partial(softmax_objective, settings=own), optimizer),
      epochs.shuffled(
        train,
        data_key,
        batch=batch,
        epochs=-(-every * parts // per_epoch),
        per_epoch=per_epoch,
        beside={"size": class_sets.log_sizes(train)},
      ),
      steps=every * parts,
      evaluate=evaluate,
      evaluate_every=every,
      checkpoints=kept,
      checkpoint_every=every,
      report_every=every,
      progress=False,
    )
  accuracies = [row["accuracy"] for row in done.evaluations]
  return Classified(own, done.state.variables(), accuracies)
