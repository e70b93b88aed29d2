"""Cross-batch memory: a ring of the latest embeddings, as references of a loss."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Bool, Float, Int, Integer

from spherejax import _checks, _numerics
from spherejax.losses import _batch


class Memory(NamedTuple):
  """The latest embeddings and their labels.

  Example:
    >>> spherejax.losses.memory_init(4, 2).embeddings.shape
    (4, 2)
  """

  embeddings: Float[Array, "size dim"]
  """[size, dim], as passed in: a loss normalises them when it uses them."""
  labels: Int[Array, " size"]
  """[size], integer: JAX's default type, int64 where 64-bit types are enabled."""
  filled: Int[Array, ""]
  """Number of slots that hold an embedding; these are the first slots."""
  position: Int[Array, ""]
  """The slot that is written next."""


def memory_init(size: int, dim: int, *, dtype: DTypeLike = jnp.float32) -> Memory:
  """An empty memory.

  Args:
    size: number of embeddings it holds, at least 1. Static.
    dim: length of an embedding. Static.
    dtype: type of the stored embeddings. Static.

  Returns:
    A `Memory`.

  Raises:
    TypeError: size or dim is not a static integer.
    ValueError: size or dim is below 1.

  Not differentiable. Cost: O(size dim) memory.

  Source: Wang et al. 2020, "Cross-batch memory for embedding learning", section 3.2.

  Example:
    >>> spherejax.losses.memory_init(4, 2).filled
    Array(0, dtype=int32)
  """
  _checks.count("size", size)
  _checks.count("dim", dim)
  _checks.floating_type("dtype", dtype)
  none = jnp.zeros((), jnp.int32)
  return Memory(jnp.zeros((size, dim), dtype), jnp.zeros(size, int), none, none)


def memory_update(
  memory: Memory,
  embeddings: Float[ArrayLike, "batch dim"],
  labels: Integer[ArrayLike, " batch"],
  *,
  where: Bool[ArrayLike, " batch"] | None = None,
  axis_name: str | None = None,
) -> tuple[Memory, Int[Array, " batch"]]:
  """Writes a batch over the oldest entries of a memory.

  The r-th stored row, from 0, goes to slot (position + r) mod size, without gradient.
  Under `axis_name` every device writes the rows of all devices in their order, so that
  the memories stay identical.

  Args:
    memory: what to update.
    embeddings: [batch, dim], floating; stored as they are.
    labels: [batch], integer.
    where: [batch], boolean; rows of False are not stored. None stores all.
    axis_name: mapped axis over which the batch is spread.

  Returns:
    The memory with the batch, and the slots [batch] of the rows of this device; -1 for
    rows that were not stored.

  Raises:
    TypeError: embeddings are not floating, labels not integers, or with more bits than
      the memory's.
    ValueError: shapes do not match, no row, or a batch (of all devices) larger than
      the memory.

  Not differentiable. Cost: O(size dim).

  Source: Wang et al. 2020, "Cross-batch memory for embedding learning", section 3.2.

  Example:
    >>> memory = spherejax.losses.memory_init(3, 2)
    >>> x, labels = jnp.eye(2), jnp.array([0, 1])
    >>> memory, slots = spherejax.losses.memory_update(memory, x, labels)
    >>> memory, slots = spherejax.losses.memory_update(memory, x, labels)
    >>> slots
    Array([2, 0], dtype=int32)
  """
  _checks.instance("memory", memory, Memory)
  embeddings = _checks.array("embeddings", embeddings)
  labels = _checks.integers("labels", labels)
  size, dim = memory.embeddings.shape
  _checks.expect("embeddings", embeddings, "floating", rank=2, empty=False)
  if embeddings.shape[1] != dim:
    raise ValueError(
      f"embeddings must have rows of length {dim} to match the memory, "
      f"got shape {embeddings.shape}"
    )
  _checks.labels(labels, embeddings)
  if labels.dtype.itemsize > memory.labels.dtype.itemsize:
    raise TypeError(
      f"labels must fit into the memory's {memory.labels.dtype}, got dtype "
      f"{labels.dtype}"
    )
  mask = _batch.keep_all(where, embeddings)
  rows, classes, stored = (
    _numerics.replicated(_batch.gather(array, axis_name), axis_name)
    for array in (jax.lax.stop_gradient(embeddings), labels, mask)
  )
  if len(rows) > size:
    raise ValueError(f"a memory of {size} cannot take a batch of {len(rows)} at once")
  order = jnp.cumsum(stored, dtype=jnp.int32)
  slots = jnp.where(stored, (memory.position + order - 1) % size, size)
  number = order[-1]
  values = rows.astype(memory.embeddings.dtype)
  updated = Memory(
    memory.embeddings.at[slots].set(values, mode="drop"),
    memory.labels.at[slots].set(classes.astype(memory.labels.dtype), mode="drop"),
    jnp.minimum(memory.filled + number, size).astype(jnp.int32),
    ((memory.position + number) % size).astype(jnp.int32),
  )
  batch = len(embeddings)
  first = _batch.first_row(batch, axis_name)
  slots_here = jax.lax.dynamic_slice_in_dim(slots, first, batch)
  return updated, jnp.where(mask, slots_here, -1)


def memory_references(
  memory: Memory, *, slots: Integer[ArrayLike, " batch"] | None = None
) -> _batch.References:
  """Wraps a memory as the references that a loss compares a batch with.

  Args:
    memory: what `memory_update` returned.
    slots: [batch], integer: the slots that hold copies of the batch's rows, from
      `memory_update`; a row makes no pair with its copy. None if there are no copies.

  Returns:
    References for the argument `references` of a loss.

  Raises:
    TypeError: memory not a `Memory`, slots not integers.
    ValueError: slots of another rank.

  Differentiable in: nothing. Cost: O(size).

  Source: Wang et al. 2020, "Cross-batch memory for embedding learning", section 3.2.

  Example:
    >>> memory = spherejax.losses.memory_init(4, 2)
    >>> x, labels = jnp.eye(2), jnp.array([0, 0])
    >>> memory, slots = spherejax.losses.memory_update(memory, x, labels)
    >>> references = spherejax.losses.memory_references(memory, slots=slots)
    >>> spherejax.losses.cosine_contrastive(x, labels, references=references)
    Array([1., 1.], dtype=float32)
  """
  _checks.instance("memory", memory, Memory)
  if slots is not None:
    slots = _checks.integers("slots", slots)
    _checks.expect("slots", slots, "integer", rank=1)
  filled = jnp.arange(len(memory.labels)) < memory.filled
  return _batch.References(memory.embeddings, memory.labels, filled, slots)
