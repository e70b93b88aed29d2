"""A function of many rows, some at a time, as one small program."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array


def mapped(fn: Callable[[Array], Any], rows: Array, size: int = 256) -> Any:
  """`fn(rows)`, a pytree of [rows, ...], by equal blocks of at most `size` rows.

  The last block is filled with zeros, so each row's result must be its own.
  """
  count = len(rows)
  blocks = -(-count // size)
  block = -(-count // blocks)
  filled = jnp.pad(rows, [(0, blocks * block - count)] + [(0, 0)] * (rows.ndim - 1))
  found = jax.lax.map(fn, filled.reshape(blocks, block, *rows.shape[1:]))
  return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:count], found)
