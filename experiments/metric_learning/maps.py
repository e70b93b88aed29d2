"""Frozen maps of a pretrained network, which replace the images, for `retrieval`.

A network trained on ImageNet sees each photograph once. Trainings learn a layer on its
maps, the pooling and the loss, in some cases also the network's last stage. So methods
start from ImageNet weights, as in the thesis, but are cheap enough for a CPU.
"""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.frame import at_once, frozen, networks
from experiments.frame import images as class_sets
from experiments.metric_learning.images import Halves, Study, divided, halves
from spherejax import data, models, training

_FEWEST = 20
"""Smallest number of images of a class; leaves out 12 of the 121 plankton classes."""


def study(
  name: str, channels: int, seeds: Sequence[int], folder: pathlib.Path, *, pooled: bool
) -> Study:
  """The maps of a set, or their means; every seed divides the classes anew.

  Each class has as many images as the smallest. A seed's maps are projected on the
  first `channels` principal directions of its training maps. The network's maps are
  computed once and stored in the folder.
  """
  pictures, parts = _divided(name, seeds)
  source = class_sets.SOURCES[name]
  if source.sized:
    pictures = class_sets.resized(pictures, source.side, inverted=source.inverted)
  if pooled:
    maps = frozen.pooled(name, pictures, folder).images[:, None, None]
  else:
    network = models.pretrained(networks.LITE)
    maps = _stored(name, network, network.features, pictures, folder)
  banks, raw = [], []
  for rows in parts:
    learned = rows.train[::4]  # enough for directions
    banks.append(projected(maps, learned, np.concatenate(rows[:3]), channels))
    raw.append(_averages(maps[rows.test]))
  places = np.arange(len(seeds) * len(banks[0])).reshape(len(seeds), -1)
  ends = np.cumsum([len(parts[0].train), len(parts[0].held)])
  described = f"{name}-{networks.LITE}-{channels}-{seeds[0]}-{len(seeds)}"
  rows = np.split(places, ends, axis=1)
  return _study(described, np.concatenate(banks), rows, parts[0], raw)


def before_last_stage(name: str, seeds: Sequence[int], folder: pathlib.Path) -> Study:
  """The inputs of the network's last stage, divided as in `study`."""
  pictures, parts = _divided(name, seeds)
  network = models.pretrained(networks.LITE)
  first, last = (
    network.module.clone(parts=x) for x in (networks.BEFORE_LAST, networks.LAST_STAGE)
  )
  see = jax.jit(lambda pixels: first.apply(network.variables, network.scaled(pixels)))
  maps = np.asarray(_stored(f"{name}-before-last", network, see, pictures, folder))

  @jax.jit
  def finish(rows: jax.Array) -> Any:
    return last.apply(network.variables, rows.astype(jnp.float32))

  raw = [
    _averages(at_once.mapped(finish, jnp.asarray(maps[rows.test]))) for rows in parts
  ]
  described = f"{name}-{networks.LITE}-before-last-{seeds[0]}-{len(seeds)}"
  rows = [np.stack(part) for part in list(zip(*parts, strict=True))[:3]]
  return _study(described, maps, rows, parts[0], raw)


def _divided(name: str, seeds: Sequence[int]) -> tuple[data.Images, list[Halves]]:
  """The images, and each seed's rows of them."""
  pictures, labels = _even(class_sets.read(name, "train+test", lazy=True))
  classes = np.unique(labels)
  return pictures, [halves(labels, divided(classes, seed)) for seed in seeds]


def _averages(maps: Any) -> np.ndarray:
  average = np.asarray(maps, np.float32).mean(axis=(1, 2))
  return average / np.linalg.norm(average, axis=1, keepdims=True)


def _study(
  name: str,
  images: np.ndarray,
  rows: Sequence[np.ndarray],
  first: Halves,
  raw: Sequence[np.ndarray],
) -> Study:
  train, held, test = rows
  return Study(
    name,
    images,
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


def _stored(
  name: str,
  network: models.PretrainedNetwork,
  see: Callable[[Any], Any],
  pictures: data.Images,
  folder: pathlib.Path,
) -> np.ndarray:
  folder.mkdir(parents=True, exist_ok=True)
  return training.keep_features(
    folder / f"{name}-{networks.LITE}.npy",
    see,
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
    # One product; with four axes, NumPy would compute one for every row of positions.
    points = (block.reshape(-1, dim) - offset.astype(np.float32)) @ directions
    reduced[first : first + 256] = points.reshape(*block.shape[:-1], channels)
  return reduced
