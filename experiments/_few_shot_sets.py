"""Images of the few-shot experiments, their classes split in three."""

import pathlib

import numpy as np

from experiments import _pooled_network
from experiments._few_shot_training import Sets
from spherejax import data

HELD_OUT = 150  # last training characters of Omniglot, to validate on
# The margin about a centre crop (Chen et al. 2019).
BORDER = 1.15


def omniglot(size: int) -> Sets:
  """Characters of 30 alphabets to train on, of 20 others to test on; ink is 1."""
  seen = _inverted(_pooled_network.load("omniglot", "train", size))
  labels = np.unique(seen.labels)
  first, last = data.split_classes(
    seen.labels, groups=[labels[:-HELD_OUT].tolist(), labels[-HELD_OUT:].tolist()]
  )
  test = _inverted(_pooled_network.load("omniglot", "test", size))
  return Sets(seen[first], seen[last], test)


def _inverted(images: data.Images) -> data.Images:
  return data.Images(255 - np.asarray(images.images), images.labels, images.label_names)


def cub(size: int) -> Sets:
  """Birds: every second class to train on, of the others every second to test on."""
  side = round(BORDER * size)
  found = _pooled_network.load("caltech_birds2011", "train+test", side)
  return birds(found)


def birds(images: data.Images) -> Sets:
  """The split of Chen et al. 2019 by the number of the class."""
  number = len(images.label_names)
  groups = [
    list(range(*part)) for part in ((0, number, 2), (1, number, 4), (3, number, 4))
  ]
  return Sets(*(images[r] for r in data.split_classes(images.labels, groups=groups)))


def mini_imagenet(size: int, folder: pathlib.Path) -> Sets:
  """Folders train, val and test, each with a folder for every class."""
  for part in ("train", "val", "test"):
    if not (folder / part).is_dir():
      raise SystemExit(
        f"--folder must hold the folders train, val and test of mini-ImageNet (64, 16"
        f" and 20 classes of 600 images), got {folder} without {part}"
      )
  side = round(BORDER * size)
  return Sets(
    *(data.load_folder(folder / part, size=side) for part in ("train", "val", "test"))
  )
