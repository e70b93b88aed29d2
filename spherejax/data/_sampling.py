"""Draws the images of a step's batch, by pure functions of a key and the step.

A batch does not depend on the batches before it, so a run can resume at any step. The
same expression serves a jitted loop over images in memory and, mapped over the steps,
the plan of a host pipeline.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Int, Integer, Key, UInt32

from spherejax import _checks, _compiled, _numerics
from spherejax.data import _splits

# Rounds of the index cipher. A Feistel network needs at least four to look random
# (Luby, Rackoff 1988); twice as many still cost little compared with a gather.
_ROUNDS = 8


class ClassTable(NamedTuple):
  """Table of the images of each class, for `class_balanced_indices`.

  Class c, counted among those that occur, has the images
  order[starts[c] : starts[c] + counts[c]].
  """

  order: Int[np.ndarray | Array, " count"]
  """Indices of all images, sorted by class, ascending within a class."""
  starts: Int[np.ndarray | Array, " classes"]
  """Position in `order` of each class's first image."""
  counts: Int[np.ndarray | Array, " classes"]
  """Images of each class."""


def class_table(
  labels: Integer[ArrayLike, " count"],
  *,
  per_class: int,
  label_names: Sequence[str] = (),
) -> ClassTable:
  """Builds a table of the images of each class, and checks that there are enough.

  Args:
    labels: [count], integer, none negative. Labels without an image do not count as
      classes.
    per_class: static. Images that a batch takes per class.
    label_names: static. Names for the error message.

  Returns:
    `ClassTable` of NumPy int32 arrays.

  Raises:
    ValueError: a class with fewer than `per_class` images; a negative label; no
      label at all.
    TypeError: labels not integer.

  Cost: O(count log count), on the host, once.

  Source: none.

  Example:
    >>> table = spherejax.data.class_table(jnp.array([4, 2, 4, 2]), per_class=2)
    >>> table.order, table.starts, table.counts.tolist()
    (array([1, 3, 0, 2], dtype=int32), array([0, 2], dtype=int32), [2, 2])
  """
  labels = _splits.host_labels(labels)
  _checks.count("per_class", per_class)
  _checks.sequence("label_names", label_names)
  classes, starts, counts = np.unique(
    np.sort(labels), return_index=True, return_counts=True
  )
  if (counts < per_class).any():
    small = [
      f"{label}{f' ({label_names[label]})' if label < len(label_names) else ''}"
      f" has {count}"
      for label, count in zip(classes, counts, strict=True)
      if count < per_class
    ]
    more = f" and {len(small) - 5} more classes" if len(small) > 5 else ""
    raise ValueError(
      f"each class must have at least per_class={per_class} images, but class "
      + ", ".join(small[:5])
      + more
    )
  order = np.argsort(labels, kind="stable")
  return ClassTable(*(part.astype(np.int32) for part in (order, starts, counts)))


def class_balanced_indices(
  key: Key[Array, ""],
  table: ClassTable,
  step: Integer[ArrayLike, ""],
  *,
  num_classes: int,
  per_class: int,
) -> Int[Array, " batch"]:
  """Draws the images of a batch: `num_classes` classes with `per_class` images each.

  Classes are drawn uniformly without replacement, then images of each class uniformly
  without replacement; every step draws anew, with `fold_in(key, step)`. The order is
  class by class: the first half of the batch holds the images of the first half of its
  classes. For a plan of many steps use `jax.vmap` over `step`.

  Args:
    key: of the whole run.
    table: from `class_table`; closed over, or an argument under jit.
    step: >= 0, may be traced.
    num_classes: static. Classes in a batch.
    per_class: static. Images of each class.

  Returns:
    [batch], int32, batch = num_classes x per_class. Where the table is traced and
    a class has fewer than `per_class` images, some of its indices are wrong.

  Raises:
    TypeError: key not a key of jax.random, table not a `ClassTable`, step or a number
      not an integer.
    ValueError: fewer classes than `num_classes`; a class with fewer images than
      `per_class` (where the table is not traced).

  Cost: O(num_classes^2 + num_classes per_class^2), whatever the number of images.

  Source: the batches of Hermans, Beyer, Leibe 2017, "In defense of the triplet
  loss for person re-identification", section 2 (P classes x K images).

  Example:
    >>> table = spherejax.data.class_table(jnp.repeat(jnp.arange(3), 4), per_class=2)
    >>> spherejax.data.class_balanced_indices(
    ...   jax.random.key(0), table, 7, num_classes=2, per_class=2
    ... ).shape
    (4,)
  """
  _checks.key("key", key)
  _checks.instance("table", table, ClassTable)
  _checks.count("num_classes", num_classes)
  _checks.count("per_class", per_class)
  if num_classes > len(table.counts):
    raise ValueError(
      f"num_classes must be at most the {len(table.counts)} classes that have"
      f" images, got {num_classes}"
    )
  _compiled.known(functools.partial(_check_fewest, per_class), table.counts)
  order, starts, counts = map(jnp.asarray, table)
  step = _checks.integers("step", step)
  _checks.expect("step", step, "integer", rank=0)
  _checks.between("step", step, 0)
  step_key = jax.random.fold_in(_numerics.threefry(key), step)
  class_key, image_key = jax.random.split(step_key)
  classes = distinct(class_key, len(counts), num_classes)
  draw = jax.vmap(distinct, (0, 0, None))
  rows = draw(jax.random.split(image_key, num_classes), counts[classes], per_class)
  return order[starts[classes][:, None] + rows].reshape(-1)


def _check_fewest(per_class: int, counts: ArrayLike) -> None:
  fewest = int(np.min(np.asarray(counts)))
  if fewest < per_class:
    raise ValueError(
      f"per_class must be at most the {fewest} images of the smallest class, got"
      f" {per_class}"
    )


def class_pools(
  key: Key[Array, ""], table: ClassTable, *, size: int
) -> Int[Array, "classes size"]:
  """Draws images of every class, as a pool to choose representatives from.

  Images are drawn uniformly without repetition. In a class with fewer than `size`
  images, all images occur before any occurs again.

  Args:
    key: of this draw.
    table: from `class_table(labels, per_class=1)`; closed over, or an argument under
      jit.
    size: static. Images of each class.

  Returns:
    [classes, size], int32, rows of the images, in the order of the table's classes.

  Raises:
    TypeError: key not a key of jax.random, table not a `ClassTable`, size not an
      integer.
    ValueError: size below 1.

  Cost: O(classes size^2), whatever the number of images.

  Source: DML algorithm 2 (the pools of b samples of each class).

  Example:
    >>> table = spherejax.data.class_table(jnp.array([1, 0, 1, 1]), per_class=1)
    >>> pools = spherejax.data.class_pools(jax.random.key(0), table, size=3)
    >>> jnp.sort(pools)
    Array([[1, 1, 1],
           [0, 2, 3]], dtype=int32)
  """
  _checks.key("key", key)
  _checks.instance("table", table, ClassTable)
  _checks.count("size", size)
  order, starts, counts = map(jnp.asarray, table)
  draw = jax.vmap(distinct, (0, 0, None))
  keys = jax.random.split(_numerics.threefry(key), len(counts))
  return order[starts[:, None] + draw(keys, counts, size)]


def distinct(
  key: Key[Array, ""], population: int | Int[Array, ""], draws: int
) -> Int[Array, " draws"]:
  """Different integers in [0, population), uniform over ordered choices.

  Draw j is uniform over the population - j remaining values: the r-th of them is r plus
  the number of drawn values at or below it. Once all values have been drawn, the next
  draws are from all of them again.
  """
  turns = jnp.arange(draws, dtype=jnp.int32)
  position = turns % population
  ranks = jax.random.randint(key, (draws,), 0, population - position, jnp.int32)

  # Values not yet drawn are at the end and exceed every rank.
  unused = jnp.full(draws, jnp.iinfo(jnp.int32).max, jnp.int32)

  def draw(taken, turn):
    rank, j = turn
    taken = jnp.where(j == 0, unused, taken)
    # `taken` ascends; its i-th value has value - i free ones below it.
    value = rank + jnp.sum(taken - turns <= rank, dtype=jnp.int32)
    return jnp.sort(taken.at[j].set(value)), value

  return jax.lax.scan(draw, unused, (ranks, position))[1]


def shuffled_indices(
  key: Key[Array, ""], count: int, step: Integer[ArrayLike, ""], *, batch_size: int
) -> Int[Array, " batch_size"]:
  """Draws the images of a batch, where each epoch is a new shuffle of all images.

  An epoch has count // batch_size steps. It leaves out the remainder of its shuffle, so
  the images left out vary. No image occurs twice in an epoch. The shuffle is a cipher
  on the indices, so a batch costs the same at any step, and no permutation is stored.

  Args:
    key: of the whole run.
    count: static. Number of images.
    step: >= 0, may be traced.
    batch_size: static, at most `count`.

  Returns:
    [batch_size], int32.

  Raises:
    TypeError: key not a key of jax.random, a number not an integer.
    ValueError: `batch_size` not in [1, count].

  Cost: O(batch_size).

  Source: Luby, Rackoff 1988, "How to construct pseudorandom permutations from
  pseudorandom functions" (Feistel network); Black, Rogaway 2002, "Ciphers with
  arbitrary finite domains" (cycle walking; two unequal halves).

  Example:
    >>> epoch = jax.vmap(
    ...   lambda step: spherejax.data.shuffled_indices(
    ...     jax.random.key(0), 6, step, batch_size=2
    ...   )
    ... )(jnp.arange(3))
    >>> jnp.sort(epoch.ravel())
    Array([0, 1, 2, 3, 4, 5], dtype=int32)
  """
  _checks.key("key", key)
  _checks.count("count", count)
  _checks.count("batch_size", batch_size)
  if batch_size > count:
    raise ValueError(f"batch_size must be at most the {count} images, got {batch_size}")
  steps_per_epoch = count // batch_size
  step = _checks.integers("step", step)
  _checks.expect("step", step, "integer", rank=0)
  _checks.between("step", step, 0)
  epoch, turn = jnp.divmod(step, steps_per_epoch)
  epoch_key = jax.random.fold_in(_numerics.threefry(key), epoch)
  keys = jax.random.bits(epoch_key, (_ROUNDS,), jnp.uint32)
  positions = turn * batch_size + jnp.arange(batch_size)
  return _permute(keys, positions.astype(jnp.uint32), count).astype(jnp.int32)


def _permute(
  keys: UInt32[Array, " rounds"], index: UInt32[Array, " batch"], count: int
) -> UInt32[Array, " batch"]:
  """Pseudo-random permutation of [0, count), evaluated at `index`."""
  # Halves left < a, right < b of an index left x b + right; a b < count + a.
  a = max(int(np.ceil(np.sqrt(count))), 1)
  b = -(-count // a)

  def encipher(index):
    left, right = index // b, index % b
    for turn in range(0, _ROUNDS, 2):
      left = (left + _mix(right ^ keys[turn]) % a) % a
      right = (right + _mix(left ^ keys[turn + 1]) % b) % b
    return left * b + right

  def outside(index):
    return jnp.any(index >= count)

  def walk(index):
    return jnp.where(index >= count, encipher(index), index)

  # Indices that leave [0, count) are enciphered again until they are inside.
  return jax.lax.while_loop(outside, walk, encipher(index))


def _mix(word: UInt32[Array, " batch"]) -> UInt32[Array, " batch"]:
  """Mixes the bits of a word: the finaliser of MurmurHash3 (Appleby 2011)."""
  word = (word ^ (word >> 16)) * jnp.uint32(0x85EBCA6B)
  word = (word ^ (word >> 13)) * jnp.uint32(0xC2B2AE35)
  return word ^ (word >> 16)


def ordered_plan(count: int, *, batch_size: int) -> Int[np.ndarray, "steps batch_size"]:
  """Orders all images in batches of one shape, each image once, for evaluation.

  The last batch is filled up from the first images: concatenate the results of the
  batches and keep the first `count`.

  Args:
    count: static. Number of images.
    batch_size: static.

  Returns:
    [ceil(count / batch_size), batch_size], int32: a plan for `pipeline`.

  Raises:
    TypeError: count or batch_size not an integer.
    ValueError: `count` or `batch_size` below 1.

  Cost: O(count).

  Source: none.

  Example:
    >>> spherejax.data.ordered_plan(5, batch_size=2)
    array([[0, 1],
           [2, 3],
           [4, 0]], dtype=int32)
  """
  _checks.count("count", count)
  _checks.count("batch_size", batch_size)
  steps = -(-count // batch_size)
  plan = np.arange(steps * batch_size, dtype=np.int32) % count
  return plan.reshape(steps, batch_size)
