"""Collages of one foreground image among background images."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Int, Integer, Key, Shaped

from spherejax import _checks


class Collages(NamedTuple):
  """Result of `collages`."""

  images: Shaped[Array, "count big_height big_width channels"]
  """The collages."""
  labels: Int[Array, " count"]
  """Labels of the foreground images."""
  foreground: Bool[Array, "count grid grid"]
  """True at the tile that holds the foreground image."""
  background: Int[Array, "count others"]
  """Indices of the used background images in the pool."""


def collages(
  key: Key[Array, ""],
  images: Shaped[ArrayLike, "count height width channels"],
  labels: Integer[ArrayLike, " count"],
  background: Shaped[ArrayLike, "pool height width channels"],
  *,
  grid: int = 2,
) -> Collages:
  """Sets each image among background images that do not depend on its class.

  A collage has grid x grid tiles: the foreground image and grid^2 - 1 images of the
  pool, in random order. The pool is dealt like a pack of cards: in shuffled order
  without replacement, and reshuffled when exhausted, so the numbers of uses of two
  images differ by at most one. Each foreground image gives one collage; repeat the
  images for more.

  Args:
    key: draws everything.
    images: [count, height, width, channels], foreground, any dtype.
    labels: [count], integer.
    background: [pool, height, width, channels], the dtype of `images`.
    grid: static, at least 2. Tiles along a side.

  Returns:
    `Collages`: images [count, grid height, grid width, channels] in the dtype of
    `images`, labels, the foreground's tile as a mask [count, grid, grid], and the
    background images used [count, grid^2 - 1].

  Raises:
    ValueError: shapes do not match; an empty pool.
    TypeError: dtypes differ, labels not integer.

  Differentiable in: images, background. Cost: O(collage pixels) time and memory, and a
  permutation of the pool each time it is used up.

  Source: DML 5.3.2 (grid 2).

  Example:
    >>> digits = spherejax.data.load_digits()
    >>> result = spherejax.data.collages(
    ...   jax.random.key(0), digits.images[:6], digits.labels[:6], digits.images[6:]
    ... )
    >>> result.images.shape, result.foreground.sum((1, 2))
    ((6, 16, 16, 1), Array([1, 1, 1, 1, 1, 1], dtype=int32))
  """
  _checks.key("key", key)
  images = _checks.array("images", images, rank=4)
  background = _checks.array("background", background)
  labels = _checks.integers("labels", labels)
  _checks.labels(labels, images)
  expected = (*background.shape[:1], *images.shape[1:])
  _checks.shape("background", background, expected, f"the images {images.shape}")
  _checks.count("grid", grid, 2)
  if background.dtype != images.dtype:
    raise TypeError(
      f"background must have the images' dtype {images.dtype}, got {background.dtype}"
    )
  if not len(background):
    raise ValueError(f"background must hold an image, got shape {background.shape}")
  count, height, width, channels = images.shape
  deal_key, place_key = jax.random.split(key)
  dealt = _deal(deal_key, len(background), (count, grid**2 - 1))
  order = jax.vmap(lambda key: jax.random.permutation(key, grid**2))(
    jax.random.split(place_key, count)
  )
  tiles = jnp.concatenate([images[:, None], background[dealt]], 1)
  tiles = jnp.take_along_axis(tiles, order[:, :, None, None, None], 1)
  tiles = tiles.reshape(count, grid, grid, height, width, channels)
  return Collages(
    images=tiles.swapaxes(2, 3).reshape(count, grid * height, grid * width, channels),
    labels=labels,
    foreground=(order == 0).reshape(count, grid, grid),
    background=dealt,
  )


def _deal(
  key: Key[Array, ""], pool: int, shape: tuple[int, int]
) -> Int[Array, "count others"]:
  """Deals indices of the pool, each round in a new random order."""
  total = shape[0] * shape[1]
  rounds = jax.random.split(key, max(1, -(-total // pool)))
  dealt = jax.vmap(lambda key: jax.random.permutation(key, pool))(rounds)
  return dealt.reshape(-1)[:total].reshape(shape)
