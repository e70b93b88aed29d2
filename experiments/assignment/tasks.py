"""What the small trainings of `dynamic_assignment` look at.

Super-classes with sub-classes as Gaussians and scikit-learn's digits; for images see
`images`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from spherejax import data, hierarchy

GROUPS, PER_GROUP = 5, 4
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
  flips: bool = False
  """Whether a mirror image is of the same class."""
  tail: int = 0
  """How many of the last classes are rare; 0 for balanced training data."""

  @property
  def classes(self) -> int:
    """Number of classes."""
    return int(self.test.labels.max()) + 1


def superclass(
  key: Array, seeds: int, *, counts: tuple[int, int, int] = (60, 50, 50)
) -> Task:
  """20 classes = 5 super-classes of 4, in 64 dimensions; `counts` of each class."""
  number = GROUPS * PER_GROUP
  generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))

  def normal(*shape: int) -> np.ndarray:
    return generator.standard_normal((seeds, *shape), np.float32)

  centres = normal(GROUPS, SIZE) * CENTRE / np.float32(np.sqrt(SIZE))
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
    f"group {g}": [f"class {g}.{k}" for k in range(PER_GROUP)] for g in range(GROUPS)
  }
  tree = hierarchy.from_mapping(names)
  groups_of = np.arange(number) // PER_GROUP
  return Task("superclass", train, validation, test, tree, groups_of)


def long_tailed(task: Task, imbalance: float) -> Task:
  """The task with a long tail of training examples; the other parts stay balanced."""
  rows = data.long_tail(task.train.labels[0], imbalance)
  train = Part(task.train.inputs[:, rows], task.train.labels[:, rows])
  rare = task.classes // 3
  return task._replace(name=f"{task.name}, long tail", train=train, tail=rare)


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


def check_names(names: tuple[str, ...]) -> None:
  """Raises for a class that is there twice: its images would get two prototypes."""
  seen: set[str] = set()
  for label, name in enumerate(names):
    if name in seen:
      raise ValueError(
        f"classes must have different names, got {name!r} again at {label}"
      )
    seen.add(name)
