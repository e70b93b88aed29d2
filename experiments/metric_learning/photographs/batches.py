"""Batches of photographs for `retrieval`, decoded and cropped ahead of the device.

As images differ in size, a random box is cropped from the original and resized on the
host. Crops depend only on the key and the step.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.typing import VariableDict
from jax import Array
from PIL import Image

from experiments.frame import networks
from experiments.metric_learning.photographs.methods import FullConfig
from spherejax import data, training

AREA, ASPECT = (0.16, 1.0), (0.75, 1.33)  # ranges of training crops, as in the thesis
_ATTEMPTS = 10  # boxes to draw, of which the first that fits is used
_PLANNED = 10_000  # steps whose images are drawn at once


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


@dataclasses.dataclass(frozen=True, eq=False)
class Crops(Sequence):
  """Random boxes of images, resized and mirrored at random; places seed the draws."""

  images: np.ndarray | Sequence[np.ndarray]
  seeds: tuple[int, ...]
  first: int
  size: int

  def __len__(self) -> int:
    return len(self.images)

  def __getitem__(self, place: Any) -> Any:
    random = np.random.default_rng([*self.seeds, self.first + int(place)])
    single = Image.fromarray(self.images[int(place)])
    box, kind = _random_box(random, *single.size), Image.Resampling.BILINEAR
    pixels = np.asarray(single.resize((self.size, self.size), kind, box))
    return pixels[:, ::-1] if random.uniform() < 0.5 else pixels


def augmented(
  settings: FullConfig,
  images: data.Images,
  rows: np.ndarray,
  key: Array,
  first: int = 0,
) -> data.Images:
  """Crops some images at random; image i uses draw `first + i` of the key."""
  seeds, chosen = tuple(int(x) for x in jax.random.key_data(key)), images[rows]
  crops = Crops(chosen.images, seeds, first, settings.image_size)
  return dataclasses.replace(chosen, images=crops)


def watched(settings: FullConfig, images: data.Images) -> data.Images:
  """Prepares images for evaluation; holds them in memory if they fit."""
  prepare = functools.partial(networks.prepare, architecture=settings.architecture)
  images = data.map_images(images, prepare)
  fit = len(images) * settings.image_size**2 * 3 <= settings.cache_gib * 2**30
  return images.in_memory() if fit else images


# The table is traced, so that small classes repeat images.
@functools.partial(jax.jit, static_argnames=("num_classes", "per_class"))
def _plan(key: Array, table: data.ClassTable, steps: Array, **sizes: int) -> Array:
  at = functools.partial(data.class_balanced_indices, key, table, **sizes)
  return jax.vmap(at)(steps)


def planned(
  settings: FullConfig, images: data.Images, table: data.ClassTable, key: Array
) -> Callable[[int], Iterator[data.Images]]:
  """Returns a function from a step to an iterator over the images of later batches."""
  plan_key, crop_key = jax.random.split(key)
  per_class = settings.per_class
  sizes = {"num_classes": settings.batch // per_class, "per_class": per_class}

  def begin(first: int) -> Iterator[data.Images]:
    for start in range(first, settings.steps, _PLANNED):
      number = min(_PLANNED, settings.steps - start)
      steps = jnp.arange(number) + start
      rows = np.asarray(_plan(plan_key, table, steps, **sizes)).reshape(-1)
      yield augmented(settings, images, rows, crop_key, start * settings.batch)

  return begin


def batches(
  settings: FullConfig, images: data.Images, table: data.ClassTable, key: Array
) -> Callable[[int], Iterator[dict[str, np.ndarray]]]:
  """Returns a function from a step to batches for `training.fit`: "image", "label"."""
  parts = planned(settings, images, table, key)

  def begin(first: int) -> Iterator[dict[str, np.ndarray]]:
    for part in parts(first):
      plan = data.ordered_plan(len(part), batch_size=settings.batch)
      for read in data.pipeline(
        part, plan, workers=settings.workers, prefetch=settings.prefetch
      ):
        yield {"image": read["image"], "label": read["label"]}

  return begin


@functools.cache
def _embedding(
  architecture: networks.Architecture, batch: int
) -> Callable[[VariableDict, np.ndarray], np.ndarray]:
  def points(variables: VariableDict, images: Array) -> Array:
    return networks.Model(architecture, variables).embed(images)

  return training.parallel_map(points, batch_size=batch)


def embed(
  settings: FullConfig, variables: VariableDict, images: data.Images
) -> np.ndarray:
  """Raw embeddings [count, dim] with the running statistics."""
  apply = _embedding(settings.architecture, settings.evaluation_batch)
  size = min(settings.evaluation_batch, len(images))
  plan = data.ordered_plan(len(images), batch_size=size)
  workers = settings.workers if len(plan) > settings.workers else 0
  options = {"workers": workers, "prefetch": settings.prefetch}
  # Every process reads the same images.
  read = data.pipeline(images, plan, process_index=0, process_count=1, **options)
  parts = [apply(variables, batch["image"]) for batch in read]
  return np.concatenate(parts)[: len(images)]
