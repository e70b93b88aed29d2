"""Histograms with linear bins: differentiable, computed bin by bin."""

import jax
import jax.numpy as jnp
from jax import Array

from spherejax.losses import _batch


def histograms(
  values: Array, selections: tuple[Array, ...], low: float, high: float, bins: int
) -> tuple[Array, ...]:
  """[rows, bins + 1] for each selection: how much lies at each of the nodes.

  An entry between two nodes counts for both, by how near it is; entries outside count
  for the node at the end. The derivative is 0 on a node and outside.

  Args:
    values: [rows, columns].
    selections: each [rows, columns], boolean or weights; not differentiated.
    low: first node.
    high: last node.
    bins: number of intervals. Static.
  """
  width = (high - low) / bins
  inside = jnp.where(values < low, low, jnp.where(values > high, high, values))
  nodes = (low + width * jnp.arange(bins + 1)).astype(values.dtype)

  # One bin at a time, computed again for the gradient: nothing but the matrix is kept.
  @jax.checkpoint
  def at(node: Array) -> tuple[Array, ...]:
    offset = (inside - node) / width
    size = jnp.where(offset == 0, 0, jnp.abs(offset))
    share = jax.nn.relu(1 - size)
    return tuple(_batch.sum_over(share, selection) for selection in selections)

  return tuple(x.T for x in jax.lax.map(at, nodes))
