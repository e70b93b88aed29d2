"""Shared parts of the poolings: a single axis of positions, and the mask over it."""

import math
from typing import Literal

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from spherejax import _checks, _numerics

Reduction = Literal["mean", "sum"]


def flatten(features: ArrayLike, where: ArrayLike | None) -> tuple[Array, Array | None]:
  """Features [batch, tokens, dim] in their computing type, mask [batch, tokens].

  Masked positions hold 0. A map [batch, height, width, dim] is flattened by rows.
  """
  features = _checks.array("features", features, "floating", rank=(3, 4))
  if 0 in features.shape[1:]:
    raise ValueError(f"features must have positions and channels, got {features.shape}")
  batch, *positions, dim = features.shape
  number = math.prod(positions)
  tokens = _numerics.upcast(features.reshape(batch, number, dim))
  if where is None:
    return tokens, None
  where = _checks.array("where", where)
  _checks.mask(where, (batch, *positions))
  mask = where.reshape(batch, number)
  return jnp.where(mask[..., None], tokens, 0), mask


def count(mask: Array, dtype: jnp.dtype) -> Array:
  """Number of kept positions [batch], or 1 where no position is kept."""
  return jnp.maximum(jnp.sum(mask, axis=1, dtype=jnp.int32), 1).astype(dtype)


def points(name: str, value: ArrayLike, tokens: Array) -> Array:
  """Checks that points are [m, dim] and converts them to the tokens' type."""
  array = _checks.array(name, value, "floating")
  dim = tokens.shape[-1]
  if array.ndim != 2 or array.shape[0] == 0 or array.shape[1] != dim:
    raise ValueError(
      f"{name} must have shape ({name}, {dim}) to match features of {dim} channels, "
      f"got {array.shape}"
    )
  return array.astype(tokens.dtype)


def mean(tokens: Array, mask: Array | None) -> Array:
  """Mean over the positions, 0 over none; masked positions hold 0."""
  if mask is None:
    return jnp.mean(tokens, axis=1)
  return jnp.sum(tokens, axis=1) / count(mask, tokens.dtype)[:, None]


def maximum(tokens: Array, mask: Array | None) -> Array:
  """Maximum over the positions, 0 over none; one position gets the gradient."""
  if mask is None:
    return first_maximum(tokens, axis=1)
  compared = jnp.where(mask[..., None], tokens, -jnp.inf)
  chosen = jnp.argmax(compared, axis=1, keepdims=True)
  largest = jnp.take_along_axis(tokens, chosen, axis=1)[:, 0]
  return jnp.where(jnp.any(mask, axis=1)[:, None], largest, 0)


def first_maximum(x: Array, axis: int) -> Array:
  """Maximum by index, so that the first of a tie gets the gradient."""
  chosen = jnp.argmax(x, axis=axis, keepdims=True)
  return jnp.squeeze(jnp.take_along_axis(x, chosen, axis=axis), axis)
