"""Tiles of the quickstart's collages: digits, or photographs of a folder."""

import pathlib
from typing import NamedTuple

import jax
import numpy as np
from jax import Array

from experiments.gsp.quick import GRID, Collages
from spherejax import data, models, training

LABELLED, SHARED = tuple(range(6)), tuple(range(6, 10))
_FRACTIONS = 0.7, 0.3  # of each class: in training and in test collages
_SIDE = 128  # of a photograph; the network's map of it is 4 x 4
_CHANNELS = 64  # that are left of a map's 1,280
_LEAST = 4  # classes of a folder, and photographs of each


class Tiles(NamedTuple):
  """Images, what the network takes of each, and which classes are labelled."""

  pixels: np.ndarray
  """uint8 [images, height, width, channels]."""
  inputs: np.ndarray
  """The pixels, or a pretrained network's features."""
  labels: np.ndarray
  names: tuple[str, ...]
  labelled: tuple[int, ...]
  """Classes of the labelled tile."""
  shared: tuple[int, ...]
  """Classes of the other tiles."""


def digits() -> Tiles:
  """Digits of scikit-learn: 0 to 5 are labelled, 6 to 9 are around them."""
  images = data.load_digits()
  pixels = np.asarray(images.images)
  names = images.label_names or tuple(map(str, range(10)))
  return Tiles(pixels, pixels, images.labels, names, LABELLED, SHARED)


def photographs(folder: str) -> Tiles:
  """Photographs of class folders, and a pretrained network's features of them.

  Two thirds of the classes are labelled, in alphabetical order; the others are around.
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
    lambda _, block: _quarters(network.features(block)), batch_size=32
  )
  split = 2 * len(counts) // 3
  maps = average(None, pixels)
  train, _ = data.split_within_classes(images.labels, fractions=_FRACTIONS)
  return Tiles(
    pixels,
    _reduced(maps, train),
    images.labels,
    images.label_names,
    tuple(range(split)),
    tuple(range(split, len(counts))),
  )


def _quarters(maps: Array) -> Array:
  """Maps [n, 2 h, 2 w, channels] averaged to 2 x 2."""
  n, height, width, channels = maps.shape
  parts = maps.reshape(n, 2, height // 2, 2, width // 2, channels)
  return parts.mean((2, 4))


def _reduced(maps: np.ndarray, train: np.ndarray) -> np.ndarray:
  """The first principal components of the training images' features."""
  known = maps[train].reshape(-1, maps.shape[-1])
  mean = known.mean(0)
  axes = np.linalg.svd(known - mean, full_matrices=False)[2][:_CHANNELS]
  parts = (maps - mean) @ axes.T
  return (parts / parts[train].std()).astype(np.float32)


_collages = jax.jit(data.collages, static_argnames=("grid",))


def collages(
  tiles: Tiles, sizes: tuple[int, int], key: Array, *, shown: bool = False
) -> Collages:
  """Training and test collages of disjoint images.

  With `shown` they are of the pixels, not of the features: the same collages.
  """
  images = tiles.pixels if shown else tiles.inputs
  parts = []
  for name, rows, count in zip(
    jax.random.split(key),
    data.split_within_classes(tiles.labels, fractions=_FRACTIONS),
    sizes,
    strict=True,
  ):
    labels = tiles.labels[rows]
    fronts = np.resize(rows[np.isin(labels, tiles.labelled)], count)
    around = rows[np.isin(labels, tiles.shared)]
    parts.append(
      _collages(name, images[fronts], tiles.labels[fronts], images[around], grid=GRID)
    )
  return Collages(*parts)
