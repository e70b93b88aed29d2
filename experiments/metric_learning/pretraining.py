"""Replaces ImageNet weights: trains a network on other characters."""

import dataclasses
import pathlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments.frame import command, kept, networks
from experiments.frame import training as frame_training
from experiments.metric_learning import images as retrieval_sets
from experiments.metric_learning import objective
from experiments.metric_learning.settings import Settings
from spherejax import data, training

_BATCH = 64
_RATE = 1e-3  # of Adam, whatever is trained afterwards
_HELD = 2  # images of each character that are not trained on
_EVALUATE_EVERY = 50  # steps


class _State(NamedTuple):
  train: training.TrainState
  accuracy: Array  # of the images that are not trained on


class _Given(NamedTuple):
  images: Array
  labels: Array
  held: Array
  held_labels: Array


class _Training:
  """The pure functions of the classification."""

  def __init__(self, settings: Settings, classes: int):
    self.settings, self.classes = settings, classes
    self.optimizer = optax.adam(_RATE)

  def init(self, key: Array, hyper: Any) -> _State:
    del hyper
    network_key, classifier_key = jax.random.split(key)
    network = networks.initial_variables(network_key, self.settings)
    draw = jax.nn.initializers.glorot_uniform()
    classifier = draw(classifier_key, (self.settings.dim, self.classes))
    loss = {"params": {"classifier": classifier}}
    state = training.create_state(key, self.optimizer, network, loss)
    return _State(state, jnp.float32(0))

  def batch(self, arrays: _Given, key: Array) -> dict[str, Array]:
    batch_key, shift_key = jax.random.split(key)
    rows = jax.random.randint(batch_key, (_BATCH,), 0, len(arrays.labels))
    shift = self.settings.shift
    images = data.random_crop(shift_key, arrays.images[rows], padding=shift)
    return {"image": images, "label": arrays.labels[rows]}

  def objective(self, params: Any, stats: Any, batch: Any, *, key: Any, axis_name: Any):
    del key, axis_name  # a small network, on one device
    variables = objective.variables(params["network"], stats["network"])
    outputs, moved = objective.forward(
      self.settings.architecture, variables, batch["image"], bfloat16=False, train=True
    )
    logits = outputs.embeddings @ params["loss"]["classifier"]
    entropy = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
    return training.Outcome(jnp.mean(entropy), {"network": moved})

  def period(self, arrays: _Given, state: _State, key: Array, hyper: Any):
    del hyper
    step = training.make_step(self.objective, self.optimizer)
    several = frame_training.several(
      step, lambda _, key: self.batch(arrays, key), _EVALUATE_EVERY
    )
    train, _ = several(state.train, key)
    points = self.model(train).embed_blocks(arrays.held)
    logits = points @ train.params["loss"]["classifier"]
    right = jnp.argmax(logits, axis=1) == arrays.held_labels
    return _State(train, jnp.mean(right.astype(jnp.float32))), {}

  def model(self, state: training.TrainState) -> networks.Model:
    return networks.Model(self.settings.architecture, state.variables())


def _accuracy(state: _State, key: Array, hyper: Any) -> Array:
  del key, hyper
  return state.accuracy


def check(settings: Settings, steps: int, images: str) -> None:
  """Raises ValueError for a network or images that characters are no beginning for."""
  every = ("pretraining", "the steps between two evaluations")
  command.check_parts(steps, _EVALUATE_EVERY, every)
  if steps and images != "images":
    raise ValueError(
      f"pretraining must be 0 for {images}: it is of characters, got {steps}"
    )
  known = ("conv", *networks.DIGITS)
  if steps and settings.backbone not in known:
    raise ValueError(
      f"pretraining must be 0 but for {', '.join(known)}, got {steps} for"
      f" {settings.backbone}"
    )


def train(settings: Settings, steps: int, folder: pathlib.Path) -> Settings:
  """The settings with the folder of a pretrained network, which is made if missing."""
  begins = dataclasses.replace(settings, frozen_norm=False)
  made_with = begins.architecture, settings.seed, _RATE, settings.shift, steps
  path = folder / f"pretrained-{kept.digest(made_with)}"

  def make() -> kept.Finished:
    images, labels = retrieval_sets.other_characters(settings.image_size)
    place = np.arange(len(labels)) - np.searchsorted(labels, labels)
    held = place < _HELD
    parts = images[~held], labels[~held], images[held], labels[held]
    arrays = _Given(*map(jnp.asarray, parts))
    run = _Training(begins, int(labels.max()) + 1)
    result = training.sweep(
      jax.random.key(settings.seed),
      run.init,
      jax.tree_util.Partial(run.period, arrays),
      _accuracy,
      {"all": (0.0,)},
      seeds=1,
      steps=steps // _EVALUATE_EVERY,
      evaluate_every=1,
      devices=jax.local_devices()[:1],
      progress=False,
    )
    model = run.model(jax.tree.map(lambda x: x[0, 0], result.best_state.train))
    architecture = dataclasses.replace(model.architecture, inverted=True)
    networks.keep(path, model._replace(architecture=architecture), steps)
    accuracy = float(result.best_score[0, 0])
    return kept.Finished({"accuracy": accuracy}, {})

  kept.once(path, made_with={}, make=make)
  return dataclasses.replace(settings, weights=str(path))
