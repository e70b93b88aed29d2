"""The images whose cells are looked at, and the budgets of attacks on them."""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from experiments.frame import digits
from experiments.frame.digits import Points
from spherejax import data, voronoi

INF = math.inf
BUDGETS = {
  "digits": {
    "l2": (0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, INF),
    "linf": (0.02, 0.05, 0.09, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, INF),
  },
  "cifar10": {
    "l2": (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, INF),
    "linf": (2 / 255, 8 / 255, 0.1, 0.15, 0.2, 0.25, 0.3, INF),
  },
  "mnist": {
    "l2": (0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, INF),
    "linf": (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.45, 0.5, INF),
  },
}


class Images(NamedTuple):
  """Labelled images of [0, 1]."""

  x: np.ndarray
  """[n, height, width, channels]."""
  y: np.ndarray

  def points(self) -> Points:
    """As rows."""
    x = self.x.reshape(len(self.x), -1)
    return Points(jnp.asarray(x), jnp.asarray(self.y))

  def sites(self) -> Points:
    """As rows, each place once; a place of two classes has no cell."""
    found = voronoi.merge_sites(*self.points(), conflicts="drop")
    return Points(jnp.asarray(found.points), jnp.asarray(found.labels))


def load(config) -> tuple[Images, Images]:
  """Training and test images; ends with a message where they are missing."""
  if config.images == "digits":
    parts = digits.load(config.train_images, config.test_images)
    train, test = (
      Images(np.asarray(x).reshape(-1, 8, 8, 1), np.asarray(y)) for x, y in parts
    )
    return train, test
  try:
    train, test = (
      prepared(config.images, f"{split}[:{config.percent}%]")
      for split in ("train", "test")
    )
  except FileNotFoundError as error:
    raise SystemExit(
      f"this preset reads the image set {config.images}: {error}"
    ) from error
  return train, test


def prepared(name: str, split: str) -> Images:
  """A prepared image set; FileNotFoundError where it is missing."""
  found = data.load_tfds(name, split)
  return Images(np.asarray(found.images, np.float32) / 255, np.asarray(found.labels))
