"""Batches of photographs for `retrieval`, decoded and cropped ahead of the device.

As images differ in size, a random box is cropped from the original and resized on the
host. Crops depend only on the key and the step.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from PIL import Image

from experiments.frame import networks
from experiments.metric_learning.photographs import protocols, sets
from experiments.metric_learning.photographs.methods import FullConfig
from experiments.metric_learning.photographs.sets import Pictures
from spherejax import data, training

AREA, ASPECT = (0.16, 1.0), (0.75, 1.33)  # ranges of training crops, as in the thesis
_ATTEMPTS = 10  # boxes to draw, of which the first that fits is used
_PLANNED = 10_000  # steps whose images are drawn at once


class EvaluatedImages(NamedTuple):
  """Images that are evaluated during training and after it."""

  images: data.Images
  queries: np.ndarray | None


def _random_box(random: np.random.Generator, width: int, height: int):
  """The first box that fits, or the largest central one: (left, top, right, bottom)."""
  areas = random.uniform(*AREA, _ATTEMPTS) * width * height
  low, high = np.log(ASPECT)
  ratios = np.exp(random.uniform(low, high, _ATTEMPTS))
  place = random.uniform(size=2)
  wide, high = np.sqrt(areas * ratios), np.sqrt(areas / ratios)
  fits = np.flatnonzero((wide <= width) & (high <= height))
  if len(fits):
    w, h = wide[fits[0]], high[fits[0]]
  else:
    w, h = min(width, height * ASPECT[1]), min(height, width / ASPECT[0])
    place = np.full(2, 0.5)
  left, top = place[0] * (width - w), place[1] * (height - h)
  return left, top, left + w, top + h


def random_crop(
  image: np.ndarray, place: int, *, seeds: tuple[int, ...], first: int, size: int
) -> np.ndarray:
  """Crops a random box, resizes it and mirrors it at random; `place` seeds the draw."""
  random = np.random.default_rng([*seeds, first + place])
  single = Image.fromarray(image)
  box = _random_box(random, *single.size)
  pixels = np.asarray(single.resize((size, size), Image.Resampling.BILINEAR, box))
  return pixels[:, ::-1] if random.uniform() < 0.5 else pixels


def augmented(
  settings: FullConfig, pictures: Pictures, rows: np.ndarray, key: Array, first: int = 0
) -> data.Images:
  """Crops some images at random; image i uses draw `first + i` of the key."""
  seeds = tuple(int(x) for x in jax.random.key_data(key))
  size = settings.image_size
  cut = functools.partial(random_crop, seeds=seeds, first=first, size=size)
  return sets.mapped_images(pictures.take(rows), cut)


def _centred(
  image: np.ndarray, place: int, *, architecture: networks.Architecture
) -> np.ndarray:
  del place
  return networks.prepare(image, architecture)


def watched(
  settings: FullConfig, pictures: Pictures, queries: np.ndarray | None = None
) -> EvaluatedImages:
  """Prepares images for evaluation; holds them in memory if they fit."""
  centred = functools.partial(_centred, architecture=settings.architecture)
  images = sets.mapped_images(pictures, centred)
  if len(images) * settings.image_size**2 * 3 > settings.cache_gib * 2**30:
    return EvaluatedImages(images, queries)
  parts = [batch["image"] for batch in _in_order(settings, images)]
  pixels = np.concatenate(parts)[: len(images)]
  cached = data.Images(pixels, images.labels, images.label_names)
  return EvaluatedImages(cached, queries)


def _in_order(settings: FullConfig, images: data.Images) -> Any:
  """Reads all images in order; every process reads the same ones."""
  plan = data.ordered_plan(
    len(images), batch_size=min(settings.evaluation_batch, len(images))
  )
  return data.pipeline(
    images,
    plan,
    process_index=0,
    process_count=1,
    workers=settings.workers if len(plan) > settings.workers else 0,
    prefetch=settings.prefetch,
  )


@functools.partial(jax.jit, static_argnames=("num_classes", "per_class"))
def _plan(
  key: Array, table: data.ClassTable, steps: Array, *, num_classes: int, per_class: int
) -> Array:
  """Rows [steps, batch]; the table is traced, so that small classes repeat images."""

  def batch_of(step: Array) -> Array:
    return data.class_balanced_indices(
      key, table, step, num_classes=num_classes, per_class=per_class
    )

  return jax.vmap(batch_of)(steps)


def planned(
  settings: FullConfig, pictures: Pictures, table: data.ClassTable, key: Array
) -> Callable[[int], Iterator[data.Images]]:
  """Returns a function from a step to an iterator over the images of later batches."""
  plan_key, crop_key = jax.random.split(key)
  classes, per_class = settings.batch // settings.per_class, settings.per_class
  draw = functools.partial(
    _plan, plan_key, table, num_classes=classes, per_class=per_class
  )

  def begin(first: int) -> Iterator[data.Images]:
    for start in range(first, settings.steps, _PLANNED):
      number = min(_PLANNED, settings.steps - start)
      rows = np.asarray(draw(jnp.arange(number) + start)).reshape(-1)
      yield augmented(settings, pictures, rows, crop_key, start * settings.batch)

  return begin


def batches(
  settings: FullConfig, pictures: Pictures, table: data.ClassTable, key: Array
) -> Callable[[int], Iterator[dict[str, np.ndarray]]]:
  """Returns a function from a step to batches for `training.fit`: "image", "label"."""
  parts = planned(settings, pictures, table, key)

  def begin(first: int) -> Iterator[dict[str, np.ndarray]]:
    for images in parts(first):
      plan = data.ordered_plan(len(images), batch_size=settings.batch)
      for read in data.pipeline(
        images, plan, workers=settings.workers, prefetch=settings.prefetch
      ):
        yield {"image": read["image"], "label": read["label"]}

  return begin


@functools.cache
def _embedding(
  architecture: networks.Architecture, batch: int
) -> Callable[[Any, Any], Any]:
  def points(variables: Any, images: Array) -> Array:
    return networks.Model(architecture, variables).embed(images)

  return training.parallel_map(points, batch_size=batch)


def embed(settings: FullConfig, variables: Any, images: data.Images) -> np.ndarray:
  """Raw embeddings [count, dim] with the running statistics."""
  apply = _embedding(settings.architecture, settings.evaluation_batch)
  parts = [apply(variables, batch["image"]) for batch in _in_order(settings, images)]
  return np.concatenate(parts)[: len(images)]


def score(
  settings: FullConfig, variables: Any, watched: EvaluatedImages
) -> dict[str, float]:
  """Measures P@1, P@R and MAP@R of watched images."""
  points = embed(settings, variables, watched.images)
  return protocols.measures(points, np.asarray(watched.images.labels), watched.queries)
