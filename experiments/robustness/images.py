"""Digits as points of a cube, other images, and the budgets of attacks within cells."""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.frame import images as class_sets
from experiments.robustness import cell_settings, settings
from spherejax import data, voronoi

CLASSES = 10
BUDGETS = {
  "digits": {
    "l2": (0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5),
    "linf": (0.02, 0.05, 0.09, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4),
  },
  "cifar10": {
    "l2": (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0),
    "linf": (2 / 255, 8 / 255, 0.1, 0.15, 0.2, 0.25, 0.3),
  },
  "mnist": {
    "l2": (0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0),
    "linf": (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.45, 0.5),
  },
}


class Points(NamedTuple):
  """Labelled rows, or images [n, height, width, channels], with values in [0, 1]."""

  x: Array
  y: Array

  def flat(self) -> "Points":
    """Images as flat rows."""
    return Points(self.x.reshape(len(self.x), -1), self.y)

  def sites(self) -> "Points":
    """Images as flat rows without duplicates; drops rows with two classes."""
    merged = voronoi.merge_sites(*self.flat(), conflicts="drop")
    return Points(jnp.asarray(merged.points), jnp.asarray(merged.labels))


class Gaussian(NamedTuple):
  """Training points, their labels, and test points with the same labels."""

  x: Array
  y: Array
  unseen: Array


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


def load(config: cell_settings.Config) -> list[Points]:
  """Loads training and test images; exits with a message if they are missing."""
  if config.images == "digits":
    parts = load_digits(config.train_images, config.test_images)
    return [Points(x.reshape(-1, 8, 8, 1), y) for x, y in parts]
  splits = (f"{part}[:{config.percent}%]" for part in ("train", "test"))
  return [points_of(class_sets.read(config.images, split)) for split in splits]


def small(config: settings.Config) -> Sequence[Points]:
  """Training and test images for small networks, in few pixels."""
  if config.images == "digits":
    return load_digits(config.train_images, config.test_images)
  parts = (class_sets.read("cifar10", part, size=16) for part in ("train", "test"))
  return list(map(points_of, parts))


def prepared(name: str, split: str) -> Points:
  """Reads a prepared image set; FileNotFoundError if it is missing."""
  return points_of(data.load_tfds(name, split))
