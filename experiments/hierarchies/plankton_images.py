"""Plankton by classes: those that are learned, in three parts, and the others."""

import dataclasses
import functools
import pathlib
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import jax
import numpy as np

from experiments.frame import images as class_sets
from experiments.frame.settings import Limited, MultipleOf, Within, Without
from experiments.published import dist_plankton
from spherejax import data, hierarchy
from spherejax.data import _files


@dataclasses.dataclass(frozen=True)
class Selection(Limited):
  """Which images are read, and which classes are learned."""

  # Of each class at least two images: a reference and one to judge.

  data: Literal["ndsb_plankton", "folder"] = "ndsb_plankton"
  """A prepared set, or a folder with a sub-folder for each class."""
  folder: Annotated[str, Without("data", "ndsb_plankton")] = ""
  """That folder."""
  percent: Annotated[int, Without("data", "folder"), Within(1, 100)] = 100
  """Share of the prepared set that is read, in percent."""
  canvas: Annotated[int, MultipleOf("shrink")] = 96
  """Side of the canvas; larger images are scaled down to it."""
  shrink: Annotated[int, Within(1)] = 3
  """Side of the blocks of the canvas that are averaged."""
  size_features: bool = False
  """The network is also given the logarithms of an image's width and height."""
  inverted: bool = True
  """The ground becomes 0."""
  seen: Literal["count", "article"] = "count"
  """Learned are the classes with many images, or the article's 65 by their names."""
  seen_from: Annotated[int, Without("seen", "article")] = 200
  """Images from which on a class is learned."""
  unseen_from: Annotated[int, Without("seen", "article"), Within(2)] = 20
  """Images from which on a class that is not learned is told apart."""
  test_images: Annotated[int, Within(2)] = 100
  """Of each learned class, half of them references."""
  validation_images: Annotated[int, Within(2)] = 30
  """Of each learned class."""
  unseen_images: Annotated[int, Within(2)] = 100
  """Of each class that is not learned, at most."""


class Whole(NamedTuple):
  """A set before it is divided."""

  images: data.Images
  seen: tuple[str, ...]
  unseen: tuple[str, ...]
  tree: hierarchy.ClassTree | None
  """Of all classes in the order of the labels; None where there is none."""


class Study(NamedTuple):
  """Parts of the learned classes, and the others; labels count within each group."""

  train: data.Images
  validation: data.Images
  test: data.Images
  unseen: data.Images


def prepare(image: np.ndarray, canvas: int, shrink: int, inverted: bool) -> np.ndarray:
  """One image on its canvas; the ground is white."""
  found = data.fit_canvas(image, canvas, fill=255, shrink=shrink)
  return 255 - found if inverted else found


def load(choice: Selection) -> Whole:
  """The images of all classes on canvases, and which classes are learned."""
  tree = None
  if choice.data == "folder":
    try:
      images = data.load_folder(choice.folder, channels=1, lazy=True)
    except FileNotFoundError as error:
      raise SystemExit(f"plankton is read from --folder: {error}") from error
  else:
    part = f"[:{choice.percent}%]"
    images = class_sets.read(choice.data, f"train{part}+test{part}")
    tree = class_sets.tree_of(choice.data, images.label_names)
  seen, unseen = classes(images, choice)
  options = {name: getattr(choice, name) for name in ("canvas", "shrink", "inverted")}
  fitted = data.map_images(images, functools.partial(prepare, **options))
  extras = _sizes(images, choice) if choice.size_features else {}
  fitted = dataclasses.replace(fitted, extras=extras)
  return Whole(fitted, seen, unseen, tree)


def _sizes(images: data.Images, choice: Selection) -> dict[str, np.ndarray]:
  """Logarithms of width and height; of files only the beginning is read."""
  if choice.data == "folder":
    root = pathlib.Path(choice.folder)
    sizes = [_files.upright_size(root / file) for file in images.extras["file"]]
  else:
    sizes = [image.shape[1::-1] for image in images.images]
  return class_sets.size_extras(np.array(sizes))


def classes(
  images: data.Images, choice: Selection
) -> tuple[tuple[str, ...], tuple[str, ...]]:
  """Names of the classes that are learned, and of those that are not."""
  names = images.label_names
  counts = np.bincount(images.labels, minlength=len(names))
  if choice.seen == "article":
    learned = _article_classes(names)
    unseen = [n for n, count in enumerate(counts) if n not in learned and count > 1]
  else:
    learned = np.flatnonzero(counts >= choice.seen_from).tolist()
    unseen = np.flatnonzero(
      (counts >= choice.unseen_from) & (counts < choice.seen_from)
    ).tolist()
  for what, group in (("learned", learned), ("not learned", unseen)):
    if len(group) < 2:
      raise ValueError(
        f"at least two classes must be {what}, got {len(group)} of {len(names)}; they"
        f" have {counts.min()} to {counts.max()} images"
      )
  needed = choice.test_images + choice.validation_images + 2
  few = [f"{names[n]} has {counts[n]}" for n in learned if counts[n] < needed]
  if few:
    raise ValueError(
      f"each learned class needs {needed} images: {choice.test_images} to test,"
      f" {choice.validation_images} to validate and 2 to train, but class "
      + ", ".join(few[:5])
      + (f" and {len(few) - 5} more" if few[5:] else "")
    )
  first, second = (tuple(names[n] for n in group) for group in (learned, unseen))
  return first, second


def _article_classes(names: Sequence[str]) -> list[int]:
  """Labels of the article's classes; its table lost the names' underscores."""
  known = {dist_plankton.plain(name): n for n, name in enumerate(names)}
  missing = [
    name for name in dist_plankton.RECALL if dist_plankton.plain(name) not in known
  ]
  if missing:
    raise ValueError(f"no folder for {len(missing)} classes: {', '.join(missing[:5])}")
  return sorted(known[dist_plankton.plain(x)] for x in dist_plankton.RECALL)


def divide(whole: Whole, choice: Selection, key: jax.Array) -> Study:
  """Draws the parts, class by class."""
  order = np.asarray(jax.random.permutation(key, len(whole.images)))
  labels = np.asarray(whole.images.labels)[order]
  names = whole.images.label_names
  parts: list[list[np.ndarray]] = [[], [], [], []]
  ends = [choice.test_images, choice.test_images + choice.validation_images]
  for name in whole.seen:
    members = np.split(order[labels == names.index(name)], ends)
    for part, rows in zip(parts, members, strict=False):
      part.append(rows)
  for name in whole.unseen:
    own = order[labels == names.index(name)]
    parts[3].append(own[: choice.unseen_images])
  test, validation, train = (_of(whole, whole.seen, part) for part in parts[:3])
  return Study(train, validation, test, _of(whole, whole.unseen, parts[3]))


def _of(whole: Whole, names: tuple[str, ...], rows: list[np.ndarray]) -> data.Images:
  """The rows of each class, with the place of its name as label."""
  chosen = whole.images[np.concatenate(rows)]
  labels = np.repeat(np.arange(len(rows), dtype=np.int32), [len(row) for row in rows])
  return dataclasses.replace(chosen, labels=labels, label_names=names)


def distances(whole: Whole, names: Sequence[str]) -> np.ndarray | None:
  """[classes, classes], edges of the tree between classes of these names."""
  if whole.tree is None:
    return None
  places = [whole.tree.class_names.index(name) for name in names]
  return hierarchy.path_distances(whole.tree)[np.ix_(places, places)]
