"""The quickstart's network and its training on collages.

A collage is one labelled image among images that say nothing about the label; the
variants are poolings and an additional loss, and share one compiled program.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import tqdm
from jax import Array
from jax.typing import ArrayLike

from experiments.frame import at_once, ending
from experiments.frame.settings import Limited, MultipleOf
from experiments.gsp.collage_measures import retrieval
from experiments.gsp.network import AVERAGE, Variant
from spherejax import data, losses, metrics, models, plotting, training


@dataclasses.dataclass(frozen=True)
class Settings(Limited):
  """What a training on collages looks at; an experiment adds its data."""

  classes: ClassVar[int]
  image_shape: ClassVar[tuple[int, int, int]]
  steps: Annotated[int, MultipleOf("parts")] = 400
  """Training steps."""
  parts: int = 4
  """Parts of the training: after the first one, which pools by averages, the
  prototypes are chosen; after each the validation curve gets a point."""
  per_class: int = 8
  """Collages of each class in a batch."""
  dim: int = 32
  """Dimension of the embedding."""
  prototypes: int = 16
  """Prototypes of the pooling."""
  mass: float = 0.15
  """Share of a collage's features that GSP keeps (DML eq. 5.2.1); of 0.15, 0.2,
  0.25, 0.3 and 0.35 the best on validation collages of other seeds."""
  inverse_temperature: float = 10.0
  """Sharpness of the pooling (DML eq. 5.2.1)."""
  margin: float = 0.5
  """Distance beyond which different digits are left alone (C2)."""
  zero_shot_weight: float = 0.1
  """Weight of the zero-shot prediction loss (DML eq. 5.2.5)."""
  learning_rate: float = 2e-3
  """Learning rate of Adam."""


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

  return jax.lax.scan(one_step, state, length=config.steps // config.parts)


@functools.partial(jax.jit, static_argnames=("config",))
def embed(params, images, mass: Array, *, config):
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
def initial_state(key, *, config) -> training.TrainState:
  """Network and label embeddings before the first step."""
  network_key, loss_key, step_key = jax.random.split(key, 3)
  images = jax.ShapeDtypeStruct((1, *config.image_shape), jnp.uint8)
  attributes = jnp.ones((2, config.prototypes)) / config.prototypes
  zero_shot = models.ZeroShotPrediction(config.classes, config.dim)
  return training.create_state(
    step_key,
    make_optimizer(config.learning_rate),
    Network(config).lazy_init(network_key, images, 1.0),
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
  before = int(run.state.step)
  state, values = some_steps(run.state, *batches, config=config, optimizer=optimizer)
  ending.mean_loss(values, before, f"the run with a mass of {variant.mass:g}")
  result = embed(
    state.params["network"], validation.images, variant.mass, config=config
  )
  score = retrieval(result.embeddings, validation.labels)["MAP@R"]
  return Run(state, (*run.curve, score))


def initial_states(
  config: Settings, seeds: Sequence[int]
) -> list[tuple[training.TrainState, Array]]:
  """Of each seed the network before its first step, and the key of its batches."""
  keys = [jax.random.split(jax.random.key(seed)) for seed in seeds]
  return [(initial_state(key, config=config), rest) for key, rest in keys]


def train(
  config: Settings,
  states: Sequence[tuple[training.TrainState, Array]],
  variants: dict[str, Variant],
  collages: Sequence[dict[str, data.Collages]],
  progress: tqdm.tqdm,
) -> list[dict[str, Run]]:
  """All variants from all initial states, each with collages of its own.

  Those of one seed share the first part, which pools by averages: prototypes are
  chosen among features that mean something already. A program of this size keeps no
  second core busy, so two runs go on at a time.
  """

  def part(run: Run, variant: Variant, number: int) -> Run:
    run = one_part(run, config, variant, collages[number], states[number][1])
    progress.update()
    return run

  def renewed(network: Any, number: int) -> Any:
    own = collages[number]
    some = own["train"].images[: len(own["validation"].images)]
    pooled = embed(network, some, jnp.float32(1), config=config).pooled
    return choose_prototypes(network, pooled, path="GSP_0/prototypes")

  def start(number: int) -> Run:
    run = part(Run(states[number][0], ()), AVERAGE, number)
    network = renewed(run.state.params["network"], number)
    params = run.state.params | {"network": network}
    return run._replace(state=run.state.replace(params=params))

  def rest(begun: Run, variant: Variant, number: int) -> Run:
    for _ in range(1, config.parts):
      begun = part(begun, variant, number)
    return begun

  def compile_what_follows() -> None:
    network, own = states[0][0].params["network"], collages[0]["validation"]
    result = embed(network, own.images, jnp.float32(1), config=config)
    retrieval(result.embeddings, own.labels)
    renewed(network, 0)

  with at_once.pool() as pool:
    first = pool.submit(start, 0)  # compiles for all, and meanwhile:
    pool.submit(compile_what_follows)
    starts = [first.result(), *pool.map(start, range(1, len(states)))]
    runs = [
      {name: pool.submit(rest, begun, own, number) for name, own in variants.items()}
      for number, begun in enumerate(starts)
    ]
    return [{name: run.result() for name, run in each.items()} for each in runs]


def draw(
  last: dict[str, dict[str, Any]], curves: dict[str, Any], config: Settings
) -> dict[str, Any]:
  """Weight maps, validation curves and retrieval sheets; of the last seed's runs.

  The collages are the first of each class, so that nobody chose them. The sheets are
  of unseen classes, where there is more to go wrong.
  """
  seen, unseen = last["seen"], last["unseen"]
  rows, names = _first_of_each_class(seen["collages"].labels, 1)
  weights = {
    name: np.asarray(result.weights)[rows]
    for name, result in seen["results"].items()
    if name != "GAP"
  }
  pictures = np.asarray(seen["collages"].images)[rows]
  drawn = {
    "weights": plotting.weight_maps(pictures, weights, names=names),
    "curves": plotting.training_curves(
      curves,
      steps=config.steps // config.parts * np.arange(1, config.parts + 1),
      ylabel="MAP@R, validation collages",
    ),
  }
  images, labels = map(np.asarray, unseen["collages"][:2])
  rows, names = _first_of_each_class(labels, 3)
  for name, result in unseen["results"].items():
    embeddings = np.asarray(result.embeddings)
    nearest = np.asarray(
      metrics.nearest(embeddings[rows], embeddings, k=8, exclude=rows)
    )
    right = labels[nearest] == labels[rows][:, None]
    drawn[f"retrieval-{name.lower().replace(' + ', '-')}"] = plotting.retrieval_sheet(
      images, rows, nearest, right, names=names, title=name
    )
  return drawn


def _first_of_each_class(labels: ArrayLike, count: int) -> tuple[np.ndarray, list[str]]:
  """Rows of the first `count` examples of each class, and their class names."""
  labels = np.asarray(labels)
  classes = np.unique(labels)
  rows = [np.flatnonzero(labels == label)[:count] for label in classes]
  return np.concatenate(rows), [str(label) for label in np.repeat(classes, count)]
