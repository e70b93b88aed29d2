"""What NCH proves, measured: a detector that counts, and features that add up."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.counting.training import Settings, draw
from experiments.frame.study import Claim, Table
from spherejax import metrics, models

# Two channels, two types of objects and their linear detector; two taps along a line.
OBJECTS = np.array([[[1, 1], [0, 1]], [[0, -1], [1, -1]]], np.float32)
KERNELS = np.array([[[1, -1], [0, 1]], [[0, -1], [1, 1]]], np.float32)
_LINE, _IMAGES, _MOST = 12, 200, 6
_FIELD = 32
"""Pixels that a position of Simple-6 sees."""


def detect(images: Array) -> Array:
  """Full convolution of [n, channels, line] with the kernels."""
  return jax.lax.conv_general_dilated(
    images, jnp.asarray(KERNELS)[:, :, ::-1], (1,), [(1, 1)]
  )


def many_objects(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
  """Sums of up to five objects of each type at random places, and how many."""
  counts = rng.integers(0, _MOST, (_IMAGES, 2))
  images = np.zeros((_IMAGES, 2, _LINE), np.float32)
  for image, numbers in zip(images, counts, strict=True):
    for object_, number in zip(OBJECTS, numbers, strict=True):
      for start in rng.integers(0, _LINE - 1, number):
        image[:, start : start + 2] += object_
  return images, counts.sum(1)


def slope_error(seed: int) -> float:
  """How far the slope of the l1 norm over the count is from one over the positions."""
  images, counts = many_objects(np.random.default_rng(seed))
  return float(jnp.abs(_slopes(images, counts) - 1 / (_LINE + 1)).max())


@jax.jit
def _slopes(images: Array, counts: Array) -> Array:
  norms = jnp.abs(detect(images).mean(2)).sum(1)
  return metrics.norm_count_regression(norms, counts, standardize=False).slopes


@functools.cache
def _summed(widths: tuple[int, ...]) -> Any:
  network = models.Simple6(widths, use_bias=False)

  @jax.jit
  def compiled(key: Array, images: Array) -> Array:
    params = draw(network, images.shape[1:], key)
    found: Any = network.apply({"params": params}, images)
    return found.sum((1, 2))

  return compiled


def separation_error(settings: Settings, objects: np.ndarray, seed: int) -> float:
  """Relative error of adding up features of objects far apart; no biases."""
  rng = np.random.default_rng(seed)
  chosen = objects[rng.integers(0, len(objects), 3)]
  height, width, channels = chosen.shape[1:]
  margin = _FIELD // 2 + 4
  step = -(-(width + _FIELD) // 4) * 4  # shifts are multiples of the stride
  images = np.zeros(
    (4, height + 2 * margin, 2 * step + width + 2 * margin, channels), np.float32
  )
  for number, object_ in enumerate(chosen):
    left = margin + number * step
    for shown in (number, 3):
      images[shown, margin : margin + height, left : left + width] += object_
  z = np.asarray(_summed(settings.widths)(jax.random.key(seed), images))
  total = z[:3].sum(0)
  return float(np.linalg.norm(z[3] - total) / np.linalg.norm(total))


SLOPE = "error of the slope of a linear detector"
SUM = "error of the sum over separate objects"


def add(table: Table, settings: Settings, objects: np.ndarray) -> None:
  """Adds both, for each seed."""
  for seed in range(settings.seed, settings.seed + settings.seeds):
    table.add("theory", SLOPE, slope_error(seed))
    table.add("theory", SUM, separation_error(settings, objects, seed))


CLAIMS = [
  Claim(
    "N9-linear",
    "a linear detector's l1 norm rises by 1 / positions with each object, to 1e-6",
    lambda t: 1e-6 - t.values(SLOPE, "theory"),
    "NCH Cor. 1.2",
    every_seed=True,
  ),
  Claim(
    "N9-separation",
    "features of separate objects add up in Simple-6 without biases, to 1e-5",
    lambda t: 1e-5 - t.values(SUM, "theory"),
    "NCH, our extension of Thm. 1",
    every_seed=True,
  ),
]
