"""Communication between the devices of a step, by collectives over a named axis.

A step is written for the rows of one device and communicates only through these
functions. So the same step runs under `jax.pmap`, `jax.shard_map` and
`jax.vmap(axis_name=...)`, and, without an axis, on one device.
"""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float

from spherejax import _checks, _numerics, _versions
from spherejax.training._parallel import Tree


def gather(tree: Tree, axis_name: str | None) -> Tree:
  """Gathers the rows of all devices, in global order; without an axis, the tree itself.

  Differentiable: the derivative with respect to the rows that other devices hold
  flows back to those devices.

  Args:
    tree: pytree of arrays [batch / devices, ...], this device's rows.
    axis_name: the mapped device axis, None for one device.

  Returns:
    Pytree of arrays [batch, ...].

  Differentiable in: the arrays. Cost: every device receives all rows.

  Source: none.

  Example:
    >>> jax.vmap(lambda x: spherejax.training.gather(x, "batch"), axis_name="batch")(
    ...     jnp.array([[1], [2]])
    ... )
    Array([[1, 2],
           [1, 2]], dtype=int32)
  """
  if axis_name is None:
    return tree
  return jax.tree.map(
    lambda leaf: jax.lax.all_gather(leaf, axis_name, tiled=True), tree
  )


def global_mean(
  values: Float[ArrayLike, " batch"],
  where: Bool[ArrayLike, " batch"] | None = None,
  *,
  axis_name: str | None = None,
) -> Float[Array, ""]:
  """Share of this device in the mean over the kept rows of all devices.

      devices * sum of this device's kept values / number kept on all devices

  The average of the shares over the devices is the mean, and the average of their
  gradients is its gradient, however unevenly the kept rows lie. (A mean of local means
  would overweight the rows of a device with few kept rows.) On one device the share is
  the mean. A training step takes the average of the shares.

  Args:
    values: [batch], floating, one value per row of this device.
    where: [batch], boolean, True keeps. None keeps all.
    axis_name: the mapped device axis, None for one device.

  Returns:
    Scalar, dtype of `values`; 0 when no row is kept anywhere.

  Raises:
    TypeError: values not floating, where not boolean.
    ValueError: shapes do not match.

  Differentiable in: values (the count is not differentiated). Cost: O(batch).

  Source: none.

  Example:
    >>> spherejax.training.global_mean(
    ...     jnp.array([1.0, jnp.nan, 5.0]), jnp.array([True, False, True])
    ... )
    Array(3., dtype=float32)
  """
  values = _checks.array("values", values, "floating", rank=1)
  mask = _checks.where_mask(where, values.shape)
  total = _numerics.masked_sum(_numerics.upcast(values), mask)
  count = jnp.sum(mask, dtype=jnp.int32)
  if axis_name is not None:
    count = jax.lax.psum(count, axis_name)
    total = total * jax.lax.axis_size(axis_name)
  return _numerics.divide(total, count.astype(total.dtype)).astype(values.dtype)


def device_mean(tree: Tree, axis_name: str | None) -> Tree:
  """Averages over the devices; integers, which are equal on all, stay as they are."""
  if axis_name is None:
    return tree

  def mean(leaf: Array) -> Array:
    if jnp.issubdtype(leaf.dtype, jnp.floating):
      return jax.lax.pmean(_numerics.upcast(leaf), axis_name).astype(leaf.dtype)
    discrete = leaf.dtype == jnp.bool_ or jnp.issubdtype(leaf.dtype, jnp.integer)
    return _numerics.replicated(leaf, axis_name) if discrete else leaf

  return jax.tree.map(mean, tree)


def per_device(tree: Tree, axis_name: str | None) -> Tree:
  """Marks replicated arrays as each device's own, so that gradients stay local.

  Under `jax.shard_map` with its replication checks, the gradient with respect to a
  replicated array is summed over the devices automatically, and an average taken
  afterwards would count every device again. With respect to this function's result the
  gradient is local under every kind of mapping.
  """
  mapped = jax.sharding.get_abstract_mesh().manual_axes
  if axis_name is None or axis_name not in mapped:
    return tree
  return jax.tree.map(lambda leaf: _versions.varying(leaf, axis_name), tree)
