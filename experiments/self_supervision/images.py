"""Images without labels to learn from, and their fine and coarse labels to look at."""

from typing import Any, NamedTuple

import numpy as np

from experiments.frame import images as class_sets
from spherejax import data, hierarchy

_DEPTH = 4  # of the coarse classes in the tree of tiny_imagenet
_EVERY = 4  # one class of so many takes part
_SIDE = 32  # of photographs that are not said to be of another one
_DIGITS = 1200  # the first ones are learned from


class Study(NamedTuple):
  """Images [count, side, side, channels], uint8, and integer labels."""

  name: str
  train: np.ndarray
  train_labels: np.ndarray
  train_coarse: np.ndarray
  test: np.ndarray
  test_labels: np.ndarray
  coarse_names: tuple[str, ...]
  """Empty where there are fine classes only."""

  @property
  def classes(self) -> int:
    """Fine ones."""
    return int(self.train_labels.max()) + 1


def load(config: Any) -> Study:
  """The images that settings name."""
  if config.images == "digits":
    return digits()
  if config.images == "cifar100":
    return cifar100()
  return photographs(config.image_size)


def photographs(side: int) -> Study:
  """Every fourth class of tiny_imagenet; coarse classes are nodes of its tree."""
  train, test = (_quarter(split, side) for split in ("train", "test"))
  tree = class_sets.tree_of("tiny_imagenet", train.label_names)
  coarse, names = _coarse(tree)
  chosen = np.unique(train.labels)
  new = np.full(len(train.label_names), -1)
  new[chosen] = np.arange(len(chosen))
  group_names, groups = np.unique(coarse[chosen], return_inverse=True)
  labels, test_labels = new[train.labels], new[test.labels]
  return Study(
    "tiny_imagenet" if side == _SIDE else f"tiny_imagenet-{side}",
    np.asarray(train.images),
    labels,
    groups[labels],
    np.asarray(test.images),
    test_labels,
    tuple(names[i] for i in group_names),
  )


def cifar100() -> Study:
  """All that is prepared, with the coarse labels that come with it."""
  train, test = (class_sets.read("cifar100", split) for split in ("train", "test"))
  if not {len(np.unique(part.labels)) for part in (train, test)} == {100}:
    raise ValueError("cifar100 must have images of its 100 classes in both splits")
  coarse = np.asarray(train.extras["coarse_label"])
  return Study(
    "cifar100",
    np.asarray(train.images),
    np.asarray(train.labels),
    coarse,
    np.asarray(test.images),
    np.asarray(test.labels),
    tuple(f"group {group}" for group in range(int(coarse.max()) + 1)),
  )


def digits() -> Study:
  """The embedded digits, 8 x 8 and grey."""
  images = data.load_digits()
  pixels, labels = np.asarray(images.images), np.asarray(images.labels)
  return Study(
    "digits", pixels[:_DIGITS], labels[:_DIGITS], labels[:_DIGITS],
    pixels[_DIGITS:], labels[_DIGITS:], (),
  )  # fmt: skip


def _quarter(split: str, side: int) -> data.Images:
  images = class_sets.read("tiny_imagenet", split, size=side)
  return images[np.flatnonzero(np.asarray(images.labels) % _EVERY == 0)]


def _coarse(tree: hierarchy.ClassTree) -> tuple[np.ndarray, tuple[str, ...]]:
  """The node of each class at a depth, or the class where it lies higher."""
  depth = hierarchy.depths(tree)
  found = tree.classes.copy()
  while (deep := depth[found] > _DEPTH).any():
    found[deep] = tree.parents[found[deep]]
  return found, tree.names
