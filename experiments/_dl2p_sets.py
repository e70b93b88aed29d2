"""What the small trainings of `dynamic_assignment` look at.

Super-classes with sub-classes as Gaussians, scikit-learn's digits, and photographs of
tiny_imagenet whose super-classes are inner nodes of its WordNet tree.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments import _beside, _class_sets
from spherejax import data, hierarchy

# Inner nodes of WordNet with at least four classes each: dog, insect, motor vehicle,
# garment, geological formation.
GROUPS = ("n02084071", "n02159955", "n03791235", "n03419014", "n09287968")
PER_GROUP = 4
# Super-class centres, class offsets and noise of `superclass`: norms 12 and 4 in 64
# dimensions, and 1 in every one.
SIZE, CENTRE, OFFSET = 64, 12.0, 4.0


class Part(NamedTuple):
  """Examples of one part, drawn for each seed."""

  inputs: Array
  """[seeds, count, ...], or [1, count, ...] where all seeds have the same."""
  labels: Array
  """[seeds or 1, count]."""


class Task(NamedTuple):
  """A data set in three parts."""

  name: str
  train: Part
  validation: Part
  test: Part
  tree: hierarchy.ClassTree | None
  """Of the classes; None where none is known."""
  superclasses: np.ndarray | None
  """[classes], group of each class."""

  @property
  def classes(self) -> int:
    """Number of classes."""
    return int(self.test.labels.max()) + 1


def superclass(
  key: Array,
  seeds: int,
  *,
  groups: int = 5,
  counts: tuple[int, int, int] = (60, 50, 50),
) -> Task:
  """20 classes = 5 super-classes of 4, in 64 dimensions; `counts` of each class."""
  number = groups * PER_GROUP
  generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))

  def normal(*shape: int) -> np.ndarray:
    return generator.standard_normal((seeds, *shape), np.float32)

  centres = normal(groups, SIZE) * CENTRE / np.float32(np.sqrt(SIZE))
  offsets = normal(number, SIZE) * OFFSET / np.float32(np.sqrt(SIZE))
  classes = np.repeat(centres, PER_GROUP, axis=1) + offsets
  train, validation, test = (
    Part(
      jnp.asarray(np.repeat(classes, n, axis=1) + normal(number * n, SIZE)),
      jnp.asarray(np.tile(np.repeat(np.arange(number), n), (seeds, 1))),
    )
    for n in counts
  )
  names = {
    f"group {g}": [f"class {g}.{k}" for k in range(PER_GROUP)] for g in range(groups)
  }
  tree = hierarchy.from_mapping(names)
  groups_of = np.arange(number) // PER_GROUP
  return Task("superclass", train, validation, test, tree, groups_of)


def long_tailed(task: Task, imbalance: float) -> Task:
  """The task with a long tail of training examples; the other parts stay balanced."""
  rows = data.long_tail(task.train.labels[0], imbalance)
  train = Part(task.train.inputs[:, rows], task.train.labels[:, rows])
  return task._replace(name=f"{task.name}, long tail", train=train)


def digits(key: Array, seeds: int) -> Task:
  """scikit-learn's digits: a half and two quarters, drawn anew for every seed."""
  images = data.load_digits()
  inputs = np.asarray(images.images).reshape(len(images), -1) / np.float32(255)
  inputs = (inputs - inputs.mean()) / inputs.std()
  drawn = [
    data.split_within_classes(images.labels, fractions=(0.5, 0.25, 0.25), key=own)
    for own in jax.random.split(key, seeds)
  ]
  train, validation, test = (
    Part(
      jnp.stack([inputs[rows] for rows in part]),
      jnp.stack([images.labels[rows] for rows in part]),
    )
    for part in zip(*drawn, strict=True)
  )
  return Task("digits", train, validation, test, None, None)


def photographs(size: int) -> Task:
  """20 classes of tiny_imagenet in 5 super-classes of its tree.

  Of the training images of a class the last fifth is for validation.
  """
  read = {
    part: _class_sets.read("tiny_imagenet", part, size=size)
    for part in ("train", "test")
  }
  names = read["train"].label_names
  check_names(names)
  path = _beside.beside("tiny_imagenet", "hierarchy.csv")
  tree = hierarchy.from_csv(path, classes=names)
  chosen = [
    np.flatnonzero(hierarchy.classes_below(tree, group))[:PER_GROUP] for group in GROUPS
  ]
  kept = np.concatenate(chosen)
  train, test = (_of_classes(images, kept) for images in read.values())
  first, last = data.split_within_classes(train.labels, fractions=(0.8, 0.2))
  parts = (
    Part(jnp.asarray(x.images)[None], jnp.asarray(x.labels)[None])
    for x in (train[first], train[last], test)
  )
  learned, held_out, tested = parts
  tree = hierarchy.restrict(tree, [names[label] for label in kept])
  groups = np.repeat(np.arange(len(GROUPS)), PER_GROUP)
  return Task("tiny_imagenet", learned, held_out, tested, tree, groups)


def _of_classes(images: data.Images, kept: np.ndarray) -> data.Images:
  """The images of some classes, labelled by their number in `kept`."""
  own = images[np.isin(images.labels, kept)]
  order = np.full(len(images.label_names), -1, np.int32)
  order[kept] = np.arange(len(kept))
  names = tuple(images.label_names[label] for label in kept)
  return data.Images(np.asarray(own.images), order[own.labels], names)


def check_names(names: tuple[str, ...]) -> None:
  """Raises for a class that is there twice: its images would get two prototypes."""
  seen: set[str] = set()
  for label, name in enumerate(names):
    if name in seen:
      raise ValueError(
        f"classes must have different names, got {name!r} again at {label}"
      )
    seen.add(name)
