"""Images of the few-shot experiments, their classes split in three."""

import functools
import pathlib

import numpy as np

from experiments.episodes.drawn import Sets
from experiments.episodes.settings import Config
from experiments.frame import images as class_sets
from experiments.frame import photographs as frame_photographs
from spherejax import data

HELD_OUT = 150  # last training characters of Omniglot, to validate on
# The margin about a centre crop (Chen et al. 2019).
BORDER = 1.15


def load(config: Config) -> Sets:
  """Training, validation and test images."""
  if config.images == "omniglot":
    rows = max(*config.shots, *config.nearest_shots, 0) + max(
      config.num_queries, config.test_queries
    )
    return omniglot(config.image_size, config.percent, rows)
  if config.images == "cub":
    return cub(config.image_size)
  return mini_imagenet(config.image_size, pathlib.Path(config.folder))


def omniglot(size: int, percent: int, rows: int) -> Sets:
  """Characters of 30 alphabets to train on, of 20 others to test on; ink is 1.

  Of a share of the images, the classes that have `rows` of them.
  """
  seen = _characters("train", size, percent, rows)
  labels = np.unique(seen.labels)
  first, last = data.split_classes(
    seen.labels, groups=[labels[:-HELD_OUT].tolist(), labels[-HELD_OUT:].tolist()]
  )
  test = _characters("test", size, percent, rows)
  return Sets(seen[first], seen[last], test)


def _characters(part: str, size: int, percent: int, rows: int) -> data.Images:
  split = part if percent == 100 else f"{part}[:{percent}%]"
  found = class_sets.read("omniglot", split, size=size)
  labels = np.asarray(found.labels)
  found = found[np.flatnonzero(np.bincount(labels)[labels] >= rows)]
  return data.Images(255 - np.asarray(found.images), found.labels, found.label_names)


def cub(size: int) -> Sets:
  """Birds: every second class to train on, of the others every second to test on."""
  found = class_sets.read("caltech_birds2011", "train+test", lazy=True)
  return photographs(birds(found), size)


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
  parts = (
    data.load_folder(folder / part, lazy=True) for part in ("train", "val", "test")
  )
  return photographs(Sets(*parts), size)


def photographs(sets: Sets, size: int) -> Sets:
  """To validate and test, the centre of each; to train, all of it.

  Training images become squares before the random crops, which then are of other
  aspects than crops of the originals.
  """
  longer = round(BORDER * size)
  whole = functools.partial(frame_photographs.squared, size=longer)
  centre = functools.partial(frame_photographs.centred, size=size, shorter_side=longer)
  functions = (whole, centre, centre)
  return Sets(
    *(frame_photographs.collected(*pair) for pair in zip(sets, functions, strict=True))
  )
