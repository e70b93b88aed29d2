"""Digits as points of a cube, other images, and the budgets of attacks within cells."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.frame import images as class_sets
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
  """Labelled points, rows or images [n, height, width, channels] of [0, 1]."""

  x: Array
  y: Array

  def flat(self) -> "Points":
    """Images as flat rows."""
    return Points(self.x.reshape(len(self.x), -1), self.y)

  def sites(self) -> "Points":
    """Images as flat rows without duplicates; drops rows with two classes."""
    merged = voronoi.merge_sites(*self.flat(), conflicts="drop")
    return Points(jnp.asarray(merged.points), jnp.asarray(merged.labels))


def load_digits(train_images: int, test_images: int) -> tuple[Points, Points]:
  """Grey levels of 0 to 16 as [0, 1]^64: the first to train on, the last to test."""
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
  """Images as one array of points in [0, 1]."""
  x = np.asarray(images.images, np.float32) / 255
  return Points(jnp.asarray(x), jnp.asarray(images.labels))


def load(config: Any) -> list[Points]:
  """Training and test images; ends with a message where they are missing."""
  if config.images == "digits":
    parts = load_digits(config.train_images, config.test_images)
    return [Points(x.reshape(-1, 8, 8, 1), y) for x, y in parts]
  splits = (f"{part}[:{config.percent}%]" for part in ("train", "test"))
  return [points_of(class_sets.read(config.images, split)) for split in splits]


def prepared(name: str, split: str) -> Points:
  """A prepared image set; FileNotFoundError where it is missing."""
  return points_of(data.load_tfds(name, split))
