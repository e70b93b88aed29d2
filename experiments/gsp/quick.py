"""The quickstart's tiles and collages, its network and its training.

A collage is one labelled image among images that say nothing about the label: digits,
or photographs of a folder. Average pooling (GAP) and generalized sum pooling (GSP)
share one compiled program and, for each seed, the first steps.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.typing import Collection
from jax import Array

from experiments.frame import at_once, ending
from experiments.frame.settings import Limited
from experiments.gsp.collages import foreground_weight, retrieval
from spherejax import data, losses, models, training

GRID = 3  # tiles along each side of a collage
AVERAGE = 1.0  # mass at which generalized sum pooling is exactly the average
WEIGHT = "weight on the labelled tile"
HIDDEN = 64  # channels of the layer on features
POOLED = 200  # collages among whose averages the prototypes are chosen


@dataclasses.dataclass(frozen=True)
class Config(Limited):
  """Settings of the quickstart."""

  steps: int = 200
  """Training steps of each pooling; the first quarter pools by averages."""
  classes: int = 6
  """Largest number of classes per batch."""
  per_class: int = 8
  """Collages per class in a batch."""
  dim: int = 32
  """Dimension of the embedding."""
  prototypes: int = 16
  """Prototypes of the pooling."""
  mass: float = 0.1
  """Share of a collage's features that GSP keeps (DML eq. 5.2.1); one tile is 0.11."""
  inverse_temperature: float = 10.0
  """Inverse temperature of the pooling (DML eq. 5.2.1)."""
  margin: float = 0.5
  """Distance beyond which collages of different classes are ignored (C2)."""
  learning_rate: float = 2e-3
  """Learning rate of Adam."""
  images: str = ""
  """Folder of photographs with a sub-folder per class; empty: digits."""
  seed: int = 0
  """Seed of everything random."""
  seeds: int = 8
  """Trainings of each pooling."""
  collages: tuple[int, int] = (2000, 400)
  """Numbers of training and test collages."""


class Collages(NamedTuple):
  """Training and test collages of one seed; they share no image."""

  train: data.Collages
  test: data.Collages


class Network(nn.Module):
  """Convolutions for pixels or one layer for features, then an `EmbeddingHead`."""

  config: Config

  @nn.compact
  def __call__(self, images: Array, mass: Array | float) -> models.HeadResult:
    config = self.config
    pool = models.GSP(config.prototypes, mass, config.inverse_temperature)
    if images.dtype == jnp.uint8:
      layers = models.ConvNet(strides=(2, 1, 2), convolution="patches")
      features = layers(data.to_float(images) - 0.5)
    else:
      features = nn.relu(nn.Dense(HIDDEN)(images))
    return models.EmbeddingHead(config.dim, pool)(features)


def _outputs(
  params: Collection, images: Array, mass: Array, *, config: Config
) -> models.HeadResult:
  outputs = Network(config).apply({"params": params}, images, mass)
  return cast(models.HeadResult, outputs)


_embed = jax.jit(_outputs, static_argnames=("config",))
# Chooses pooled features that cover the others best (DML Algorithm 2).
_choose_prototypes = jax.jit(models.replace_prototypes, static_argnames=("path",))


@functools.partial(jax.jit, static_argnames=("config",))
def _start(key: Array, images: Array, *, config: Config) -> training.TrainState:
  variables = Network(config).lazy_init(
    key, jax.ShapeDtypeStruct((1, *images.shape[1:]), images.dtype), AVERAGE
  )
  return training.create_state(key, optax.adam(config.learning_rate), variables)


@functools.partial(jax.jit, static_argnames=("config",))
def _train(
  state: training.TrainState,
  collages: data.Collages,
  table: data.ClassTable,
  key: Array,
  mass: Array,
  steps: Array,
  *,
  config: Config,
) -> tuple[training.TrainState, Array]:
  """Runs `steps` training steps and returns the mean of their losses."""

  def objective(params, _, batch, *, key, axis_name):
    del key, axis_name  # nothing is drawn, and one device is enough
    images, labels = batch
    outputs = _outputs(params["network"], images, mass, config=config)
    values = losses.contrastive(
      outputs.embeddings, labels, negative_margin=config.margin
    )
    return training.Outcome(values.mean())

  step = training.make_step(objective, optax.adam(config.learning_rate))
  number = min(config.classes, len(table.counts))
  classes = {"num_classes": number, "per_class": config.per_class}

  def train_step(_, carry):
    state, total = carry
    rows = data.class_balanced_indices(key, table, state.step, **classes)
    state, values = step(state, (collages.images[rows], collages.labels[rows]))
    return state, total + values["loss"]

  state, total = jax.lax.fori_loop(0, steps, train_step, (state, jnp.float32(0)))
  return state, total / steps


class Trained(NamedTuple):
  """Outcome of a trained network on the test collages."""

  measures: Mapping[str, float]
  weights: np.ndarray


def compare(
  config: Config,
  collages: Sequence[Collages],
  keys: Sequence[Array],
  tell: Callable[[], object],
) -> list[dict[str, Trained]]:
  """Trains both poolings on the collages of each seed, from one network.

  The first quarter of the steps is shared and uses average pooling, so that prototypes
  are chosen among features that already mean something. `tell` is called after each of
  three parts of a seed.
  """
  warmup = config.steps // 4
  masses = {"GAP": AVERAGE, "GSP": config.mass}

  def steps(state, number: int, mass: float, count: int):
    train = collages[number].train
    table = data.class_table(train.labels, per_class=config.per_class)
    key = jax.random.fold_in(keys[number], 1)
    state, loss = _train(
      state, train, table, key, jnp.float32(mass), jnp.int32(count), config=config
    )
    ending.mean_loss(
      loss[None], int(state.step) - 1, f"the run with a mass of {mass:g}"
    )
    tell()
    return state

  def run(number: int) -> dict[str, Trained]:
    images, test = collages[number].train.images, collages[number].test
    initial = _start(keys[number], images, config=config)
    base = steps(initial, number, AVERAGE, warmup)
    params = base.params["network"]
    pooled = _embed(params, images[:POOLED], jnp.float32(AVERAGE), config=config).pooled
    params = _choose_prototypes(params, pooled, path="GSP_0/prototypes")
    base = base.replace(params={"network": params})
    trained = {}
    for name, mass in masses.items():
      state = steps(base, number, mass, config.steps - warmup)
      outputs = _embed(
        state.params["network"], test.images, jnp.float32(mass), config=config
      )
      measures = {
        "MAP@R": retrieval(outputs.embeddings, test.labels)["MAP@R"],
        WEIGHT: foreground_weight(outputs.weights, test.foreground),
      }
      trained[name] = Trained(measures, np.asarray(outputs.weights))
    return trained

  return at_once.threaded(run, range(len(keys)))


_FRACTIONS = 0.7, 0.3  # shares of each class in training and in test collages
_SIDE = 128  # side of a photograph; the network's map of it is 4 x 4
_CHANNELS = 64  # principal components that are kept of a map's 1,280 channels
_LEAST = 4  # classes of a folder, and photographs of each


class Tiles(NamedTuple):
  """Images, the network's input for each, and which classes are labelled."""

  pixels: np.ndarray  # uint8 [images, height, width, channels]
  inputs: np.ndarray  # the pixels, or a pretrained network's features
  labels: np.ndarray
  names: tuple[str, ...]
  split: int  # classes before it are labelled; the others are around them


def digits() -> Tiles:
  """Digits of scikit-learn: 0 to 5 are labelled, 6 to 9 are around them."""
  images = data.load_digits()
  pixels = np.asarray(images.images)
  return Tiles(pixels, pixels, images.labels, images.label_names, 6)


def photographs(folder: str) -> Tiles:
  """Photographs of class folders, and a pretrained network's features of them.

  The first two thirds of the classes, in alphabetical order, serve as labels; the
  others fill the rest of each collage.
  SystemExit says what is missing.
  """
  try:
    network = models.pretrained("efficientnet_lite0")
    images = data.load_folder(pathlib.Path(folder), size=_SIDE)
  except (ImportError, OSError, ValueError) as error:
    raise SystemExit(f"--images {folder}: {error}") from error
  counts = np.bincount(images.labels, minlength=len(images.label_names))
  if len(counts) < _LEAST or counts.min() < _LEAST:
    raise SystemExit(
      f"--images {folder} must have at least {_LEAST} class folders of {_LEAST}"
      f" photographs, got {len(counts)} folders, the smallest of {counts.min()}"
    )
  pixels = np.asarray(images.images)
  average = training.parallel_map(
    lambda _, block: nn.avg_pool(network.features(block), (2, 2), (2, 2)), batch_size=32
  )
  split = 2 * len(counts) // 3
  maps = average(None, pixels)
  train, _ = data.split_within_classes(images.labels, fractions=_FRACTIONS)
  return Tiles(pixels, _reduced(maps, train), images.labels, images.label_names, split)


def _reduced(maps: np.ndarray, train: np.ndarray) -> np.ndarray:
  """The first principal components of the training images' features."""
  features = maps[train].reshape(-1, maps.shape[-1])
  mean = features.mean(0)
  axes = np.linalg.svd(features - mean, full_matrices=False)[2][:_CHANNELS]
  parts = (maps - mean) @ axes.T
  return (parts / parts[train].std()).astype(np.float32)


def collages(
  tiles: Tiles, sizes: tuple[int, int], key: Array, *, as_pixels: bool = False
) -> Collages:
  """Training and test collages of disjoint images.

  With `as_pixels`, the same collages have pixels instead of features.
  """
  images = tiles.pixels if as_pixels else tiles.inputs
  split = data.split_within_classes(tiles.labels, fractions=_FRACTIONS)
  parts = []
  for part_key, rows, count in zip(jax.random.split(key), split, sizes, strict=True):
    labels = tiles.labels[rows]
    fronts = np.resize(rows[labels < tiles.split], count)
    around = images[rows[labels >= tiles.split]]
    labels = tiles.labels[fronts]
    parts.append(data.collages(part_key, images[fronts], labels, around, grid=GRID))
  return Collages(*parts)
