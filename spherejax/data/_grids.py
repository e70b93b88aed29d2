"""Images of many objects: grids with some cells filled."""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Int, Integer, Key

from spherejax import _checks, _numerics

Fill = Literal["zeros", "random", "blur"]


class ImageGrid(NamedTuple):
  """Result of `image_grid`."""

  image: Float[Array, "big_height big_width channels"]
  """The grid."""
  num_objects: Int[Array, ""]
  """Number of cells that hold an image."""
  label: Int[Array, ""]
  """Class of all objects; -1 where classes are mixed."""
  cells: Int[Array, "rows columns"]
  """Index of the image in each cell, -1 for none."""


def image_grid(
  key: Key[Array, ""],
  images: Float[ArrayLike, "n height width channels"],
  labels: Integer[ArrayLike, " n"],
  *,
  rows: int = 4,
  columns: int = 4,
  fill: Fill = "zeros",
  single_label: bool = False,
  min_count: int = 1,
) -> ImageGrid:
  """Puts a random number of images into random cells of a grid; returns the number too.

  The count is uniform from `min_count` to the number of cells. Cells are drawn without
  replacement, images with replacement. Use `jax.vmap` over keys for many grids.

  Empty cells are 0 with the fill "zeros". With "random" they hold unclipped Gaussian
  noise with the mean and deviation of each channel of `images`. With "blur" a further
  image, enlarged to the whole grid and blurred with deviation height / 4, lies under
  the objects.

  Args:
    key: draws everything.
    images: [n, height, width, channels], floating, as the network gets them: normalise
      the pixels first, so that "zeros" is 0 for the network.
    labels: [n], integer.
    rows: static. Cells down.
    columns: static. Cells across.
    fill: "zeros", "random" or "blur". Static.
    single_label: static. True draws one class uniformly, and all images from it; False
      draws from all images.
    min_count: static. 0 allows empty grids.

  Returns:
    `ImageGrid`: image [rows height, columns width, channels] in the dtype of `images`,
    num_objects, label, and cells [rows, columns].

  Raises:
    TypeError: images not floating, labels not integers, single_label not boolean.
    ValueError: shapes do not match, no image, an unknown fill, a `min_count` above the
      number of cells.

  Differentiable in: images. Cost: O(pixels of the grid); "blur" O(pixels (height +
  width)).

  Source: NCH 4.1 (4 x 4). The range of the counts is inferred from its tables; the
  deviation of the blur is our choice.

  Example:
    >>> images, labels = jnp.ones([6, 2, 2, 1]), jnp.array([0, 0, 0, 1, 1, 1])
    >>> keys = jax.random.split(jax.random.key(0), 100)
    >>> grids = jax.vmap(
    ...   lambda key: spherejax.data.image_grid(key, images, labels))(keys)
    >>> pixels = 4 * grids.num_objects
    >>> grids.image.shape, bool((grids.image.sum((1, 2, 3)) == pixels).all())
    ((100, 8, 8, 1), True)
  """
  _checks.key("key", key)
  _checks.flag("single_label", single_label)
  images = _checks.array("images", images, "floating", rank=4, empty=False)
  labels = _checks.integers("labels", labels)
  _checks.labels(labels, images)
  _checks.count("rows", rows)
  _checks.count("columns", columns)
  _checks.one_of("fill", fill, Fill)
  _checks.count("min_count", min_count, 0)
  cells = rows * columns
  if min_count > cells:
    raise ValueError(f"min_count must be at most the {cells} cells, got {min_count}")
  count_key, place_key, image_key, fill_key = jax.random.split(key, 4)
  count = jax.random.randint(count_key, (), min_count, cells + 1)
  filled = jax.random.permutation(place_key, cells) < count
  drawn, label = _draw(image_key, labels, cells, single_label)
  height, width, channels = images.shape[1:]
  size = (rows * height, columns * width)
  background = _background(fill_key, images, size, fill)
  tiles = images[drawn].reshape(rows, columns, height, width, channels)
  shown = filled.reshape(rows, 1, columns, 1, 1)
  empty = background.reshape(rows, height, columns, width, channels)
  image = jnp.where(shown, tiles.swapaxes(1, 2), empty)
  return ImageGrid(
    image.reshape(*size, channels),
    count,
    label,
    jnp.where(filled, drawn, -1).reshape(rows, columns),
  )


def _draw(
  key: Array, labels: Array, number: int, single_label: bool
) -> tuple[Array, Array]:
  """Indices of images, of one class or of all, and the label that they share."""
  if not single_label:
    drawn = jax.random.randint(key, (number,), 0, len(labels))
    return drawn, jnp.full((), -1, labels.dtype)
  class_key, own_key = jax.random.split(key)
  # In the sorted order, the k-th class that occurs begins with the k-th run.
  order = jnp.argsort(labels)
  ascending = labels[order]
  begins = jnp.concatenate([jnp.ones(1, bool), ascending[1:] != ascending[:-1]])
  run = jnp.cumsum(begins) - 1
  chosen = jax.random.randint(class_key, (), 0, run[-1] + 1)
  start = jnp.searchsorted(run, chosen, side="left")
  end = jnp.searchsorted(run, chosen, side="right")
  drawn = order[jax.random.randint(own_key, (number,), start, end)]
  return drawn, ascending[start]


def _background(key: Array, images: Array, size: tuple[int, int], fill: Fill) -> Array:
  """Background [big height, big width, channels] below the objects."""
  shape = (*size, images.shape[-1])
  if fill == "zeros":
    return jnp.zeros(shape, images.dtype)
  if fill == "random":
    axes = (0, 1, 2)
    mean, std = jnp.mean(images, axes), jnp.std(images, axes)
    noise = jax.random.normal(key, shape, images.dtype)
    return mean[None, None] + std[None, None] * noise
  image = images[jax.random.randint(key, (), 0, len(images))]
  enlarged = jax.image.resize(image, shape, "bilinear")
  down, across = (
    jnp.asarray(_gaussian(extent, images.shape[1] / 4), images.dtype) for extent in size
  )
  return _numerics.einsum("ab,bcd,ec->aed", down, enlarged, across)


def _gaussian(extent: int, deviation: float) -> np.ndarray:
  """Matrix [extent, extent] whose rows are Gaussians around their place, with sum 1."""
  place = np.arange(extent)
  weights = np.exp(-0.5 * ((place[:, None] - place[None]) / deviation) ** 2)
  return weights / weights.sum(1, keepdims=True)
