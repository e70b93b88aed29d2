"""Images for `retrieval` and `ccp_proxies` on a CPU, with learned and test classes."""

from typing import NamedTuple

import numpy as np

from experiments.frame import images as class_sets
from spherejax import data


class Study(NamedTuple):
  """Images, and which of them train, validate and test.

  All folds have the same numbers of images per class, so they share labels.
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
  raw: np.ndarray | None = None
  """Embeddings [folds, test images, dim] of a pretrained network without training."""


def _resized(images: data.Images, size: int) -> np.ndarray:
  return np.stack([class_sets.squared(x[..., :1], size=size) for x in images.images])


class Halves(NamedTuple):
  """Rows of a set for training, validation and test, and their labels."""

  train: np.ndarray
  held: np.ndarray
  test: np.ndarray
  train_labels: np.ndarray
  held_labels: np.ndarray
  test_labels: np.ndarray


def divided(classes: np.ndarray, seed: int | None = None) -> list[np.ndarray]:
  """Splits classes: the first half trains, its last quarter validates; the rest tests.

  A seed permutes the classes first.
  """
  if seed is not None:
    classes = np.random.default_rng(seed).permutation(classes)
  half = len(classes) // 2
  return np.split(classes, [half - half // 4, half])


def halves(
  labels: np.ndarray, parts: list[np.ndarray], most: int | None = None
) -> Halves:
  """Rows of the classes of three parts, at most `most` of each class.

  Rows are ordered by class; the labels of each part count from 0.
  """
  rows, classes = [], []
  for part in parts:
    by_class = [np.flatnonzero(labels == c)[:most] for c in part]
    rows.append(np.concatenate(by_class))
    counts = [len(x) for x in by_class]
    classes.append(np.repeat(np.arange(len(part), dtype=np.int32), counts))
  return Halves(*rows, *classes)


def of_one_fold(name: str, images: np.ndarray, rows: Halves) -> Study:
  train, held, test = (x[None] for x in rows[:3])
  labels = rows.train_labels, rows.held_labels, rows.test_labels
  return Study(name, images, train, held, test, *labels)


def mnist(size: int, train: int, held: int) -> Study:
  """Reads MNIST: of each digit, the first images train and the next validate."""
  learned = class_sets.read("mnist", "train")
  labels = np.asarray(learned.labels)
  fewest = int(np.bincount(labels).min())
  if train + held > fewest:
    raise ValueError(
      f"digit_images must be at most {fewest} in all, of the rarest digit, got"
      f" {train} and {held}"
    )
  rows = halves(labels, [np.arange(10)] * 3, train + held).train.reshape(10, -1)
  sought = class_sets.read("mnist", "test")
  place = np.arange(rows.size).reshape(rows.shape)
  return Study(
    f"mnist-{size}-{train}-{held}",
    np.concatenate([_resized(learned[rows.ravel()], size), _resized(sought, size)]),
    place[:, :train].reshape(1, -1),
    place[:, train:].reshape(1, -1),
    rows.size + np.arange(len(sought))[None],
    np.repeat(np.arange(10, dtype=np.int32), train),
    np.repeat(np.arange(10, dtype=np.int32), held),
    np.asarray(sought.labels, np.int32),
    watched=True,
  )


def gaussians(seed: int) -> Study:
  """Draws twenty classes of ten points in 16 dimensions, as images of 4 x 4."""
  random = np.random.default_rng(seed)
  centres = random.normal(size=(20, 1, 16))
  points = centres + 0.7 * random.normal(size=(20, 10, 16))
  images = points.reshape(200, 4, 4, 1).astype(np.float32)
  rows = halves(np.repeat(np.arange(20), 10), np.split(np.arange(20), [7, 10]))
  return of_one_fold(f"gaussians-{seed}", images, rows)
