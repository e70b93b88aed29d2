"""Features of grids and photographs under several networks at once."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.counting.images import Photographs
from experiments.counting.training import Points
from spherejax import data, models, pooling

Apply = Callable[[Any, Array], Array]
"""Function of one network's variables and images to features [n, dim]."""
_HEADS = ("fc.", "projection.", "projector.", "non_linear_evaluator.", "classifier.")


class Sample(NamedTuple):
  """Features of images with several objects, under all networks."""

  z: np.ndarray  # [networks, n, dim]
  counts: np.ndarray
  labels: np.ndarray
  lengths: np.ndarray  # [n], norms of the images themselves


class Samples(NamedTuple):
  """Samples that one seed's networks are measured on."""

  mixed: Sample
  single: Sample  # images of one class each
  fitted: Sample  # other images of one class each, to fit classifiers to


class Shape(NamedTuple):
  """Shape of a grid, and how it is drawn."""

  rows: int
  columns: int
  min_count: int
  fill: str
  single_label: bool


def take(sample: Sample, rows: np.ndarray) -> Sample:
  counts, labels, lengths = (x[rows] for x in sample[1:])
  return Sample(sample.z[:, rows], counts, labels, lengths)


def _keys(key: Array, number: int) -> Array:
  return jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(number))


@functools.cache
def drawer(shape: Shape) -> Callable[[Points, Array], data.ImageGrid]:
  """Function of objects and keys to normalised grids of held-out objects."""

  @jax.jit
  def draw(points: Points, keys: Array) -> data.ImageGrid:
    objects = points.normalized(points.held)

    def draw_grid(key: Array) -> data.ImageGrid:
      return data.image_grid(key, objects, points.held_labels, **shape._asdict())

    return jax.vmap(draw_grid)(keys)

  return draw


def counts_and_labels(
  points: Points, shape: Shape, key: Array, number: int
) -> tuple[np.ndarray, np.ndarray]:
  """Counts and labels of the grids that a key draws, without the grids."""
  counts, labels = _labeler(shape)(points, _keys(key, number))
  return np.asarray(counts), np.asarray(labels)


@functools.cache
def _labeler(shape: Shape) -> Callable[[Points, Array], tuple[Array, Array]]:
  @jax.jit
  def both(points: Points, keys: Array) -> tuple[Array, Array]:
    drawn = drawer(shape)(points, keys)
    return drawn.num_objects, drawn.label

  return both


def of_grids(
  apply: Apply,
  variables: Sequence[Any],
  points: Points,
  shape: Shape,
  key: Array,
  *,
  number: int,
  block: int,
) -> Sample:
  """Features of `number` grids under all networks; equal keys draw equal grids.

  `apply` should be jitted.
  """
  keys = _keys(key, -(-number // block) * block).reshape(-1, block)
  blocks = []
  for block_keys in keys:
    drawn = drawer(shape)(points, block_keys)
    z = jnp.stack([apply(network, drawn.image) for network in variables])
    parts = z, drawn.num_objects, drawn.label, _lengths(drawn.image)
    blocks.append(jax.tree.map(np.asarray, parts))
  return _joined(blocks, number)


def of_photographs(
  apply: Apply,
  variables: Sequence[Any],
  photographs: Photographs,
  moments: Any,
  *,
  block: int,
) -> Sample:
  """Features of all photographs under all networks."""
  mean, std = (jnp.asarray(x, jnp.float32) for x in moments)
  number = len(photographs.images)
  blocks = []
  for start in range(0, number, block):
    rows = np.arange(start, start + block) % number
    images = data.normalize(data.to_float(photographs.images[rows]), mean, std)
    z = jnp.stack([apply(network, images) for network in variables])
    parts = z, photographs.counts[rows], photographs.labels[rows], _lengths(images)
    blocks.append(jax.tree.map(np.asarray, parts))
  return _joined(blocks, number)


def _joined(blocks: list[Any], number: int) -> Sample:
  """Concatenates blocks; removes the padding of the last one."""
  z, counts, labels, lengths = zip(*blocks, strict=True)
  flat = (np.concatenate(x)[:number] for x in (counts, labels, lengths))
  return Sample(np.concatenate(z, axis=1)[:, :number], *flat)


@jax.jit
def _lengths(images: Array) -> Array:
  return jnp.linalg.norm(images.reshape(len(images), -1), axis=1)


def residual_network(config: Any) -> tuple[Callable[[Array], Any], Apply]:
  """Functions that draw the variables of ResNet-50 from a key, and apply it."""
  blocks, widths = config.resnet_blocks, config.resnet_widths
  network = models.ResNet50(
    blocks, widths, (1, *(2,) * (len(widths) - 1)), frozen_norm=True
  )
  return drawn_and_applied(network)


@functools.cache
def pretrained() -> models.PretrainedNetwork:
  """The network for photographs if no weights are given."""
  return models.pretrained("efficientnet_lite0")


def drawn_and_applied(network: nn.Module) -> tuple[Callable[[Array], Any], Apply]:
  """Functions that draw the variables of a network from a key, and apply it."""

  def draw(key: Array) -> Any:
    return network.init(key, jnp.zeros((1, 32, 32, 3)))

  @jax.jit
  def apply(variables: Any, images: Array) -> Array:
    maps: Any = network.apply(variables, images)
    return pooling.gap(maps)

  return draw, apply


def residual_weights(config: Any, draw: Callable[[Array], Any]) -> dict[str, Any]:
  """Reads the variables of the named files."""
  shapes = jax.eval_shape(draw, jax.random.key(0))
  files = {"supervised": config.supervised_weights, "SimCLR": config.simclr_weights}
  return {
    name: models.import_weights(shapes, _backbone(file), ignore=_HEADS)
    for name, file in files.items()
    if file
  }


def _backbone(file: str) -> dict[str, np.ndarray]:
  """Reads a file of weights; removes the prefix "encoder." of self-supervised ones."""
  return {
    name.removeprefix("encoder."): array
    for name, array in models.read_weights(file).items()
  }
