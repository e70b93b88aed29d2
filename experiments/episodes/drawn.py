"""Image sets and the episodes that are drawn from them."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.episodes.settings import Part, Settings
from spherejax import data


class Sets(NamedTuple):
  """Images with labels: [count, height, width, channels], uint8; integers."""

  train: data.Images
  validation: data.Images
  test: data.Images


class Known(NamedTuple):
  """Episodes of training classes, on which the network is looked at."""

  rows: Array  # the images that they use
  episodes: Array  # of these


def table(images: data.Images, rows: int) -> data.ClassTable:
  """Of a set whose classes are checked to have enough images."""
  return data.class_table(images.labels, per_class=rows, label_names=images.label_names)


def fixed_episodes(
  settings: Settings,
  part: Part,
  images: data.Images,
  *,
  queries: int,
  number: int,
) -> np.ndarray:
  """The same for every network."""
  classes = table(images, part.shots + queries)
  key = jax.random.fold_in(jax.random.key(settings.seed), 1 + part.shots)
  shape = settings.num_ways, part.shots, queries
  return np.asarray(_drawn(key, classes, number=number, shape=shape))


@functools.partial(jax.jit, static_argnames=("number", "shape"))
def _drawn(
  key: Array, classes: data.ClassTable, *, number: int, shape: tuple[int, int, int]
) -> Array:
  """Episodes of so many ways, shots and queries; sets of one size share a program."""
  ways, shots, queries = shape

  def draw(key: Array) -> Array:
    return data.sample_episode(
      key, classes, num_ways=ways, num_shots=shots, num_queries=queries
    )

  return jax.vmap(draw)(jax.random.split(key, number))


def known(
  settings: Settings,
  part: Part,
  images: data.Images,
) -> Known:
  """As many episodes as validate; their images as those of a validation."""
  drawn = fixed_episodes(
    settings,
    part,
    images,
    queries=settings.num_queries,
    number=settings.validation_episodes,
  )
  rows, places = np.unique(drawn, return_inverse=True)
  return Known(jnp.asarray(rows), jnp.asarray(places.reshape(drawn.shape)))


def check_classes(
  settings: Settings,
  parts: Sequence[Part],
  sets: Sets,
) -> None:
  """Raises ValueError for too small or too few classes for any of the trainings."""
  for part in parts:
    for images, queries in (
      (sets.train, settings.num_queries),
      (sets.validation, settings.num_queries),
      (sets.test, settings.test_queries),
    ):
      # Of a table that is known: inside a program it is not looked at.
      data.sample_episode(
        jax.random.key(0),
        table(images, part.shots + queries),
        num_ways=settings.num_ways,
        num_shots=part.shots,
        num_queries=queries,
      )
