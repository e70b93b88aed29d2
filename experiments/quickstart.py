"""Digit collages: does generalized sum pooling find the digit that matters?

A collage is one labelled digit among three digits that say nothing about the label.
Trained with a contrastive loss, an embedding by global average pooling (GAP) has to
carry the three along; generalized sum pooling (GSP) can leave them out, and
zero-shot prediction (ZSP) asks that its attributes tell unseen classes apart. In
the setting of DML 5.3.2, on images that scikit-learn ships.

    python -m experiments.quickstart                  # preset cpu: a minute on 2 cores
    python -m experiments.quickstart --preset smoke   # seconds
"""

import collections
import dataclasses
import functools
import pathlib
import sys
import time
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import tqdm
from jax import Array

from experiments import _cli, _quickstart_pictures, _report
from spherejax import data, losses, metrics, models, prototypes, training

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
  collages: tuple[int, int, int] = (3000, 600, 600)
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
  "smoke": Config(seeds=2, steps=24, collages=(300, 120, 120)),
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
    collages[name] = jax.jit(data.collages)(
      part_key, chosen.images, chosen.labels, shared
    )
  return collages


def objective(params, _, batch, *, config: Config, key, axis_name):
  """Mixture of contrastive loss and zero-shot prediction (DML eq. 5.2.5)."""
  del key, axis_name  # nothing is drawn, and one device is enough
  images, labels, variant = batch
  result = Network(config).apply({"params": params["network"]}, images, variant.mass)
  pairs = losses.contrastive(result.embeddings, labels, negative_margin=config.margin)
  zero_shot = models.ZeroShotPrediction(len(SEEN), config.dim)
  unseen = zero_shot.apply({"params": params["loss"]}, result.attributes, labels)
  weight = variant.zero_shot_weight
  return training.Outcome((1 - weight) * pairs.mean() + weight * unseen.mean())


@functools.partial(jax.jit, static_argnames=("config", "optimizer"))
def some_steps(state, images, labels, table, key, variant, *, config, optimizer):
  """One part of a training as one compiled program."""
  step = training.make_step(functools.partial(objective, config=config), optimizer)
  classes = {"num_classes": len(SEEN), "per_class": config.per_class}

  def one_step(state, _):
    rows = data.class_balanced_indices(key, table, state.step, **classes)
    state, values = step(state, (images[rows], labels[rows], variant))
    return state, values["loss"]

  return jax.lax.scan(one_step, state, length=config.steps // config.parts)[0]


@functools.partial(jax.jit, static_argnames=("config", "normalization"))
def embed(params, images, mass, *, config, normalization="l2"):
  """Embeddings, pooling weights and attributes of a set of collages."""
  return Network(config, normalization).apply({"params": params}, images, mass)


def train(config: Config, seed: int, variant: Variant, collages, progress):
  """One run: parameters of the network and its validation curve."""
  network_key, loss_key, step_key, data_key = jax.random.split(jax.random.key(seed), 4)
  train_set, validation = collages["train"], collages["validation"]
  table = data.class_table(train_set.labels, per_class=config.per_class)
  network = jax.jit(Network(config).init)(network_key, train_set.images[:1], 1.0)
  attributes = jnp.ones((2, config.prototypes)) / config.prototypes
  zero_shot = models.ZeroShotPrediction(len(SEEN), config.dim)
  loss = jax.jit(zero_shot.init)(loss_key, attributes, jnp.arange(2))
  optimizer = make_optimizer(config.learning_rate)
  state = training.create_state(step_key, optimizer, network, loss)
  curve = []
  for part in range(config.parts):
    params = state.params["network"]
    if part == 1:
      pooled = embed(
        params, train_set.images[:1000], 1.0, config=config, normalization="unit_ball"
      ).embeddings
      choose = jax.jit(prototypes.greedy_k_centre, static_argnums=1)
      chosen = choose(pooled, config.prototypes).indices
      params["EmbeddingHead_0"]["pooling"]["prototypes"] = pooled[chosen]
    # Average pooling first: prototypes are chosen among features that mean something.
    current = Variant(*map(jnp.float32, variant if part else (1.0, 0.0)))
    state = some_steps(
      state,
      train_set.images,
      train_set.labels,
      table,
      data_key,
      current,
      config=config,
      optimizer=optimizer,
    )
    result = embed(
      state.params["network"], validation.images, current.mass, config=config
    )
    curve.append(measure(result.embeddings, validation.labels)["MAP@R"])
    progress.update()
  return state.params["network"], curve


@functools.cache
def make_optimizer(learning_rate: float) -> optax.GradientTransformation:
  """One optimiser object for all runs, so that they share a compiled program."""
  adam = optax.adam(learning_rate)
  return training.optimizer({"network": adam, "loss": adam})


def measure(embeddings: Array, labels: Array) -> dict[str, float]:
  """Retrieval among the collages themselves."""
  result = metrics.retrieval(embeddings, labels)
  return {
    "P@1": float(metrics.mean_where(result.precision_at_1, result.counted)),
    "MAP@R": float(metrics.mean_where(result.map_at_r, result.counted)),
  }


def foreground_weight(weights: Array, foreground: Array) -> float:
  """Mean pooling weight on the tile with the labelled digit; 0.25 for an average."""
  scale = weights.shape[1] // foreground.shape[1]
  mask = np.kron(np.asarray(foreground), np.ones((scale, scale)))
  return float(np.mean(np.sum(np.asarray(weights) * mask, axis=(1, 2))))


def run(config: Config, output: pathlib.Path, preset: str = "cpu") -> dict[str, Any]:
  """Trains all variants with all seeds; returns figures and claims."""
  start = time.perf_counter()
  variants = {
    "GAP": Variant(1.0, 0.0),  # at mass 1 the pooling is exactly the average
    "GSP": Variant(config.mass, 0.0),
    "GSP + ZSP": Variant(config.mass, config.zero_shot_weight),
  }
  figures = collections.defaultdict(list)
  curves = collections.defaultdict(list)
  examples = {}
  runs = config.seeds * len(variants) * config.parts
  with tqdm.tqdm(total=runs, desc="training", unit="part", file=sys.stderr) as progress:
    for seed in range(config.seed, config.seed + config.seeds):
      collages = make_collages(config, jax.random.key(seed))
      for name, variant in variants.items():
        params, curve = train(config, seed, variant, collages, progress)
        curves[name].append(curve)
        for part in ("seen", "unseen"):
          test = collages[part]
          result = embed(params, test.images, variant.mass, config=config)
          for metric, value in measure(result.embeddings, test.labels).items():
            figures[name, f"{metric} {part}"].append(value)
          weight = foreground_weight(result.weights, test.foreground)
          figures[name, f"weight on the labelled digit, {part}"].append(weight)
          examples[name, part] = test, result
  rows = [
    _report.row(name, metric, values) for (name, metric), values in figures.items()
  ]
  gain = np.subtract(figures["GSP", "MAP@R seen"], figures["GAP", "MAP@R seen"])
  share = np.array(figures["GSP", "weight on the labelled digit, seen"]) - 0.25
  claims = [
    _report.claim(
      "quickstart-gsp",
      "MAP@R(GSP) > MAP@R(GAP), seen classes, in every seed",
      gain,
      paper="DML 5.3.2",
      every_seed=True,
    ),
    _report.claim(
      "quickstart-attention",
      "weight on the labelled digit under GSP > 0.25",
      share,
      paper="DML 5.3.2",
    ),
  ]
  pictures = _quickstart_pictures.draw(examples, curves, config, output)
  return _report.result(
    experiment="quickstart",
    preset=preset,
    config=config,
    seconds=time.perf_counter() - start,
    rows=rows,
    claims=claims,
    pictures=pictures,
  )


def main() -> None:
  """The command line."""
  preset, config, output = _cli.parse(PRESETS, name="quickstart", doc=__doc__)
  _report.write(run(config, output, preset), output)


if __name__ == "__main__":
  main()
