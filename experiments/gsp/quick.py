"""The quickstart's tiles and collages, its network and its trainings.

A collage is one labelled image among images that say nothing about the label: digits,
or photographs of a folder.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.frame import at_once
from experiments.frame.frozen import Features
from experiments.frame.settings import Decided, Limited, MultipleOf
from experiments.gsp import network
from experiments.gsp import training as pooled_training
from experiments.gsp.collages import foreground_weight, retrieval
from spherejax import data, models, training

GRID = 3  # tiles along each side of a collage
WEIGHT = "weight on the labelled tile"
_HIDDEN = 64  # channels of the layer on features


@dataclasses.dataclass(frozen=True)
class Config(Limited):
  """Settings of the quickstart."""

  steps: Annotated[int, MultipleOf("parts")] = 200
  """Training steps of each pooling; the first quarter pools by averages."""
  parts: Decided[int] = 4
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


@dataclasses.dataclass(frozen=True)
class SmallNetwork(network.Settings):
  """Settings of a network of convolutions for pixels, or of one layer for features."""

  zero_shot = False

  def local_features(self, images: Array, *, train: bool) -> Array:
    del train  # no layer needs it
    if images.dtype != jnp.uint8:
      return nn.relu(nn.Dense(_HIDDEN, name="backbone")(images))
    options = {"strides": (2, 1, 2), "convolution": "patches", "name": "backbone"}
    return cast(Array, models.ConvNet(**options)(data.to_float(images) - 0.5))


class Trained(NamedTuple):
  """Outcome of a trained network on the test collages."""

  measures: Mapping[str, float]
  weights: np.ndarray


def compare(
  config: Config,
  collages: Sequence[Collages],
  names: tuple[str, ...],
  folder: pathlib.Path,
  tell: Callable[[], object],
) -> list[dict[str, Trained]]:
  """Trains both poolings on the collages of each seed, with checkpoints in the folder.

  `names` are those of the classes. `tell` is called after each part of a training but
  the first.
  """
  settings = SmallNetwork(
    steps=config.steps, parts=config.parts, batch_classes=config.classes,
    per_class=config.per_class, dim=config.dim, pooling="gsp", loss="contrastive",
    prototypes=config.prototypes, inverse_temperature=config.inverse_temperature,
    learning_rate=config.learning_rate,
  )  # fmt: skip
  variants = {"GAP": network.AVERAGE, "GSP": network.Variant(config.mass, 0.0)}

  def after(run: pooled_training.Run, _: network.Variant) -> pooled_training.Run:
    tell()
    return run

  def run(number: int) -> dict[str, Trained]:
    train, test = (
      Features(np.asarray(part.images), np.asarray(part.labels), names)
      for part in collages[number]
    )
    seed, foreground = config.seed + number, collages[number].test.foreground
    runs = pooled_training.train(
      settings, seed, variants, train, folder, after=after, progress=False
    )
    trained = {}
    for name, variant in variants.items():
      result = network.embed(runs[name].state, test, settings, mass=variant.mass)
      weights = np.asarray(result.weights)
      measures = {
        "MAP@R": retrieval(result.embeddings, test.labels)["MAP@R"],
        WEIGHT: foreground_weight(weights, foreground),
      }
      trained[name] = Trained(measures, weights)
    return trained

  return at_once.threaded(run, range(config.seeds))


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
