"""Training on collages: what their experiments share.

A collage is one labelled image among images that say nothing about the label; the
variants are poolings and an additional loss, and share one compiled program.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import tqdm
from jax import Array
from jax.typing import ArrayLike

from experiments import _cli, _threads
from spherejax import data, losses, metrics, models, plotting, training


@dataclasses.dataclass(frozen=True)
class Settings:
  """What a training on collages looks at; an experiment adds its data."""

  classes: ClassVar[int]
  steps: int = 320
  """Training steps."""
  parts: int = 4
  """Parts of the training: after the first one, which pools by averages, the
  prototypes are chosen; after each the validation curve gets a point."""
  per_class: int = 6
  """Collages of each class in a batch."""
  dim: int = 32
  """Dimension of the embedding."""
  prototypes: int = 16
  """Prototypes of the pooling."""
  mass: float = 0.15
  """Share of a collage's features that GSP keeps (DML eq. 5.2.1); of 0.15, 0.25 and
  0.35 the best on validation collages of other seeds."""
  inverse_temperature: float = 10.0
  """Sharpness of the pooling (DML eq. 5.2.1)."""
  margin: float = 0.5
  """Distance beyond which different digits are left alone (C2)."""
  zero_shot_weight: float = 0.1
  """Weight of the zero-shot prediction loss (DML eq. 5.2.5)."""
  learning_rate: float = 2e-3
  """Learning rate of Adam."""

  def __post_init__(self):
    _cli.check_parts(self.steps, self.parts)


class Variant(NamedTuple):
  """What tells one variant from another: two numbers, so one program runs them all."""

  mass: float
  zero_shot_weight: float


class Network(nn.Module):
  """Convolutions, 1x1 convolution, pooling, normalisation."""

  config: Settings

  @nn.compact
  def __call__(self, images: Array, mass: Array | float) -> models.HeadResult:
    pool = models.GSP(
      self.config.prototypes,
      mass=mass,
      inverse_temperature=self.config.inverse_temperature,
    )
    features = models.ConvNet(convolution="patches")(data.to_float(images) - 0.5)
    return models.EmbeddingHead(self.config.dim, pool)(features)


def objective(params, _, batch, *, config: Settings, key, axis_name):
  """Mixture of contrastive loss and zero-shot prediction (DML eq. 5.2.5)."""
  del key, axis_name  # nothing is drawn, and one device is enough
  images, labels, variant = batch
  result: Any = Network(config).apply(
    {"params": params["network"]}, images, variant.mass
  )
  pairs = losses.contrastive(result.embeddings, labels, negative_margin=config.margin)
  zero_shot = models.ZeroShotPrediction(config.classes, config.dim)
  unseen: Any = zero_shot.apply({"params": params["loss"]}, result.attributes, labels)
  weight = variant.zero_shot_weight
  return training.Outcome((1 - weight) * pairs.mean() + weight * unseen.mean())


@functools.partial(jax.jit, static_argnames=("config", "optimizer"))
def some_steps(state, images, labels, table, key, variant, *, config, optimizer):
  """One part of a training as one compiled program."""
  step = training.make_step(functools.partial(objective, config=config), optimizer)
  classes = {"num_classes": config.classes, "per_class": config.per_class}

  def one_step(state, _):
    rows = data.class_balanced_indices(key, table, state.step, **classes)
    state, values = step(state, (images[rows], labels[rows], variant))
    return state, values["loss"]

  return jax.lax.scan(one_step, state, length=config.steps // config.parts)[0]


@functools.partial(jax.jit, static_argnames=("config",))
def embed(params, images, mass, *, config):
  """Embeddings, pooling weights and attributes of a set of collages."""
  return Network(config).apply({"params": params}, images, mass)


# With pooled features that cover the others best (DML Algorithm 2).
choose_prototypes = jax.jit(models.replace_prototypes, static_argnames=("path",))


@functools.cache
def make_optimizer(learning_rate: float) -> optax.GradientTransformation:
  """One optimiser object for all runs, so that they share a compiled program."""
  adam = optax.adam(learning_rate)
  return training.optimizer({"network": adam, "loss": adam})


@functools.partial(jax.jit, static_argnames=("config",))
def initial_state(key, images, *, config) -> training.TrainState:
  """Network and label embeddings before the first step."""
  network_key, loss_key, step_key = jax.random.split(key, 3)
  attributes = jnp.ones((2, config.prototypes)) / config.prototypes
  zero_shot = models.ZeroShotPrediction(config.classes, config.dim)
  return training.create_state(
    step_key,
    make_optimizer(config.learning_rate),
    Network(config).lazy_init(network_key, images[:1], 1.0),
    zero_shot.lazy_init(loss_key, attributes, jnp.arange(2)),
  )


class Run(NamedTuple):
  """A training in progress: its state and the validation curve so far."""

  state: training.TrainState
  curve: tuple[float, ...]


def one_part(run: Run, config: Settings, variant: Variant, collages, key: Array) -> Run:
  """Trains for one part and adds a point to the curve."""
  train_set, validation = collages["train"], collages["validation"]
  table = data.class_table(train_set.labels, per_class=config.per_class)
  variant = Variant(*map(jnp.float32, variant))
  batches = (train_set.images, train_set.labels, table, key, variant)
  optimizer = make_optimizer(config.learning_rate)
  state = some_steps(run.state, *batches, config=config, optimizer=optimizer)
  result = embed(
    state.params["network"], validation.images, variant.mass, config=config
  )
  score = measure(result.embeddings, validation.labels)["MAP@R"]
  return Run(state, (*run.curve, score))


def train(
  config: Settings,
  seeds: Sequence[int],
  variants: dict[str, Variant],
  collages: Sequence[dict[str, data.Collages]],
  progress: tqdm.tqdm,
) -> list[dict[str, Run]]:
  """All variants from all seeds, each seed with collages of its own.

  Those of one seed share the first part, which pools by averages: prototypes are
  chosen among features that mean something already. A program of this size keeps no
  second core busy, so two runs go on at a time.
  """
  keys = [jax.random.split(jax.random.key(seed)) for seed in seeds]
  states = [
    initial_state(key, own["train"].images, config=config)
    for (key, _), own in zip(keys, collages, strict=True)
  ]

  def part(run: Run, variant: Variant, number: int) -> Run:
    run = one_part(run, config, variant, collages[number], keys[number][1])
    progress.update()
    return run

  def some(number: int) -> Array:
    own = collages[number]
    return own["train"].images[: len(own["validation"].images)]

  def start(number: int) -> Run:
    run = part(Run(states[number], ()), Variant(1.0, 0.0), number)
    network = run.state.params["network"]
    pooled = embed(network, some(number), jnp.float32(1), config=config).pooled
    network = choose_prototypes(network, pooled, path="GSP_0/prototypes")
    params = run.state.params | {"network": network}
    return run._replace(state=run.state.replace(params=params))

  def rest(begun: Run, variant: Variant, number: int) -> Run:
    for _ in range(1, config.parts):
      begun = part(begun, variant, number)
    return begun

  with _threads.pool() as pool:
    first = pool.submit(start, 0)  # compiles for all, and meanwhile:
    network = states[0].params["network"]
    pool.submit(embed, network, some(0), jnp.float32(1), config=config)
    starts = [first.result(), *pool.map(start, range(1, len(seeds)))]
    runs = [
      {name: pool.submit(rest, begun, own, number) for name, own in variants.items()}
      for number, begun in enumerate(starts)
    ]
    return [{name: run.result() for name, run in each.items()} for each in runs]


def measure(embeddings: ArrayLike, labels: ArrayLike) -> dict[str, float]:
  """Retrieval among the collages themselves."""
  result = metrics.retrieval(embeddings, labels)
  return {
    "P@1": float(metrics.mean_where(result.precision_at_1, result.counted)),
    "MAP@R": float(metrics.mean_where(result.map_at_r, result.counted)),
  }


def foreground_weight(weights: ArrayLike, foreground: ArrayLike) -> float:
  """Mean pooling weight on the tile with the labelled digit; 0.25 for an average."""
  weights, foreground = np.asarray(weights), np.asarray(foreground)
  scale = weights.shape[1] // foreground.shape[1]
  mask = np.kron(foreground, np.ones((scale, scale)))
  return float(np.mean(np.sum(weights * mask, axis=(1, 2))))


def draw(
  last: dict[str, dict[str, Any]], curves: dict[str, Any], config: Settings, output
) -> list[str]:
  """Weight maps, validation curves and retrieval sheets; of the last seed's runs.

  The collages are the first of each class, so that nobody chose them. The sheets are
  of unseen classes, where there is more to go wrong.
  """
  seen, unseen = last["seen"], last["unseen"]
  rows, names = _first_of_each_class(seen["collages"].labels, 1)
  weights = {
    name: result.weights[rows]
    for name, result in seen["results"].items()
    if name != "GAP"
  }
  pictures = seen["collages"].images[rows]
  figures = {
    "weights": plotting.weight_maps(pictures, weights, names=names),
    "curves": plotting.training_curves(
      curves,
      steps=config.steps // config.parts * np.arange(1, config.parts + 1),
      ylabel="MAP@R, validation collages",
    ),
  }
  labels = unseen["collages"].labels
  rows, names = _first_of_each_class(labels, 3)
  for name, result in unseen["results"].items():
    nearest = metrics.nearest(
      result.embeddings[rows], result.embeddings, k=8, exclude=rows
    )
    right = labels[nearest] == labels[rows][:, None]
    figures[f"retrieval-{name.lower().replace(' + ', '-')}"] = plotting.retrieval_sheet(
      unseen["collages"].images, rows, nearest, right, names=names, title=name
    )
  return [
    plotting.save(figure, output / f"{name}.png").name
    for name, figure in figures.items()
  ]


def _first_of_each_class(labels: Array, count: int) -> tuple[np.ndarray, list[str]]:
  """Rows of the first `count` examples of each class, and their class names."""
  classes = np.unique(labels)
  rows = [np.flatnonzero(np.asarray(labels) == label)[:count] for label in classes]
  return np.concatenate(rows), [str(label) for label in np.repeat(classes, count)]
