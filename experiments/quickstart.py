"""Digit collages: does generalized sum pooling find the digit that matters?

A collage is one labelled digit among three digits that say nothing about the label.
Trained with a contrastive loss, an embedding by global average pooling (GAP) has to
carry the three along; generalized sum pooling (GSP) can leave them out, and
zero-shot prediction (ZSP) asks that its attributes tell unseen classes apart. In
the setting of DML 5.3.2, on images that scikit-learn ships.

    python -m experiments.quickstart                  # preset cpu: a minute on 2 cores
    python -m experiments.quickstart --preset smoke   # seconds
"""

import dataclasses
import pathlib
import time
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import tqdm
from jax import Array

from experiments import _cli, _report
from spherejax import data, losses, metrics, models, plotting, prototypes, training

SEEN, UNSEEN, SHARED = tuple(range(6)), (6, 7), (8, 9)


@dataclasses.dataclass(frozen=True)
class Config:
  """Settings of the quickstart."""

  seed: int = 0
  """Everything random follows from it."""
  seeds: int = 3
  """Runs of each variant."""
  steps: int = 400
  """Training steps."""
  parts: int = 4
  """Parts of the training: after the first one, which pools by averages, the
  prototypes are chosen; after each the validation curve gets a point."""
  collages: tuple[int, int, int] = (3000, 300, 600)
  """Collages to train on, to validate with and to test with."""
  per_class: int = 8
  """Collages of each of the six classes in a batch."""
  dim: int = 32
  """Dimension of the embedding."""
  prototypes: int = 16
  """Prototypes of the pooling."""
  mass: float = 0.3
  """Share of a collage's features that GSP keeps (DML eq. 5.2.1)."""
  inverse_temperature: float = 10.0
  """Sharpness of the pooling (DML eq. 5.2.1)."""
  margin: float = 0.5
  """Distance beyond which different digits are left alone (C2)."""
  zero_shot_weight: float = 0.1
  """Weight of the zero-shot prediction loss (DML eq. 5.2.5)."""
  learning_rate: float = 2e-3
  """Learning rate of Adam."""


PRESETS = {
  "cpu": Config(),
  "smoke": Config(seeds=2, steps=24, collages=(300, 60, 120)),
}


class Variant(NamedTuple):
  """What tells one variant from another: two numbers, so one program runs them all."""

  mass: float
  zero_shot_weight: float


class Network(nn.Module):
  """Convolutions, 1x1 convolution, pooling, normalisation."""

  config: Config
  normalization: str = "l2"

  @nn.compact
  def __call__(self, images: Array, mass: Array | float) -> models.HeadResult:
    pool = models.GSP(
      self.config.prototypes,
      mass=mass,
      inverse_temperature=self.config.inverse_temperature,
    )
    features = models.ConvNet(convolution="patches")(data.to_float(images) - 0.5)
    return models.EmbeddingHead(self.config.dim, pool, self.normalization)(features)


def make_collages(config: Config, key: Array) -> dict[str, data.Collages]:
  """Collages of disjoint images; in the file's order, so that writers differ too."""
  digits = data.load_digits()
  rows = np.split(np.arange(len(digits)), [len(digits) * 3 // 5, len(digits) * 7 // 10])
  parts = {"train": (SEEN, 0), "validation": (SEEN, 1), "seen": (SEEN, 2)}
  collages = {}
  for name, (classes, part) in (parts | {"unseen": (UNSEEN, 2)}).items():
    own = digits[rows[part]]
    shared = own[np.isin(own.labels, SHARED)].images
    foreground = np.flatnonzero(np.isin(own.labels, classes))
    chosen = own[np.resize(foreground, config.collages[part])]
    key, part_key = jax.random.split(key)
    collages[name] = data.collages(part_key, chosen.images, chosen.labels, shared)
  return collages


def train(
  config: Config, train_set: data.Collages, validation: data.Collages
) -> tuple[Any, Any]:
  """Functions that train one run and embed with it, each compiled once."""
  network = Network(config)
  zero_shot = models.ZeroShotPrediction(len(SEEN), config.dim)
  optimizer = training.optimizer(
    {name: optax.adam(config.learning_rate) for name in ("network", "loss")}
  )
  table = data.class_table(train_set.labels, per_class=config.per_class)

  def objective(params, _, batch, *, key, axis_name):
    del key, axis_name  # nothing is drawn, and one device is enough
    images, labels, variant = batch
    result = network.apply({"params": params["network"]}, images, variant.mass)
    pairs = losses.contrastive(result.embeddings, labels, negative_margin=config.margin)
    unseen = zero_shot.apply({"params": params["loss"]}, result.attributes, labels)
    weight = variant.zero_shot_weight
    return training.Outcome((1 - weight) * pairs.mean() + weight * unseen.mean())

  step = training.make_step(objective, optimizer)

  @jax.jit
  def some_steps(state, key, variant):
    def one_step(state, _):
      rows = data.class_balanced_indices(
        key, table, state.step, num_classes=len(SEEN), per_class=config.per_class
      )
      batch = train_set.images[rows], train_set.labels[rows], variant
      state, values = step(state, batch)
      return state, values["loss"]

    return jax.lax.scan(one_step, state, length=config.steps // config.parts)

  @jax.jit
  def embed(params, images, mass):
    return network.apply({"params": params}, images, mass)

  @jax.jit
  def choose_prototypes(params):
    pooled = Network(config, "unit_ball").apply(
      {"params": params}, train_set.images[:1024], 1.0
    )
    chosen = prototypes.greedy_k_centre(pooled.embeddings, config.prototypes)
    return pooled.embeddings[chosen.indices]

  def run(seed: int, variant: Variant, progress: tqdm.tqdm):
    network_key, loss_key, state_key, data_key = jax.random.split(
      jax.random.key(seed), 4
    )
    state = training.create_state(
      state_key,
      optimizer,
      network.init(network_key, train_set.images[:1], 1.0),
      zero_shot.init(loss_key, jnp.ones((2, config.prototypes)), jnp.array([0, 1])),
    )
    curve = []
    for part in range(config.parts):
      if part == 1:
        head = state.params["network"]["EmbeddingHead_0"]
        head["pooling"]["prototypes"] = choose_prototypes(state.params["network"])
      current = variant if part else Variant(1.0, 0.0)
      state, _ = some_steps(state, data_key, Variant(*map(jnp.float32, current)))
      embeddings = embed(state.params["network"], validation.images, current.mass)
      curve.append(map_at_r(embeddings.embeddings, validation.labels))
      progress.update()
    return state.params["network"], curve

  return run, embed


def map_at_r(embeddings: Array, labels: Array) -> float:
  result = metrics.retrieval(embeddings, labels)
  return float(metrics.mean_where(result.map_at_r, result.counted))
