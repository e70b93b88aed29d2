"""Image sets of DL2P's tables: read, cut to a long tail or a listing, checked."""

import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments import (
  _article_trees,
  _beside,
  _class_sets,
  _dl2p_methods,
  _dl2p_sets,
)
from spherejax import data, hierarchy

# Names of the part that figures are of, where it is not "test".
_TEST = {"imagenet2012": "validation"}


class Sets(NamedTuple):
  """An image set in parts."""

  name: str
  train: data.Images
  validation: data.Images | None
  test: data.Images


def load(
  name: str,
  *,
  size: int,
  lazy: bool = False,
  imbalance: float = 1.0,
  validation: float = 0.0,
  listing: pathlib.Path | None = None,
  key: Array,
) -> Sets:
  """Reads a set; everything that cannot be trained on ends here, with its name."""
  train, test = (
    _class_sets.read(name, part, size=size, channels=3, lazy=lazy)
    for part in ("train", _TEST.get(name, "test"))
  )
  return cut(
    name,
    train,
    test,
    imbalance=imbalance,
    validation=validation,
    listing=listing,
    key=key,
  )


def cut(
  name: str,
  train: data.Images,
  test: data.Images,
  *,
  imbalance: float = 1.0,
  validation: float = 0.0,
  listing: pathlib.Path | None = None,
  key: Array,
) -> Sets:
  """The parts that are used: a long tail, a listing, images held out."""
  _dl2p_sets.check_names(train.label_names)
  if train.label_names != test.label_names:
    raise ValueError(f"{name}: training and test images have different classes")
  for part, images in (("training", train), ("test", test)):
    if images.labels.min() < 0:
      row = int(np.argmin(images.labels))
      raise ValueError(f"{name}: {part} image {row} has no label")
  if listing is not None:
    train = train[listed(train, listing)]
  tail_key, split_key = jax.random.split(key)
  if imbalance < 1:
    train = train[data.long_tail(train.labels, imbalance, key=tail_key)]
  held_out = None
  if validation:
    shares = (1 - validation, validation)
    first, last = data.split_within_classes(
      train.labels, fractions=shares, key=split_key
    )
    train, held_out = train[first], train[last]
  there = np.bincount(train.labels, minlength=len(train.label_names))
  if not there.all():
    empty = train.label_names[int(np.argmin(there))]
    raise ValueError(f"{name}: class {empty!r} is left without a training image")
  return Sets(name, train, held_out, test)


def listed(images: data.Images, listing: pathlib.Path) -> np.ndarray:
  """Rows of the images that a file names, by the file names of the set."""
  if "file_name" not in images.extras:
    raise ValueError(f"{listing} names images, but the set has no file names")
  lines = [line.split() for line in listing.read_text().splitlines() if line.strip()]
  wanted = {line[0].rsplit("/", 1)[-1] for line in lines}
  rows = np.flatnonzero(np.isin(images.extras["file_name"], sorted(wanted)))
  if len(rows) != len(wanted):
    there = set(np.asarray(images.extras["file_name"])[rows].tolist())
    missing = sorted(wanted - there)[0]
    raise ValueError(f"{listing} names {missing!r}, which the set does not have")
  return rows


def class_vectors(path: pathlib.Path | None, sets: Sets, key: Array) -> Array:
  """Vectors [classes, size] of the classes' names, or of a walk down their tree."""
  if path is not None:
    return _stored_vectors(path, len(sets.train.label_names))
  return _dl2p_methods.word_vectors(class_tree(sets), key)


def cifar100_vectors(path: pathlib.Path | None, key: Array) -> Array:
  """The same for CIFAR-100, in any order and without its images."""
  if path is not None:
    return _stored_vectors(path, 100)
  paths = _article_trees.paths(_article_trees.CIFAR_100)
  # The superclasses that stand beside the images, without the levels above them.
  tree = hierarchy.from_paths([each[-2:] for each in paths])
  return _dl2p_methods.word_vectors(tree, key)


def _stored_vectors(path: pathlib.Path, classes: int) -> Array:
  vectors = jnp.asarray(np.load(path), jnp.float32)
  if vectors.ndim != 2 or len(vectors) != classes:
    raise ValueError(
      f"{path} must hold a vector for each of the {classes} classes, got shape "
      f"{vectors.shape}"
    )
  return vectors


def class_tree(sets: Sets) -> hierarchy.ClassTree:
  """The tree of a set's classes: of coarse labels, or from the file beside it."""
  names: Sequence[str] = sets.train.label_names
  extras: dict[str, Any] = dict(sets.train.extras)
  if "coarse_label" in extras:
    coarse = [
      int(extras["coarse_label"][np.argmax(sets.train.labels == label)])
      for label in range(len(names))
    ]
    # Groups after the classes: a group may be called as a class is.
    parents = [-1, *(1 + len(names) + group for group in coarse)]
    parents += [0] * (max(coarse) + 1)
    called = ["", *names, *(f"group {group}" for group in range(max(coarse) + 1))]
    return hierarchy.from_parents(parents, names=called, classes=names)
  return hierarchy.from_csv(_beside.beside(sets.name, "hierarchy.csv"), classes=names)
