"""The embedded digits as points of a cube."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from spherejax import data

CLASSES = 10


class Points(NamedTuple):
  """Labelled points."""

  x: Array
  y: Array


def load(train_images: int, test_images: int) -> tuple[Points, Points]:
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
