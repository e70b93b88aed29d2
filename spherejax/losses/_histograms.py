"""Histograms with linear bins: differentiable, by products of masks."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from spherejax import _numerics
from spherejax.losses import _selection

_ROWS = 8
"""Rows at a time: their masks take about 50 times the memory of the rows."""


class Nodes(NamedTuple):
  """The nodes low, low + width, ..., high."""

  low: float
  high: float
  bins: int

  def place(self, values: Array) -> tuple[Array, Array]:
    """Node below each value, and the share in [0, 1] of the way to the next node.

    A value outside the range is placed at the nearer end.
    """
    steps = (values - self.low) * (self.bins / (self.high - self.low))
    steps = jnp.where(steps < 0, 0, jnp.where(steps > self.bins, self.bins, steps))
    below = jnp.minimum(jnp.floor(steps), self.bins - 1)
    return below.astype(jnp.int32), steps - below


def histograms(
  values: Array, selections: tuple[Array, ...], low: float, high: float, bins: int
) -> tuple[Array, ...]:
  """[rows, bins + 1] for each selection, the weight at each node.

  An entry between two nodes counts for both, in proportion to its nearness; entries
  outside count for the node at the end. The derivative is 0 on a node and outside.

  Args:
    values: [rows, columns].
    selections: each [rows, columns], boolean or weights; not differentiated.
    low: first node.
    high: last node.
    bins: number of intervals. Static.
  """
  weights = tuple(
    jnp.where(_selection.chosen(selection), selection, 0).astype(values.dtype)
    for selection in selections
  )
  return _histograms(Nodes(low, high, bins), values, weights)


def _total(
  nodes: Nodes, values: Array, weights: tuple[Array, ...]
) -> tuple[Array, ...]:
  # Node = major * minor + rest: a product of two one-hot masks counts them all.
  minor = math.ceil(math.sqrt(nodes.bins))
  major = -(-nodes.bins // minor)

  def of_row(row: tuple[Array, ...]) -> tuple[Array, ...]:
    below, way = nodes.place(row[0])
    first = below[None] // minor == jnp.arange(major)[:, None]
    second = (below[:, None] % minor == jnp.arange(minor)[None]).astype(way.dtype)
    counts = []
    for weight in row[1:]:
      for share in (weight * (1 - way), weight * way):
        shares = jnp.where(first, share[None], 0)
        counts.append(_numerics.product(shares, second))
    flat = [count.ravel()[: nodes.bins] for count in counts]
    return tuple(
      jnp.pad(here, (0, 1)) + jnp.pad(above, (1, 0))
      for here, above in zip(flat[::2], flat[1::2], strict=True)
    )

  return jax.lax.map(of_row, (values, *weights), batch_size=min(_ROWS, len(values)))


_histograms = jax.custom_vjp(_total, nondiff_argnums=(0,))


def _forward(
  nodes: Nodes, values: Array, weights: tuple[Array, ...]
) -> tuple[tuple[Array, ...], tuple[Array, tuple[Array, ...]]]:
  return _total(nodes, values, weights), (values, weights)


def _backward(
  nodes: Nodes,
  residuals: tuple[Array, tuple[Array, ...]],
  cotangents: tuple[Array, ...],
) -> tuple[Array, None]:
  values, weights = residuals
  below, way = nodes.place(values)
  slope = jnp.zeros_like(values)
  for weight, cotangent in zip(weights, cotangents, strict=True):
    rise = jnp.diff(cotangent, axis=1) * (nodes.bins / (nodes.high - nodes.low))
    slope += weight * jnp.take_along_axis(rise, below, axis=1)
  on_node = (way == 0) | (way == 1)  # and outside
  return jnp.where(on_node, 0, slope), None


_histograms.defvjp(_forward, _backward)
