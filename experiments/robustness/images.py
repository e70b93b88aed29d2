"""Digits as points of a cube, other images, and the budgets of attacks within cells."""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.frame import images as class_sets
from spherejax import data, voronoi

CLASSES = 10


BUDGETS = {
  "digits": {
    "l2": (0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, math.inf),
    "linf": (0.02, 0.05, 0.09, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, math.inf),
  },
  "cifar10": {
    "l2": (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, math.inf),
    "linf": (2 / 255, 8 / 255, 0.1, 0.15, 0.2, 0.25, 0.3, math.inf),
  },
  "mnist": {
    "l2": (0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, math.inf),
    "linf": (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.45, 0.5, math.inf),
  },
}


class Points(NamedTuple):
  """Labelled points."""

  x: Array
  y: Array


def load_digits(train_images: int, test_images: int) -> tuple[Points, Points]:
  """Loads digits as points of [0, 1]^64: the first for training, the last for tests.

  Their grey levels of 0 to 16 are divided by 16.
  """
  images = data.load_digits()
  pixels = np.asarray(images.images).reshape(len(images), -1)
  levels = np.round(pixels * (16 / 255)) / 16
  x, y = jnp.asarray(levels, jnp.float32), jnp.asarray(images.labels)
  last = len(x) - test_images
  if train_images > last:
    raise ValueError(
      f"train_images and test_images must be at most {len(x)} together, got "
      f"{train_images} and {test_images}"
    )
  return Points(x[:train_images], y[:train_images]), Points(x[last:], y[last:])


def points_of(images: data.Images) -> Points:
  """Converts images to one array of points in [0, 1]."""
  x = np.asarray(images.images, np.float32) / 255
  return Points(jnp.asarray(x), jnp.asarray(images.labels))


def load_small(name: str, size: int) -> tuple[Points, Points]:
  """Training and test images of a prepared set, scaled to `size` pixels."""
  train, test = (class_sets.read(name, part, size=size) for part in ("train", "test"))
  return points_of(train), points_of(test)


class Images(NamedTuple):
  """Labelled images with values in [0, 1]."""

  x: np.ndarray  # images [n, height, width, channels]
  y: np.ndarray

  def points(self) -> Points:
    """Images as flat rows."""
    x = self.x.reshape(len(self.x), -1)
    return Points(jnp.asarray(x), jnp.asarray(self.y))

  def sites(self) -> Points:
    """Images as flat rows without duplicates; drops rows with two classes."""
    merged = voronoi.merge_sites(*self.points(), conflicts="drop")
    return Points(jnp.asarray(merged.points), jnp.asarray(merged.labels))


def load(config) -> tuple[Images, Images]:
  """Loads training and test images; exits with a message if they are missing."""
  if config.images == "digits":
    parts = load_digits(config.train_images, config.test_images)
    train, test = (
      Images(np.asarray(x).reshape(-1, 8, 8, 1), np.asarray(y)) for x, y in parts
    )
    return train, test
  train, test = (
    prepared(config.images, f"{split}[:{config.percent}%]", class_sets.read)
    for split in ("train", "test")
  )
  return train, test


def prepared(name: str, split: str, read: Any = data.load_tfds) -> Images:
  """Reads a prepared image set; FileNotFoundError if it is missing."""
  images = read(name, split)
  return Images(np.asarray(images.images, np.float32) / 255, np.asarray(images.labels))
