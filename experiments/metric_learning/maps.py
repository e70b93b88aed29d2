"""Frozen maps of a pretrained network, in the place of images, for `retrieval`.

A network of ImageNet's sees each photograph, or collage of four, once; what is trained
is the layer on its maps, the pooling and the loss. So the methods begin where the
thesis's begin, at a price that a CPU can pay.
"""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.frame import at_once, beside, networks
from experiments.frame import images as class_sets
from experiments.metric_learning.images import Study, divided, halves
from spherejax import data, distances, hierarchy, models, pooling, training

SETS = ("cars196", "cub_birds100", "collages")
_EACH = 60  # collages of a class
_ANIMAL, _ARTEFACT = "n00015388", "n00021939"  # of WordNet


def study(
  name: str, channels: int, seeds: Sequence[int], folder: pathlib.Path
) -> Study:
  """The maps of a set; every seed divides the classes in its own way.

  Of each class there are as many images as of the smallest. A seed's maps stand on so
  many principal directions of the maps that it learns. The network's own maps are
  computed once and kept in the folder.
  """
  pictures = None
  if name != "collages":
    pictures = class_sets.read(name, "train+test", lazy=True)
  banks, parts, raw = [], [], []
  for seed in seeds:
    whole = collages(seed) if pictures is None else pictures
    title = f"{name}-{seed}" if pictures is None else name
    maps, labels = read_maps(title, whole, folder), np.asarray(whole.labels)
    counts = np.bincount(labels)
    divisions = divided(np.arange(len(counts)), seed)
    rows = halves(labels, divisions, counts.min())
    used = np.concatenate(rows[:3])
    learned = rows.train[::4]  # enough for directions
    banks.append(projected(maps, learned, used, channels))
    average = np.asarray(maps[rows.test], np.float32).mean(axis=(1, 2))
    raw.append(average / np.linalg.norm(average, axis=1, keepdims=True))
    parts.append(rows)
  number = len(banks[0])
  ends = np.cumsum([len(x) for x in parts[0][:2]])
  places = np.arange(len(seeds) * number).reshape(len(seeds), number)
  return Study(
    f"{name}-{networks.LITE}-{channels}-{seeds[0]}-{len(seeds)}",
    np.concatenate(banks),
    *np.split(places, ends, axis=1),
    *parts[0][3:],
    by_seed=True,
    raw=np.stack(raw),
  )


def before_last_stage(name: str, seeds: Sequence[int], folder: pathlib.Path) -> Study:
  """The maps that the network's last stage sees, divided as in `study`."""
  pictures = class_sets.read(name, "train+test", lazy=True)
  labels = np.asarray(pictures.labels)
  counts = np.bincount(labels)
  divisions = [divided(np.arange(len(counts)), seed) for seed in seeds]
  parts = [halves(labels, division, counts.min()) for division in divisions]
  train, held, test = (np.stack(rows) for rows in list(zip(*parts, strict=True))[:3])
  maps = read_maps(name, pictures, folder, parts=(0, networks.LAST))
  title = f"{name}-{networks.LITE}-{networks.LAST}-{seeds[0]}-{len(seeds)}"
  raw = _averaged(maps)[test]
  return Study(title, maps, train, held, test, *parts[0][3:], by_seed=True, raw=raw)


def _averaged(maps: np.ndarray) -> np.ndarray:
  """[images, 1280], of length 1: the network's averaged maps without training."""
  variables = networks.end_variables()

  def embed(block: Array) -> Array:
    ended: Any = networks.end().apply(variables, block.astype(jnp.float32))
    return distances.l2_normalize(pooling.gap(ended))

  return np.asarray(at_once.mapped(embed, jnp.asarray(maps)))


def read_maps(
  name: str,
  pictures: data.Images,
  folder: pathlib.Path,
  parts: tuple[int, int] | None = None,
) -> np.memmap:
  """Maps [images, height, width, channels] in a file of the folder.

  `parts` of the network make them; None: all.
  """
  network, made_with = models.pretrained(networks.LITE), {"network": networks.LITE}
  ending = networks.LITE
  if parts is not None:
    network = dataclasses.replace(network, module=network.module.clone(parts=parts))
    made_with["parts"] = f"{parts}"
    ending += f"-{parts[1]}"
  folder.mkdir(parents=True, exist_ok=True)
  return training.keep_features(
    folder / f"{name}-{ending}.npy",
    network.features,
    pictures,
    made_with={**made_with, "variables": network.variables},
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


def collages(seed: int) -> data.Images:
  """An animal of Tiny ImageNet among three artefacts."""
  photographs = class_sets.read("tiny_imagenet", "train+test")
  tree = hierarchy.from_csv(
    beside.newest_file("tiny_imagenet", "hierarchy.csv"),
    classes=photographs.label_names,
  )
  animals, artefacts = (
    np.flatnonzero(hierarchy.classes_below(tree, node)) for node in (_ANIMAL, _ARTEFACT)
  )
  return collages_of(photographs, animals, artefacts, seed)


def collages_of(
  photographs: data.Images, animals: np.ndarray, artefacts: np.ndarray, seed: int
) -> data.Images:
  """2 x 2 tiles, one of the first classes, which is the label, three of the others.

  The tiles around the classes that the seed learns, validates and seeks are of other
  classes each.
  """
  labels, pixels = np.asarray(photographs.labels), np.asarray(photographs.images)
  random, tiles, tile_labels = np.random.default_rng(seed), [], []
  class_folds = [animals[part] for part in divided(np.arange(len(animals)), seed)]
  for classes, around in zip(class_folds, divided(artefacts, seed), strict=True):
    backs = np.flatnonzero(np.isin(labels, around))
    for label in classes:
      fronts = np.flatnonzero(labels == label)[:_EACH]
      rows = np.column_stack([fronts, random.choice(backs, (len(fronts), 3))])
      tiles.append(random.permuted(rows, axis=1))
      tile_labels += [label] * len(fronts)
  four = pixels[np.concatenate(tiles)]  # [collages, 4, height, width, channels]
  upper, lower = (np.concatenate([four[:, i], four[:, i + 1]], 2) for i in (0, 2))
  names = tuple(photographs.label_names[label] for label in animals)
  numbered = np.searchsorted(animals, tile_labels).astype(np.int32)
  joined = np.concatenate([upper, lower], 1)
  return data.from_arrays(joined, numbered, label_names=names)
