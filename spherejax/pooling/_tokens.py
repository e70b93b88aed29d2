"""What all poolings share: one axis of positions, and the mask over it."""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from spherejax import _checks, _numerics


def flatten(features: ArrayLike, where: ArrayLike | None) -> tuple[Array, Array | None]:
  """Features [batch, tokens, dim] in their computing type, mask [batch, tokens].

  Masked positions hold 0. A map [batch, height, width, dim] is flattened by rows.
  """
  features = jnp.asarray(features)
  _checks.floating("features", features)
  _checks.rank("features", features, 3, 4)
  if 0 in features.shape[1:]:
    raise ValueError(f"features must have positions and channels, got {features.shape}")
  batch, *positions, dim = features.shape
  tokens = _numerics.upcast(features.reshape(batch, -1, dim))
  if where is None:
    return tokens, None
  where = jnp.asarray(where)
  _checks.mask(where, (batch, *positions))
  kept = where.reshape(batch, -1)
  return jnp.where(kept[..., None], tokens, 0), kept


def count(kept: Array, dtype: jnp.dtype) -> Array:
  """Number of kept positions [batch], 1 where there is none."""
  return jnp.maximum(jnp.sum(kept, axis=1, dtype=jnp.int32), 1).astype(dtype)
