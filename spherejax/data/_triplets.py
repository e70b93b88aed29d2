"""Triplets of images, drawn by class: rare classes count as much as common ones."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Int, Key

from spherejax import _checks, _compiled
from spherejax.data._sampling import ClassTable


class Triplets(NamedTuple):
  """Indices of images, and their classes in the order of the table."""

  anchor: Int[Array, " batch"]
  positive: Int[Array, " batch"]
  """Images of the anchor's class."""
  negative: Int[Array, " batch"]
  """Images of another class."""
  anchor_class: Int[Array, " batch"]
  negative_class: Int[Array, " batch"]


def sample_triplets(
  key: Key[Array, ""], table: ClassTable, *, batch_size: int, distinct: bool = True
) -> Triplets:
  """Draws anchors, positives and negatives, uniformly over classes, not over images.

      class a uniform over the classes, class b uniform over the others
      anchor, positive: two images of a;  negative: one image of b

  A class of 500 images is drawn as often as one of 500,000. Triplets are drawn
  independently of each other. For a plan of many steps use `jax.vmap` over keys such as
  `jax.random.fold_in(key, step)`.

  Args:
    key: of this batch.
    table: from `class_table(labels, per_class=1)`; closed over, or an argument under
      jit.
    batch_size: static. Triplets.
    distinct: static. True draws two different images for anchor and positive; a class
      of one image then gives negatives only. False draws them independently.

  Returns:
    `Triplets`, each [batch_size], int32. If the table is traced and `distinct` is True
    but no class has two images, the indices mean nothing.

  Raises:
    TypeError: key not a key of jax.random, table not a `ClassTable`, a number not an
      integer, distinct not boolean.
    ValueError: fewer than two classes; `distinct` and no class with two images (where
      the table is not traced).

  Cost: O(batch_size log classes + classes), whatever the number of images.

  Source: DIST I 2.3. The released generator draws with `distinct=False`.

  Example:
    >>> labels = jnp.array([0] * 50 + [1] * 2)
    >>> table = spherejax.data.class_table(labels, per_class=1)
    >>> drawn = spherejax.data.sample_triplets(
    ...   jax.random.key(0), table, batch_size=1000)
    >>> bool((labels[drawn.anchor] == labels[drawn.positive]).all())
    True
    >>> round(float((labels[drawn.anchor] == 1).mean()), 1)
    0.5
  """
  _checks.key("key", key)
  _checks.flag("distinct", distinct)
  _checks.instance("table", table, ClassTable)
  _checks.count("batch_size", batch_size)
  number = len(table.counts)
  if number < 2:
    raise ValueError(f"triplets need at least two classes with images, got {number}")
  if distinct:
    _compiled.known(_check_pairs, table.counts)
  order, starts, counts = map(jnp.asarray, table)
  keys = iter(jax.random.split(key, 5))

  def below(limit: Array | int) -> Array:
    return jax.random.randint(next(keys), (batch_size,), 0, limit, jnp.int32)

  # Cumulative number of classes that may give anchors: the r-th such class is where
  # this number first exceeds r.
  able = jnp.cumsum(counts > int(distinct), dtype=jnp.int32)
  anchor_class = jnp.searchsorted(able, below(able[-1]), side="right").astype(jnp.int32)
  other = _without(anchor_class, below(number - 1))
  anchor = below(counts[anchor_class])
  positive = below(counts[anchor_class] - int(distinct))
  if distinct:
    positive = _without(anchor, positive)
  negative = below(counts[other])
  return Triplets(
    order[starts[anchor_class] + anchor],
    order[starts[anchor_class] + positive],
    order[starts[other] + negative],
    anchor_class,
    other,
  )


def _check_pairs(table_counts: ArrayLike) -> None:
  counts = np.asarray(table_counts)
  if np.max(counts) < 2:
    raise ValueError(
      f"distinct triplets need a class with two images, but each of the {len(counts)}"
      " classes has one"
    )


def _without(left_out: Array, rank: Array) -> Array:
  """The rank-th number from 0 on, if one number is left out."""
  return rank + (rank >= left_out)
