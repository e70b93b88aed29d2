"""Images for `retrieval` and `ccp_proxies` on a CPU: classes to learn, and to find."""

import functools
from typing import NamedTuple

import numpy as np

from experiments.frame import images as class_sets
from spherejax import data

FOLDED = 264  # classes that are divided into several folds


class Study(NamedTuple):
  """Images, and which of them train, validate and test.

  Every fold has the same numbers of images, so its labels are those of all.
  """

  name: str
  images: np.ndarray  # images [count, height, width, channels], uint8 or floats
  train: np.ndarray  # training rows [folds, rows]
  held: np.ndarray  # validation rows [folds, rows]
  test: np.ndarray  # test rows [folds, rows]
  train_labels: np.ndarray
  held_labels: np.ndarray
  test_labels: np.ndarray
  by_seed: bool = False
  """Whether each fold belongs to one seed, which divides the classes."""
  watched: bool = False  # whether to measure covers after every evaluation
  inverted: bool = False  # whether the images are inverted, so that white is 0
  padded: bool = False  # whether the longer side was scaled and the rest padded
  raw: np.ndarray | None = None
  """Embeddings [folds, test images, dim] of a pretrained network without training."""


def folds(classes: int, number: int) -> list[np.ndarray]:
  """Validation classes of each fold: contiguous, the last ones first."""
  ends = np.linspace(0, classes, number + 1).astype(int)
  return [np.arange(ends[f], ends[f + 1]) for f in reversed(range(number))]


def _resized(images: data.Images, size: int) -> np.ndarray:
  return np.stack([class_sets.squared(x[..., :1], size=size) for x in images.images])


def _rows(
  labels: np.ndarray, classes: np.ndarray, most: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
  """Rows of some classes, class by class, and their labels counted from 0."""
  rows = [np.flatnonzero(labels == c)[:most] for c in classes]
  new = np.repeat(np.arange(len(rows)), [len(r) for r in rows])
  return np.concatenate(rows), new.astype(np.int32)


def omniglot(size: int, number: int = 1) -> Study:
  """Characters: 266 to learn, of which 66 validate, 200 of other alphabets to find.

  With several folds 264, of which each fold has another share to validate.
  """
  learned = class_sets.read("omniglot", "train", lazy=True)
  labels = np.asarray(learned.labels)
  last = 266 if number == 1 else FOLDED
  learned = learned[np.flatnonzero(labels < last)]
  labels = np.asarray(learned.labels)
  sought = class_sets.read("omniglot", "test", lazy=True)
  names = np.unique(sought.labels)[:200]
  sought = sought[np.flatnonzero(np.isin(sought.labels, names))]
  parts = [np.arange(200, 266)] if number == 1 else folds(last, number)
  train = [_rows(labels, np.setdiff1d(np.arange(last), held)) for held in parts]
  held = [_rows(labels, part) for part in parts]
  test = len(learned) + np.arange(len(sought))
  return Study(
    f"omniglot-{size}-{number}",
    255 - np.concatenate([_resized(learned, size), _resized(sought, size)]),
    np.stack([rows for rows, _ in train]),
    np.stack([rows for rows, _ in held]),
    np.tile(test, (number, 1)),
    train[0][1],
    held[0][1],
    np.unique(sought.labels, return_inverse=True)[1].astype(np.int32),
    inverted=True,
  )


def other_characters(size: int) -> tuple[np.ndarray, np.ndarray]:
  """Images and labels of the characters that nothing else here trains on or finds."""
  train = class_sets.read("omniglot", "train")
  others = train[np.flatnonzero(np.asarray(train.labels) >= 266)]
  rows, labels = _rows(np.asarray(others.labels), np.unique(others.labels))
  return 255 - _resized(others[rows], size), labels


class Halves(NamedTuple):
  """Rows of a set that are learned, validated and sought, and their labels."""

  train: np.ndarray
  held: np.ndarray
  test: np.ndarray
  train_labels: np.ndarray
  held_labels: np.ndarray
  test_labels: np.ndarray


def divided(classes: np.ndarray, seed: int | None = None) -> list[np.ndarray]:
  """The first half is learned, of which the last quarter validates; the rest sought.

  With a seed these are halves of the classes in an order of its own.
  """
  if seed is not None:
    classes = np.random.default_rng(seed).permutation(classes)
  half = len(classes) // 2
  return np.split(classes, [half - half // 4, half])


def halves(labels: np.ndarray, parts: list[np.ndarray], most: int) -> Halves:
  """Rows of the classes of three parts, at most `most` of each class."""
  rows, classes = zip(*(_rows(labels, part, most) for part in parts), strict=True)
  return Halves(*rows, *classes)


def of_one_fold(name: str, images: np.ndarray, rows: Halves) -> Study:
  train, held, test = (x[None] for x in rows[:3])
  labels = rows.train_labels, rows.held_labels, rows.test_labels
  return Study(name, images, train, held, test, *labels)


def plankton(size: int) -> Study:
  """Halves of the classes of at least 30 images, at most 60 of each, padded."""
  images = class_sets.read("ndsb_plankton", "train+test", lazy=True)
  labels = np.asarray(images.labels)
  parts = divided(np.flatnonzero(np.bincount(labels) >= 30))
  chosen = np.sort(np.concatenate(halves(labels, parts, 60)[:3]))
  fit = functools.partial(class_sets.padded, size=size)
  fitted = data.map_images(images[chosen], fit)
  rows = halves(np.asarray(fitted.labels), parts, 60)
  study = of_one_fold(f"plankton-{size}", 255 - np.stack(list(fitted.images)), rows)
  return study._replace(inverted=True, padded=True)


def mnist(size: int, train: int, held: int) -> Study:
  """Digits: of each the first images train and the next validate; all are sought."""
  learned = class_sets.read("mnist", "train")
  labels = np.asarray(learned.labels)
  fewest = int(np.bincount(labels).min())
  if train + held > fewest:
    raise ValueError(
      f"digit_images must be at most {fewest} in all, of the rarest digit, got"
      f" {train} and {held}"
    )
  by_digit = [np.flatnonzero(labels == c)[: train + held] for c in range(10)]
  rows = np.concatenate(by_digit)
  sought = class_sets.read("mnist", "test")
  place = np.arange(len(rows)).reshape(10, train + held)
  return Study(
    f"mnist-{size}-{train}-{held}",
    np.concatenate([_resized(learned[rows], size), _resized(sought, size)]),
    place[:, :train].reshape(1, -1),
    place[:, train:].reshape(1, -1),
    len(rows) + np.arange(len(sought))[None],
    np.repeat(np.arange(10), train).astype(np.int32),
    np.repeat(np.arange(10), held).astype(np.int32),
    np.asarray(sought.labels, np.int32),
    watched=True,
  )


def gaussians(seed: int) -> Study:
  """Twenty classes of ten points in 16 dimensions, as images of 4 x 4."""
  random = np.random.default_rng(seed)
  centres = random.normal(size=(20, 1, 16))
  points = centres + 0.7 * random.normal(size=(20, 10, 16))
  images = points.reshape(200, 4, 4, 1).astype(np.float32)
  parts = np.split(np.arange(20), [7, 10])
  rows = halves(np.repeat(np.arange(20), 10), parts, 10)
  name = f"gaussians-{seed}"
  return of_one_fold(name, images, rows)._replace(watched=True)
