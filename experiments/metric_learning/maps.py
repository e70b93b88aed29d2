"""Frozen maps of a pretrained network, in the place of images, for `retrieval`.

A network of ImageNet's sees each photograph once; what is trained is the layer on its
maps, the pooling and the loss. So the methods begin where the thesis's begin, at a
price that a CPU can pay.
"""

import pathlib
from collections.abc import Sequence

import numpy as np

from experiments.frame import frozen, networks
from experiments.frame import images as class_sets
from experiments.metric_learning.images import Study, divided, halves
from spherejax import data, models, training

_FEWEST = 20
"""Images that a class needs, or it is left out: 12 of the 121 classes of plankton."""


def study(
  name: str, channels: int, seeds: Sequence[int], folder: pathlib.Path, *, pooled: bool
) -> Study:
  """The maps of a set, or their means; every seed divides the classes in its own way.

  Of each class there are as many images as of the smallest. A seed's maps stand on so
  many principal directions of the maps that it learns. The network's own maps are
  computed once and kept in the folder.
  """
  pictures, labels = _even(class_sets.read(name, "train+test", lazy=True))
  source = class_sets.SOURCES[name]
  if source.sized:
    pictures = class_sets.resized(pictures, source.side, inverted=source.inverted)
  if pooled:
    maps = frozen.pooled(name, pictures, folder).images[:, None, None]
  else:
    maps = _maps(name, pictures, folder)
  classes = np.unique(labels)
  parts = [halves(labels, divided(classes, seed)) for seed in seeds]
  banks, raw = [], []
  for rows in parts:
    learned = rows.train[::4]  # enough for directions
    banks.append(projected(maps, learned, np.concatenate(rows[:3]), channels))
    average = np.asarray(maps[rows.test], np.float32).mean(axis=(1, 2))
    raw.append(average / np.linalg.norm(average, axis=1, keepdims=True))
  places = np.arange(len(seeds) * len(banks[0])).reshape(len(seeds), -1)
  first = parts[0]
  ends = np.cumsum([len(first.train), len(first.held)])
  train, held, test = np.split(places, ends, axis=1)
  return Study(
    f"{name}-{networks.LITE}-{channels}-{seeds[0]}-{len(seeds)}",
    np.concatenate(banks),
    train,
    held,
    test,
    first.train_labels,
    first.held_labels,
    first.test_labels,
    by_seed=True,
    raw=np.stack(raw),
  )


def _even(pictures: data.Images) -> tuple[data.Images, np.ndarray]:
  """Takes equally many images of each class that has enough; labels count from 0."""
  labels = np.asarray(pictures.labels)
  counts = np.bincount(labels)
  number = max(counts.min(), _FEWEST)
  rows = [
    np.flatnonzero(labels == c)[:number] for c in np.flatnonzero(counts >= number)
  ]
  return pictures[np.concatenate(rows)], np.repeat(np.arange(len(rows)), number)


def _maps(name: str, pictures: data.Images, folder: pathlib.Path) -> np.ndarray:
  network = models.pretrained(networks.LITE)
  folder.mkdir(parents=True, exist_ok=True)
  return training.keep_features(
    folder / f"{name}-{networks.LITE}.npy",
    network.features,
    pictures,
    made_with={"network": networks.LITE, "variables": network.variables},
    batch_size=32,
  )


def projected(
  maps: np.ndarray, learned: np.ndarray, used: np.ndarray, channels: int
) -> np.ndarray:
  """Projects maps on the first principal directions of the training maps, float16."""
  dim = maps.shape[-1]
  total, moments, positions = np.zeros(dim), np.zeros((dim, dim)), 0
  for part in np.array_split(np.sort(learned), max(1, len(learned) // 256)):
    points = np.asarray(maps[part], np.float32).reshape(-1, dim)
    total += points.sum(0)
    moments += points.T @ points
    positions += len(points)
  offset = total / positions
  covariance = moments / positions - np.outer(offset, offset)
  directions = np.linalg.eigh(covariance)[1][:, ::-1][:, :channels].astype(np.float32)
  reduced = np.empty((len(used), *maps.shape[1:-1], channels), np.float16)
  for first in range(0, len(used), 256):
    block = np.asarray(maps[used[first : first + 256]], np.float32)
    # One product: of four axes NumPy makes a small one for every row of positions.
    points = (block.reshape(-1, dim) - offset.astype(np.float32)) @ directions
    reduced[first : first + 256] = points.reshape(*block.shape[:-1], channels)
  return reduced
