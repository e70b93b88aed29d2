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
_KNOWN = {"data": ("images",), "backbone": ("conv", *networks.DIGITS)}


class _State(NamedTuple):
  train: training.TrainState
  accuracy: Array  # of the images that are not trained on


def check(settings: Any) -> None:
  """Raises ValueError for a network or images that characters are no beginning for."""
  steps = settings.pretraining
  every = ("pretraining", "the steps between two evaluations")
  command.check_parts(steps, _EVALUATE_EVERY, every)
  for name, values in _KNOWN.items():
    if steps and (value := getattr(settings, name)) not in values:
      raise ValueError(
        f"pretraining must be 0 unless {name} is {' or '.join(values)}, got {steps} for"
        f" {value}"
      )


def train(settings: Settings, steps: int, folder: pathlib.Path) -> Settings:
  """The settings with the folder of a pretrained network, which is made if missing."""
  begins = dataclasses.replace(settings, frozen_norm=False)
  made_with = begins.architecture, settings.seed, _RATE, settings.shift, steps
  path = folder / f"pretrained-{kept.digest(made_with)}"

  def make() -> kept.Finished:
    images, labels = retrieval_sets.other_characters(settings.image_size)
    held = np.arange(len(labels)) - np.searchsorted(labels, labels) < _HELD
    parts = images[~held], labels[~held], images[held], labels[held]
    state = _trained(begins, tuple(map(jnp.asarray, parts)), steps)
    architecture = dataclasses.replace(begins.architecture, inverted=True)
    model = networks.Model(architecture, state.train.variables())
    networks.keep(path, model, steps)
    return kept.Finished({"accuracy": float(state.accuracy)}, {})

  kept.once(path, made_with={}, make=make)
  return dataclasses.replace(settings, weights=str(path))


def _trained(settings: Settings, parts: tuple[Array, ...], steps: int) -> _State:
  """The best state; `parts` are images and labels that are trained on, and others."""
  optimizer, architecture = optax.adam(_RATE), settings.architecture

  def init(key: Array, hyper: Any) -> _State:
    del hyper
    network_key, classifier_key = jax.random.split(key)
    network = networks.initial_variables(network_key, settings)
    draw = jax.nn.initializers.glorot_uniform()
    classifier = draw(classifier_key, (settings.dim, classes))
    loss = {"params": {"classifier": classifier}}
    state = training.create_state(key, optimizer, network, loss)
    return _State(state, jnp.float32(0))

  def entropy(params: Any, stats: Any, batch: Any, *, key: Any, axis_name: Any):
    del key, axis_name  # a small network, on one device
    variables = objective.variables(params["network"], stats["network"])
    outputs, moved = objective.forward(
      architecture, variables, batch["image"], train=True
    )
    logits = outputs.embeddings @ params["loss"]["classifier"]
    values = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
    return training.Outcome(jnp.mean(values), {"network": moved})

  def period(parts: tuple[Array, ...], state: _State, key: Array, hyper: Any):
    del hyper
    images, labels, held, held_labels = parts

    def batch(_: Any, key: Array) -> dict[str, Array]:
      batch_key, shift_key = jax.random.split(key)
      rows = jax.random.randint(batch_key, (_BATCH,), 0, len(labels))
      moved = data.random_crop(shift_key, images[rows], padding=settings.shift)
      return {"image": moved, "label": labels[rows]}

    step = training.make_step(entropy, optimizer)
    train, _ = frame_training.several(step, batch, _EVALUATE_EVERY)(state.train, key)
    points = networks.Model(architecture, train.variables()).embed_blocks(held)
    logits = points @ train.params["loss"]["classifier"]
    right = jnp.argmax(logits, axis=1) == held_labels
    return _State(train, jnp.mean(right.astype(jnp.float32))), {}

  classes = int(parts[1].max()) + 1
  result = training.sweep(
    jax.random.key(settings.seed), init, jax.tree_util.Partial(period, parts),
    lambda state, key, hyper: state.accuracy, {"all": (0.0,)}, seeds=1,
    steps=steps // _EVALUATE_EVERY, evaluate_every=1, devices=jax.local_devices()[:1],
    progress=False,
  )  # fmt: skip
  return jax.tree.map(lambda x: x[0, 0], result.best_state)
