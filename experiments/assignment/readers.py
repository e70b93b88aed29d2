"""Image sets of DL2P's tables: reads, cuts to a long tail or a listing, checks."""

import pathlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.assignment import methods, tasks
from experiments.frame import images as class_sets
from experiments.frame import kept
from experiments.published import tree_paths
from spherejax import data, hierarchy

# Name of the test part, unless it is "test".
_TEST = {"imagenet2012": "validation"}


class Sets(NamedTuple):
  """An image set in parts."""

  name: str
  train: data.Images
  validation: data.Images | None
  test: data.Images


def load(name: str, *, size: int, lazy: bool = False, **options: Any) -> Sets:
  """Reads a set; raises an error that names it if it cannot be trained on.

  `options` are those of `cut`.
  """
  train, test = (
    class_sets.read(name, part, size=size, channels=3, lazy=lazy)
    for part in ("train", _TEST.get(name, "test"))
  )
  return cut(name, train, test, **options)


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
  """Cuts to a long tail or a listing, and holds out validation images."""
  tasks.check_names(train.label_names)
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
    train_rows, validation_rows = data.split_within_classes(
      train.labels, fractions=shares, key=split_key
    )
    train, held_out = train[train_rows], train[validation_rows]
  counts = np.bincount(train.labels, minlength=len(train.label_names))
  if not counts.all():
    empty = train.label_names[int(np.argmin(counts))]
    raise ValueError(f"{name}: class {empty!r} is left without a training image")
  return Sets(name, train, held_out, test)


def listed(images: data.Images, listing: pathlib.Path) -> np.ndarray:
  """Rows of the images whose file names are in a listing.

  A wrong line raises a ValueError that names the file and the line.
  """
  if "file_name" not in images.extras:
    raise ValueError(f"{listing} names images, but the set has no file names")
  lines = _named_images(listing)
  names = np.asarray(images.extras["file_name"]).tolist()
  available = set(names)
  for name, line in lines.items():
    if name not in available:
      raise ValueError(
        f"{listing}, line {line}, names {name!r}, which the set does not have"
      )
  return np.array([row for row, name in enumerate(names) if name in lines])


def _named_images(listing: pathlib.Path) -> dict[str, int]:
  """Maps file names without folders to the numbers of their lines."""
  try:
    text = listing.read_text(encoding="utf-8-sig")
  except UnicodeDecodeError as error:
    raise ValueError(f"{listing} must be text in UTF-8: {error}") from error
  line_of: dict[str, int] = {}
  for number, line in enumerate(text.splitlines(), start=1):
    fields = line.split()
    if not fields:
      continue
    if len(fields) > 2 or not all(map(str.isdecimal, fields[1:])):
      raise ValueError(
        f"{listing}, line {number}: expected an image and the number of its class, or"
        f" an image alone, got {line!r}"
      )
    name = fields[0].rsplit("/", 1)[-1]
    if name in line_of:
      raise ValueError(
        f"{listing}, line {number}: {name!r} is listed already, in line {line_of[name]}"
      )
    line_of[name] = number
  if not line_of:
    raise ValueError(f"{listing} must name at least one image, but is empty")
  return line_of


def class_vectors(path: pathlib.Path | None, sets: Sets, key: Array) -> Array:
  """Vectors [classes, size] of class names, from a file or a walk down their tree."""
  if path is not None:
    return jnp.asarray(stored_vectors(path, len(sets.train.label_names)))
  return methods.word_vectors(class_tree(sets), key)


def cifar100_vectors(path: pathlib.Path | None, key: Array) -> Array:
  """Class vectors of CIFAR-100, in any order of the classes; needs no images."""
  if path is not None:
    return jnp.asarray(stored_vectors(path, 100))
  paths = tree_paths("CIFAR_100")
  # Only the superclasses of the data set, without the levels above them.
  tree = hierarchy.from_paths([names_of_path[-2:] for names_of_path in paths])
  return methods.word_vectors(tree, key)


def stored_vectors(path: pathlib.Path, classes: int) -> np.ndarray:
  """Reads vectors [classes, size] from a file; ValueError for another shape."""
  stored = kept.read_array(path, "vectors are an array that np.save wrote")
  shape = stored.shape
  fits = len(shape) == 2 and shape[0] == classes and shape[1] > 0
  if not fits or stored.dtype.kind not in "fiu":
    raise ValueError(
      f"{path} must hold a vector for each of the {classes} classes, got shape "
      f"{shape} of {stored.dtype}"
    )
  with np.errstate(over="ignore"):  # infinite values are rejected below
    vectors = stored.astype(np.float32)
  if not (finite := np.isfinite(vectors).all(axis=1)).all():
    row = int(np.argmin(finite))
    raise ValueError(f"{path}: vector {row} has numbers that float32 cannot hold")
  return vectors


def class_tree(sets: Sets) -> hierarchy.ClassTree:
  """The tree of a set's classes, from coarse labels or from the set's file."""
  names, extras = sets.train.label_names, sets.train.extras
  if "coarse_label" not in extras:
    path = class_sets.newest_file(sets.name, "hierarchy.csv")
    return hierarchy.from_csv(path, classes=names)
  # `cut` leaves no class without images.
  first_rows = np.unique(sets.train.labels, return_index=True)[1]
  coarse = extras["coarse_label"][first_rows].tolist()
  groups = range(max(coarse) + 1)
  # Groups come after the classes, since a group may have the name of a class.
  parents = [-1, *(1 + len(names) + group for group in coarse), *(0 for _ in groups)]
  called = ["", *names, *(f"group {group}" for group in groups)]
  return hierarchy.from_parents(parents, names=called, classes=names)
