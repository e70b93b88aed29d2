"""References whose rows are split over devices by a `jax.NamedSharding`.

The programs for one device also serve several: XLA splits their products like the
references, and adds up their counts. XLA chooses the layout: a mesh of explicit axes,
whose types every operation would check, is replaced by a mesh of automatic axes.
"""

import functools
import zlib

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, core
from jax.experimental import multihost_utils
from jax.typing import ArrayLike

from spherejax.distances import _order
from spherejax.distances._order import Distance


def over(name: str, rows: ArrayLike) -> jax.NamedSharding | None:
  """Sharding (with automatic axes) of rows split over one axis; None if they are whole.

  Also None for traced rows, whose sharding only XLA knows.

  Raises ValueError where other axes than the rows are split, or the rows over two axes.
  """
  if not isinstance(rows, Array) or isinstance(rows, core.Tracer):
    return None
  sharding = rows.sharding
  named = isinstance(sharding, jax.NamedSharding)
  spec = tuple(sharding.spec) if named else ()
  if sharding.is_fully_replicated and not any(spec):
    return None
  axes = spec[0] if spec and isinstance(spec[0], tuple) else spec[:1]
  if not named or len(axes) != 1 or axes[0] is None or any(spec[1:]):
    raise ValueError(
      f"{name} must be split along its rows over one axis of devices, got {sharding}"
    )
  devices, names = np.asarray(sharding.mesh.devices), sharding.mesh.axis_names
  mesh = jax.sharding.Mesh(devices, names)
  return jax.NamedSharding(mesh, jax.P(*axes))


def place(
  queries: Array, references: Array
) -> tuple[Array, Array, jax.NamedSharding | None]:
  """Puts queries on the devices of the references; also returns their sharding.

  Queries that are whole are copied to every device.
  """
  sharding = over("references", references)
  if sharding is None:
    return queries, references, None
  if queries is references:
    references = _as(references, sharding)
    return references, references, sharding
  parts = over("queries", queries)
  if parts is None:
    queries = whole(queries, sharding)
  else:
    queries = _as(queries, jax.NamedSharding(sharding.mesh, parts.spec))
  return queries, _as(references, sharding), sharding


def whole(values: Array, sharding: jax.NamedSharding) -> Array:
  """Copies the array to every device of the sharding."""
  return put(np.asarray(values), jax.NamedSharding(sharding.mesh, jax.P()))


def local(values: Array) -> Array:
  """Moves values that all devices hold to JAX's default device."""
  return jnp.asarray(np.asarray(values))


def put(values: np.ndarray, sharding: jax.NamedSharding) -> Array:
  """Spreads an array that every process has; each device gets its part."""
  return jax.make_array_from_callback(
    values.shape, sharding, lambda index: values[index]
  )


def agree(references: Array, *labels: np.ndarray) -> None:
  """Raises ValueError unless all processes got the same arrays; else they would hang.

  Compares the shape of the references and the labels.
  """
  if references.is_fully_addressable:
    return
  sums = [zlib.crc32(values.tobytes()) for values in labels]
  summary = np.array([*references.shape, *sums], np.uint32)
  everywhere = np.asarray(multihost_utils.process_allgather(summary))
  if (everywhere != everywhere[0]).any():
    shapes = sorted({tuple(row[:2].tolist()) for row in everywhere})
    raise ValueError(
      "references and labels must be the same on all processes, got references of "
      f"shapes {shapes} and labels that differ"
      if len(shapes) == 1
      else f"references must have one shape on all processes, got {shapes}"
    )


@functools.partial(jax.jit, static_argnames=("sharding", "k", "distance", "block_size"))
def nearest(
  queries: Array,
  references: Array,
  left_out: Array,
  query_names: Array | None = None,
  reference_names: Array | None = None,
  *,
  sharding: jax.NamedSharding,
  k: int,
  distance: Distance,
  block_size: int,
) -> Array:
  """Finds the k nearest like `_order.nearest`; each device searches its rows first."""
  (axis,) = sharding.spec
  options = {"distance": distance, "block_size": block_size}

  def search(
    queries: Array,
    references: Array,
    left_out: Array,
    query_names: Array | None,
    reference_names: Array | None,
  ) -> Array:
    count = len(references)
    first = jax.lax.axis_index(axis) * count
    inside = (left_out >= first) & (left_out < first + count)
    out = jnp.where(inside, left_out - first, -1), query_names, reference_names
    among = _order.nearest(queries, references, *out, k=min(k, count), **options)
    keys = _order.keys(queries, references, among, *out, **options)
    both = (
      jax.lax.all_gather(part, axis, axis=1, tiled=True)
      for part in (keys, among + first)
    )
    return _order.merge(*both, k=k)

  # Unchecked: values that start equal on all devices may differ at the end.
  return jax.shard_map(
    search,
    mesh=sharding.mesh,
    in_specs=(jax.P(), jax.P(axis), jax.P(), jax.P(), jax.P(axis)),
    out_specs=jax.P(),
    check_vma=False,
  )(queries, references, left_out, query_names, reference_names)


def closest(
  queries: Array,
  references: Array,
  *,
  sharding: jax.NamedSharding | None,
  block_size: int,
) -> Array:
  """Finds references like `_order.closest`; each device has its own queries."""

  def search(queries: Array, references: Array) -> Array:
    return _order.closest(queries, references, block_size=min(block_size, len(queries)))

  if sharding is None:
    return search(queries, references)
  return jax.shard_map(
    search,
    mesh=sharding.mesh,
    in_specs=(sharding.spec, jax.P()),
    out_specs=sharding.spec,
    check_vma=False,
  )(queries, references)


def _as(rows: Array, sharding: jax.NamedSharding) -> Array:
  """Lays the same rows on the same devices under another sharding."""
  parts = [shard.data for shard in rows.addressable_shards]
  return jax.make_array_from_single_device_arrays(rows.shape, sharding, parts)
