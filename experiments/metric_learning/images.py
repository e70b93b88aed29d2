"""Images for `retrieval` and `ccp_proxies` on a CPU, with learned and test classes.

Frozen maps of a pretrained network can replace images. A network trained on ImageNet
sees each photograph once. Trainings learn a layer on its maps, the pooling and the
loss, in some cases also the network's last stage. So methods start from ImageNet
weights, as in the thesis, but are cheap enough for a CPU.
"""

import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.frame import at_once, frozen, networks
from experiments.frame import images as class_sets
from spherejax import data, models

if TYPE_CHECKING:  # the studies import this file
  from experiments.metric_learning.plan import Config
  from experiments.metric_learning.problems import Config as ProxiesConfig

# Smallest number of images of a class; leaves out 12 of the 121 plankton classes.
_FEWEST = 20


class Study(NamedTuple):
  """Images, and which of them train, validate and test, by fold.

  All folds have the same numbers of images per class, so they share labels.
  """

  train: np.ndarray  # training rows [folds, rows], like `held` and `test`; [rows] alone
  held: np.ndarray
  test: np.ndarray
  train_labels: np.ndarray
  held_labels: np.ndarray
  test_labels: np.ndarray
  name: str = ""
  images: np.ndarray = np.zeros(0)  # [count, height, width, channels], uint8 or floats
  by_seed: bool = False  # each fold belongs to one seed, which divides the classes
  watched: bool = False  # whether to measure covers after every evaluation
  raw: np.ndarray | None = None
  """Embeddings [folds, test images, dim] of a pretrained network without training."""


def divided(classes: np.ndarray, seed: int) -> list[np.ndarray]:
  """Splits classes at random: 3 of 8 train, 1 of 8 validates, and the others test."""
  classes = np.random.default_rng(seed).permutation(classes)
  half = len(classes) // 2
  return np.split(classes, [half - half // 4, half])


def _of_classes(
  labels: np.ndarray, classes: np.ndarray, most: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
  """Rows class by class, at most `most` of each, and labels that count from 0."""
  rows = [np.flatnonzero(labels == c)[:most] for c in classes]
  counts = [len(x) for x in rows]
  return np.concatenate(rows), np.repeat(np.arange(len(rows), dtype=np.int32), counts)


def halves(labels: np.ndarray, parts: list[np.ndarray]) -> Study:
  """Rows of three parts of the classes; the labels of each part count from 0."""
  (train, train_labels), (held, held_labels), (test, test_labels) = (
    _of_classes(labels, part) for part in parts
  )
  return Study(train, held, test, train_labels, held_labels, test_labels)


def of_folds(name: str, images: np.ndarray, folds: Sequence[Study]) -> Study:
  train, held, test = (np.stack(x) for x in list(zip(*folds, strict=True))[:3])
  return Study(train, held, test, *folds[0][3:6], name, images)


def study(
  config: "Config | ProxiesConfig", folder: pathlib.Path, *, pooled: bool = False
) -> Study:
  """The images of a study, or their maps, or means of these, stored in the folder."""
  if config.data == "gaussians":
    return gaussians(config.seed)._replace(watched=pooled)
  if config.data == "mnist":
    return mnist(config.image_size, *config.digit_images)
  seeds = range(config.seed, config.seed + config.seeds)
  if config.backbone == "last_stage":
    return before_last_stage(config.data, seeds, folder)
  return maps(config.data, config.channels, seeds, folder, pooled=pooled)


def mnist(size: int, train: int, held: int) -> Study:
  """Reads MNIST: of each digit, the first images train and the next validate."""
  learned = class_sets.read("mnist", "train")
  labels = np.asarray(learned.labels)
  fewest = int(np.bincount(labels).min())
  if train + held > fewest:
    raise ValueError(
      f"digit_images must be at most {fewest} in all, of the rarest digit, got"
      f" {train} and {held}"
    )
  rows, _ = _of_classes(labels, np.arange(10), train + held)
  sought = class_sets.read("mnist", "test")
  pictures = [*learned[rows].images, *sought.images]
  place = np.arange(len(rows)).reshape(10, -1)
  return Study(
    place[:, :train].reshape(1, -1),
    place[:, train:].reshape(1, -1),
    len(rows) + np.arange(len(sought))[None],
    np.repeat(np.arange(10, dtype=np.int32), train),
    np.repeat(np.arange(10, dtype=np.int32), held),
    np.asarray(sought.labels, np.int32),
    f"mnist-{size}-{train}-{held}",
    np.stack([class_sets.squared(x[..., :1], size=size) for x in pictures]),
    watched=True,
  )


def gaussians(seed: int) -> Study:
  """Draws twenty classes of ten points in 16 dimensions, as images of 4 x 4."""
  random = np.random.default_rng(seed)
  centres = random.normal(size=(20, 1, 16))
  points = centres + 0.7 * random.normal(size=(20, 10, 16))
  images = points.reshape(200, 4, 4, 1).astype(np.float32)
  rows = halves(np.repeat(np.arange(20), 10), np.split(np.arange(20), [7, 10]))
  return of_folds(f"gaussians-{seed}", images, [rows])


def maps(
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
    stored = frozen.pooled(name, pictures, folder).images[:, None, None]
  else:
    network = models.pretrained(networks.LITE)
    path = folder / f"{name}-{networks.LITE}.npy"
    stored = frozen.stored(path, network, network.features, pictures)
  # A quarter of the training images is enough for directions.
  banks = [
    projected(stored, rows.train[::4], np.concatenate(rows[:3]), channels)
    for rows in parts
  ]
  places = np.arange(len(seeds) * len(banks[0])).reshape(len(seeds), -1)
  ends = np.cumsum([len(parts[0].train), len(parts[0].held)])
  train, held, test = np.split(places, ends, axis=1)
  described = f"{name}-{networks.LITE}-{channels}-{seeds[0]}-{len(seeds)}"
  study = Study(train, held, test, *parts[0][3:6], described, np.concatenate(banks))
  raw = np.stack([_averages(stored[rows.test]) for rows in parts])
  return study._replace(by_seed=True, raw=raw)


def before_last_stage(name: str, seeds: Sequence[int], folder: pathlib.Path) -> Study:
  """The inputs of the network's last stage, divided as in `maps`."""
  pictures, parts = _divided(name, seeds)
  network = models.pretrained(networks.LITE)
  first, last = (
    network.module.clone(parts=x) for x in (networks.BEFORE_LAST, networks.LAST_STAGE)
  )
  see = jax.jit(lambda pixels: first.apply(network.variables, network.scaled(pixels)))
  path = folder / f"{name}-before-last-{networks.LITE}.npy"
  stored = np.asarray(frozen.stored(path, network, see, pictures))
  finish = jax.jit(lambda x: last.apply(network.variables, x.astype(jnp.float32)))
  raw = [
    _averages(at_once.mapped(finish, jnp.asarray(stored[rows.test]))) for rows in parts
  ]
  described = f"{name}-{networks.LITE}-before-last-{seeds[0]}-{len(seeds)}"
  study = of_folds(described, stored, parts)
  return study._replace(by_seed=True, raw=np.stack(raw))


def _divided(name: str, seeds: Sequence[int]) -> tuple[data.Images, list[Study]]:
  """Equally many images of each class that has enough, and each seed's rows of them."""
  pictures = class_sets.read(name, "train+test", lazy=True)
  labels = np.asarray(pictures.labels)
  counts = np.bincount(labels)
  number = max(counts.min(), _FEWEST)
  rows, labels = _of_classes(labels, np.flatnonzero(counts >= number), number)
  classes = np.unique(labels)
  parts = [halves(labels, divided(classes, seed)) for seed in seeds]
  return pictures[rows], parts


def _averages(maps: np.ndarray | jax.Array) -> np.ndarray:
  average = np.asarray(maps, np.float32).mean(axis=(1, 2))
  return average / np.linalg.norm(average, axis=1, keepdims=True)


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
