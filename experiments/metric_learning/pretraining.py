"""What stands for ImageNet's weights: a network that classified other characters."""

import dataclasses
import pathlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments.frame import command, kept, networks
from experiments.metric_learning import images as retrieval_sets
from experiments.metric_learning.settings import Settings
from spherejax import data, training

_BATCH = 64
_RATE = 1e-3  # of Adam, whatever is trained afterwards
_HELD = 2  # images of each character that are not trained on
_EVALUATE_EVERY = 50  # steps


class _State(NamedTuple):
  params: Any
  stats: Any
  opt_state: Any
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
    self.network = networks.Network(settings)
    self.optimizer = optax.adam(_RATE)

  def init(self, key: Array, hyper: Any) -> _State:
    del hyper
    network_key, classifier_key = jax.random.split(key)
    variables = networks.initial_variables(network_key, self.settings)
    draw = jax.nn.initializers.glorot_uniform()
    classifier = draw(classifier_key, (self.settings.dim, self.classes))
    params = {"network": variables["params"], "classifier": classifier}
    stats = variables.get("batch_stats", {})
    return _State(params, stats, self.optimizer.init(params), jnp.float32(0))

  def one_step(self, given: _Given, state: _State, key: Array) -> _State:
    batch_key, shift_key = jax.random.split(key)
    rows = jax.random.randint(batch_key, (_BATCH,), 0, len(given.labels))
    images = data.random_crop(
      shift_key, given.images[rows], padding=self.settings.shift
    )

    def objective(params: Any) -> tuple[Array, Any]:
      variables = {"params": params["network"], "batch_stats": state.stats}
      found, moved = self.network.apply(
        variables, images, train=True, mutable=["batch_stats"]
      )
      logits = found.embeddings @ params["classifier"]
      entropy = optax.softmax_cross_entropy_with_integer_labels(
        logits, given.labels[rows]
      )
      return jnp.mean(entropy), moved["batch_stats"]

    grads, stats = jax.grad(objective, has_aux=True)(state.params)
    updates, opt_state = self.optimizer.update(grads, state.opt_state)
    params = optax.apply_updates(state.params, updates)
    return _State(params, stats, opt_state, state.accuracy)

  def period(self, given: _Given, state: _State, key: Array, hyper: Any):
    del hyper
    keys = jax.random.split(key, _EVALUATE_EVERY)
    state, _ = jax.lax.scan(
      lambda s, k: (self.one_step(given, s, k), None), state, keys
    )
    points = self.model(state).embed_blocks(given.held)
    right = jnp.argmax(points @ state.params["classifier"], axis=1) == given.held_labels
    return state._replace(accuracy=jnp.mean(right.astype(jnp.float32))), {}

  def model(self, state: _State) -> networks.Model:
    """The network of a state."""
    variables = {"params": state.params["network"], "batch_stats": state.stats}
    return networks.Model(self.settings.architecture, variables)


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
  if kept.restore(path, {}) is None:
    images, labels = retrieval_sets.other_characters(settings.image_size)
    place = np.arange(len(labels)) - np.searchsorted(labels, labels)
    held = place < _HELD
    parts = images[~held], labels[~held], images[held], labels[held]
    given = _Given(*map(jnp.asarray, parts))
    run = _Training(begins, int(labels.max()) + 1)
    result = training.sweep(
      jax.random.key(settings.seed),
      run.init,
      jax.tree_util.Partial(run.period, given),
      _accuracy,
      {"all": (0.0,)},
      seeds=1,
      steps=steps // _EVALUATE_EVERY,
      evaluate_every=1,
      devices=jax.local_devices()[:1],
      progress=False,
    )
    state = jax.tree.map(lambda x: x[0, 0], result.best_state)
    model = run.model(state)
    seen = dataclasses.replace(model.architecture, inverted=True)
    networks.keep(path, model._replace(architecture=seen), steps)
    accuracy = float(result.best_score[0, 0])
    kept.keep(path, {}, kept.Finished({"accuracy": accuracy}, {}))
  return dataclasses.replace(settings, weights=str(path))
