"""Frozen maps of a pretrained network, in the place of images, for `retrieval`.

A network of ImageNet's sees each photograph, or collage of four, once; what is trained
is the layer on its maps, the pooling and the loss. So the methods begin where the
thesis's begin, at a price that a CPU can pay.
"""

import pathlib

import numpy as np

from experiments.frame import beside
from experiments.frame import images as class_sets
from experiments.metric_learning.images import Study, divided, halves
from spherejax import data, hierarchy, models, training

NETWORK = "efficientnet_lite0"
SETS = ("cars196", "cub_birds100", "collages")
_EACH = 60  # images of a class, at most
_ANIMAL, _ARTEFACT = "n00015388", "n00021939"  # of WordNet


def study(name: str, channels: int, folder: pathlib.Path) -> Study:
  """The maps of a set, on so many principal directions of those that are learned.

  They are computed once and kept in the folder.
  """
  pictures = (
    collages() if name == "collages" else class_sets.read(name, "train+test", lazy=True)
  )
  rows = halves(np.asarray(pictures.labels), _EACH)
  maps = kept(name, pictures, folder)
  fitted = projected(maps, rows.train, channels)
  raw = np.asarray(maps[rows.test], np.float32).mean(axis=(1, 2))
  return Study(
    f"{name}-{NETWORK}-{channels}",
    fitted,
    rows.train[None],
    rows.held[None],
    rows.train_labels,
    rows.held_labels,
    fitted[rows.test],
    rows.test_labels,
    raw=raw / np.linalg.norm(raw, axis=1, keepdims=True),
  )


def kept(name: str, pictures: data.Images, folder: pathlib.Path) -> np.memmap:
  """Maps [images, height, width, 1280] in a file of the folder."""
  network = models.pretrained(NETWORK)
  folder.mkdir(parents=True, exist_ok=True)
  return training.keep_features(
    folder / f"{name}-{NETWORK}.npy",
    network.features,
    pictures,
    made_with={"network": NETWORK, "variables": network.variables},
    batch_size=32,
  )


def projected(maps: np.ndarray, rows: np.ndarray, channels: int) -> np.ndarray:
  """All maps on the first principal directions of the positions of some, float32."""
  dim = maps.shape[-1]
  total, moments, positions = np.zeros(dim), np.zeros((dim, dim)), 0
  for part in np.array_split(np.sort(rows), max(1, len(rows) // 256)):
    points = np.asarray(maps[part], np.float32).reshape(-1, dim)
    total += points.sum(0)
    moments += points.T @ points
    positions += len(points)
  offset = total / positions
  covariance = moments / positions - np.outer(offset, offset)
  directions = np.linalg.eigh(covariance)[1][:, ::-1][:, :channels].astype(np.float32)
  found = np.empty((*maps.shape[:-1], channels), np.float32)
  for first in range(0, len(maps), 256):
    block = np.asarray(maps[first : first + 256], np.float32)
    found[first : first + 256] = (block - offset.astype(np.float32)) @ directions
  return found


def collages() -> data.Images:
  """An animal of Tiny ImageNet among three artefacts."""
  photographs = class_sets.read("tiny_imagenet", "train+test")
  tree = hierarchy.from_csv(
    beside.beside("tiny_imagenet", "hierarchy.csv"), classes=photographs.label_names
  )
  animals, artefacts = (
    np.flatnonzero(hierarchy.classes_below(tree, node)) for node in (_ANIMAL, _ARTEFACT)
  )
  return collages_of(photographs, animals, artefacts)


def collages_of(
  photographs: data.Images, animals: np.ndarray, artefacts: np.ndarray
) -> data.Images:
  """2 x 2 tiles, one of the first classes, which is the label, three of the others.

  The tiles around classes that are learned, validated and sought are of other classes
  each.
  """
  labels, pixels = np.asarray(photographs.labels), np.asarray(photographs.images)
  random, tiles, found = np.random.default_rng(0), [], []
  for own, around in zip(divided(animals), divided(artefacts), strict=True):
    backs = np.flatnonzero(np.isin(labels, around))
    for label in own:
      fronts = np.flatnonzero(labels == label)[:_EACH]
      rows = np.column_stack([fronts, random.choice(backs, (len(fronts), 3))])
      tiles.append(random.permuted(rows, axis=1))
      found += [label] * len(fronts)
  four = pixels[np.concatenate(tiles)]  # [collages, 4, height, width, channels]
  upper, lower = (np.concatenate([four[:, i], four[:, i + 1]], 2) for i in (0, 2))
  names = tuple(photographs.label_names[label] for label in animals)
  numbered = np.searchsorted(animals, found).astype(np.int32)
  joined = np.concatenate([upper, lower], 1)
  return data.from_arrays(joined, numbered, label_names=names)
