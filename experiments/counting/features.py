"""Features of grids and photographs under several networks at once."""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.typing import VariableDict
from jax import Array
from numpy.typing import ArrayLike

from experiments.counting.images import AnyArray, Objects, Photographs
from experiments.counting.settings import Fill
from spherejax import data, models, pooling

Apply = Callable[[VariableDict, Array], Array]
"""Function of one network's variables and images to features [n, dim]."""
_HEADS = ("fc.", "projection.", "projector.", "non_linear_evaluator.", "classifier.")


class Sample(NamedTuple):
  """Features of images with several objects, under all networks."""

  z: np.ndarray  # [networks, n, dim]
  counts: np.ndarray
  labels: np.ndarray
  lengths: np.ndarray  # [n], norms of the images themselves

  def at(self, rows: np.ndarray) -> "Sample":
    return Sample(self.z[:, rows], *(x[rows] for x in self[1:]))


class Samples(NamedTuple):
  """Samples that one seed's networks are measured on."""

  mixed: Sample
  single: Sample  # images of one class each
  fitted: Sample | None = None  # others of one class each, to fit classifiers to


def _keys(key: Array, number: int) -> Array:
  return jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(number))


@functools.partial(jax.jit, static_argnames=("fill", "single"))
def drawn(objects: Objects, keys: Array, fill: Fill, single: bool) -> data.ImageGrid:
  """Normalised grids of held-out objects; with `single`, each shows a single class."""
  draw = functools.partial(data.image_grid, fill=fill, single_label=single)
  images = objects.normalized(objects.held)
  return jax.vmap(draw, (0, None, None))(keys, images, objects.held_labels)


@functools.partial(jax.jit, static_argnames="number")
def counts_and_labels(
  objects: Objects, key: Array, *, number: int
) -> tuple[Array, Array]:
  """Counts and labels of the grids of single classes that a key draws.

  Grids with other fills and classes have the same counts.
  """
  grids = drawn(objects, _keys(key, number), "zeros", True)
  return grids.num_objects, grids.label


def of_grids(
  apply: Apply,
  variables: Sequence[VariableDict],
  objects: Objects,
  fill: Fill,
  single: bool,
  key: Array,
  *,
  number: int,
  block: int,
) -> Sample:
  """Features of `number` grids under all networks; equal keys draw equal grids.

  `apply` should be jitted.
  """
  keys = _keys(key, -(-number // block) * block).reshape(-1, block)
  blocks = (drawn(objects, block_keys, fill, single)[:3] for block_keys in keys)
  return _sample(apply, variables, blocks, number)


def of_photographs(
  apply: Apply,
  variables: Sequence[VariableDict],
  photographs: Photographs,
  moments: tuple[ArrayLike, ArrayLike],
  *,
  block: int,
) -> Sample:
  """Features of all photographs under all networks."""
  mean, std = (jnp.asarray(x, jnp.float32) for x in moments)
  number = len(photographs.images)
  rows = (np.arange(x, x + block) % number for x in range(0, number, block))
  parts = ([x[r] for x in photographs] for r in rows)
  blocks = (
    (data.normalize(data.to_float(images), mean, std), counts, labels)
    for images, counts, labels in parts
  )
  return _sample(apply, variables, blocks, number)


def _sample(
  apply: Apply,
  variables: Sequence[VariableDict],
  blocks: Iterable[tuple[Array, AnyArray, AnyArray]],
  number: int,
) -> Sample:
  """Features of blocks of images, counts and labels; removes the last one's padding."""
  parts = []
  for images, counts, labels in blocks:
    z = jnp.stack([apply(network, images) for network in variables])
    parts.append(jax.tree.map(np.asarray, (z, counts, labels, _lengths(images))))
  z, *rest = zip(*parts, strict=True)
  flat = (np.concatenate(x)[:number] for x in rest)
  return Sample(np.concatenate(z, axis=1)[:, :number], *flat)


@jax.jit
def _lengths(images: Array) -> Array:
  return jnp.linalg.norm(images.reshape(len(images), -1), axis=1)


@functools.cache
def pretrained() -> models.PretrainedNetwork:
  """The network for photographs if no weights are given."""
  return models.pretrained("efficientnet_lite0")


def pooled(network: nn.Module, variables: VariableDict, images: Array) -> Array:
  """Average-pooled features [n, dim] of images."""
  return pooling.gap(cast(Array, network.apply(variables, images)))


def imported(shapes: VariableDict, file: str) -> VariableDict:
  """Variables from a file of weights, whose names may begin with "encoder."."""
  weights = models.read_weights(file).items()
  named = {name.removeprefix("encoder."): array for name, array in weights}
  return models.import_weights(shapes, named, ignore=_HEADS)
