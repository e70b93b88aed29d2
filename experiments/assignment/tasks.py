"""Data sets of the small trainings of `dynamic_assignment`.

There are Gaussian super-classes with separate or overlapping sub-classes, and
scikit-learn's digits. Images with super-classes are photographs of tiny_imagenet under
inner nodes of its WordNet tree, characters of omniglot by alphabet, and ndsb_plankton
with its long tail.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.frame import images as class_sets
from spherejax import data, hierarchy

GROUPS, PER_GROUP = 5, 4
# In `superclass`, super-class centres have norm 12, class offsets norm 4, in 64
# dimensions; the noise has deviation 1 in each.
SIZE, CENTRE, OFFSET = 64, 12.0, 4.0
# `siblings` has offsets so small that classes of a group overlap, and more examples.
OVERLAP, MORE = 2.0, (150, 50, 100)
# Inner nodes of WordNet with at least four classes each: dog, insect, motor vehicle,
# garment, geological formation.
WORDNET = ("n02084071", "n02159955", "n03791235", "n03419014", "n09287968")
# Alphabets of omniglot, and characters of each.
ALPHABETS, CHARACTERS = 5, 10
# Most images per plankton class, to learn and to validate; over a third have below 60.
MOST = 100


class Part(NamedTuple):
  """Examples of one part, drawn for each seed."""

  inputs: Array  # [seeds, count, ...], or [1, count, ...] if all seeds share them
  labels: Array  # [seeds or 1, count]


class Task(NamedTuple):
  """A data set in three parts."""

  name: str
  train: Part
  validation: Part
  test: Part
  tree: hierarchy.ClassTree | None  # class tree; None if unknown
  superclasses: np.ndarray | None  # group of each class, [classes]
  flips: bool = False  # whether mirror images keep their class
  tail: int = 0  # number of rare classes, the last ones; 0 for balanced training data

  @property
  def classes(self) -> int:
    return int(self.test.labels.max()) + 1


def superclass(
  key: Array,
  seeds: int,
  *,
  counts: tuple[int, int, int] = (60, 50, 50),
  offset: float = OFFSET,
) -> Task:
  """Draws 20 classes in 5 super-classes, 64-D; `counts` gives images per class."""
  number = GROUPS * PER_GROUP
  generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))

  def normal(*shape: int) -> np.ndarray:
    return generator.standard_normal((seeds, *shape), np.float32)

  centres = normal(GROUPS, SIZE) * CENTRE / np.float32(np.sqrt(SIZE))
  offsets = normal(number, SIZE) * offset / np.float32(np.sqrt(SIZE))
  classes = np.repeat(centres, PER_GROUP, axis=1) + offsets
  train, validation, test = (
    Part(
      jnp.asarray(np.repeat(classes, n, axis=1) + normal(number * n, SIZE)),
      jnp.asarray(np.tile(np.repeat(np.arange(number), n), (seeds, 1))),
    )
    for n in counts
  )
  names = {
    f"group {g}": [f"class {g}.{k}" for k in range(PER_GROUP)] for g in range(GROUPS)
  }
  tree, groups = hierarchy.from_mapping(names), np.arange(number) // PER_GROUP
  return Task("superclass", train, validation, test, tree, groups)


def siblings(key: Array, seeds: int) -> Task:
  """Draws `superclass` with classes that overlap within their super-class."""
  return superclass(key, seeds, counts=MORE, offset=OVERLAP)._replace(name="siblings")


def long_tailed(task: Task, imbalance: float) -> Task:
  """Gives the training examples a long tail; the other parts stay balanced."""
  rows = data.long_tail(task.train.labels[0], imbalance)
  train = Part(task.train.inputs[:, rows], task.train.labels[:, rows])
  rare = task.classes // 3
  return task._replace(name=f"{task.name}, long tail", train=train, tail=rare)


def digits(key: Array, seeds: int) -> Task:
  """Splits scikit-learn's digits into a half and two quarters, anew for every seed."""
  images = data.load_digits()
  inputs = np.asarray(images.images).reshape(len(images), -1) / np.float32(255)
  inputs = (inputs - inputs.mean()) / inputs.std()
  splits = [
    data.split_within_classes(images.labels, fractions=(0.5, 0.25, 0.25), key=split_key)
    for split_key in jax.random.split(key, seeds)
  ]
  train, validation, test = (
    Part(
      jnp.stack([inputs[rows] for rows in part]),
      jnp.stack([images.labels[rows] for rows in part]),
    )
    for part in zip(*splits, strict=True)
  )
  return Task("digits", train, validation, test, None, None)


def check_names(names: tuple[str, ...]) -> None:
  """Raises ValueError for a repeated class: its images would get two prototypes."""
  for label, name in enumerate(names):
    if name in names[:label]:
      raise ValueError(
        f"classes must have different names, got {name!r} again at {label}"
      )


def photographs(size: int) -> Task:
  """Reads 20 classes of tiny_imagenet, in 5 super-classes of its class tree.

  The last fifth of a class's training images is for validation.
  """
  parts = [class_sets.read("tiny_imagenet", x, size=size) for x in ("train", "test")]
  names = parts[0].label_names
  check_names(names)
  tree = class_sets.tree_of("tiny_imagenet", names)
  group_labels = [
    np.flatnonzero(hierarchy.classes_below(tree, group))[:PER_GROUP]
    for group in WORDNET
  ]
  train, test = (
    data.take_classes(images, np.concatenate(group_labels)) for images in parts
  )
  groups = np.repeat(np.arange(len(WORDNET)), PER_GROUP)
  return _task("tiny_imagenet", train, test, tree, groups)._replace(flips=True)


def characters(size: int) -> Task:
  """Reads 50 characters of omniglot; the super-classes are their five alphabets.

  Of 20 images of a character, 13 train, 3 validate and 4 test.
  """
  images = class_sets.prepared("omniglot", "train", size)
  tree = class_sets.tree_of("omniglot", images.label_names)
  alphabets = superclasses(tree, depth=1)
  group_labels = [
    rows[:CHARACTERS]
    for rows in (np.flatnonzero(alphabets == a) for a in np.unique(alphabets))
    if len(rows) >= CHARACTERS and np.isin(rows[:CHARACTERS], images.labels).all()
  ]
  images = data.take_classes(images, np.concatenate(group_labels[:ALPHABETS]))
  groups = np.repeat(np.arange(ALPHABETS), CHARACTERS)
  return _task("omniglot", *_divided(images), tree, groups)


def plankton(size: int) -> Task:
  """Reads all classes of ndsb_plankton, most frequent first.

  A class has at most 100 training images, the last fifth of them for validation.
  Super-classes are the branches of the tree at depth 2.
  """
  whole = class_sets.load("ndsb_plankton", size)
  counts = np.bincount(whole.images.labels)
  order = np.argsort(-counts, kind="stable")
  train, test = (
    data.take_classes(images, order)
    for images in (whole.images, whole.tested)
    if images is not None
  )
  class_rows = [np.flatnonzero(train.labels == c)[:MOST] for c in range(len(order))]
  train = train[np.concatenate(class_rows)]
  tree = hierarchy.restrict(whole.tree, train.label_names)
  task = _task("ndsb_plankton", train, test, tree, superclasses(tree, 2))
  return task._replace(flips=True, tail=len(order) // 3)


READERS = {
  "tiny_imagenet": photographs,
  "omniglot": characters,
  "ndsb_plankton": plankton,
}


def superclasses(tree: hierarchy.ClassTree, depth: int) -> np.ndarray:
  """Number of each class's branch at a depth, [classes]; a higher class is a branch."""
  return np.unique(hierarchy.at_depth(tree, depth), return_inverse=True)[1]


def _divided(images: data.Images) -> tuple[data.Images, data.Images]:
  """Splits off the last fifth of every class."""
  first, last = data.split_within_classes(images.labels, fractions=(0.8, 0.2))
  return images[first], images[last]


def _task(
  name: str,
  train: data.Images,
  test: data.Images,
  tree: hierarchy.ClassTree,
  groups: np.ndarray,
) -> Task:
  """A task of images; the last fifth of a class's training images validates."""
  train_part, validation_part, test_part = (
    Part(jnp.asarray(x.images)[None], jnp.asarray(x.labels)[None])
    for x in (*_divided(train), test)
  )
  tree = hierarchy.restrict(tree, train.label_names)
  return Task(name, train_part, validation_part, test_part, tree, groups)
