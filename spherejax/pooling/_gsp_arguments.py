"""Checks the arguments of generalized sum pooling, and brings them to one layout.

Internally costs are [batch, tokens, prototypes], so that the sums over prototypes run
over adjacent numbers.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from spherejax import _checks, _numerics


class Images(NamedTuple):
  """Costs of a batch in their computing type, and the caller's shape and dtype."""

  costs: Array  # [images, tokens, prototypes], 0 where masked
  mask: Array  # [images, tokens], boolean
  batch: tuple[int, ...]
  dtype: jnp.dtype

  def restore(self, x: Array) -> Array:
    """[images, ...] in the caller's batch shape and dtype."""
    return x.reshape(self.batch + x.shape[1:]).astype(self.dtype)


def from_costs(costs: ArrayLike, where: ArrayLike | None) -> Images:
  """Images from costs [..., prototypes, tokens] and a mask [..., tokens]."""
  costs = _checks.array("costs", costs, "floating")
  if costs.ndim < 2 or 0 in costs.shape[-2:]:
    raise ValueError(f"costs must be [..., prototypes, tokens], got {costs.shape}")
  *batch, prototypes, tokens = costs.shape
  if where is None:
    where = jnp.ones((*batch, tokens), bool)
  where = _checks.array("where", where)
  _checks.mask(where, (*batch, tokens))
  images = math.prod(batch)
  mask = where.reshape(images, tokens)
  rows = _numerics.upcast(costs.reshape(images, prototypes, tokens)).swapaxes(1, 2)
  return Images(jnp.where(mask[..., None], rows, 0), mask, tuple(batch), costs.dtype)


def _per_image(
  name: str, value: ArrayLike, batch: tuple[int, ...], dtype: jnp.dtype
) -> Array:
  """Broadcasts a scalar, or one number per image, to [images]."""
  if value is None:
    raise TypeError(f"{name} must be a number, got None")
  value = jnp.asarray(value, dtype)
  if value.ndim > 0:
    _checks.shape(name, value, batch, "the batch")
  return jnp.broadcast_to(value, batch).reshape(-1)


def mass_of(mass: ArrayLike, batch: tuple[int, ...], dtype: jnp.dtype) -> Array:
  """The mass of each image [images], in (0, 1]."""
  _checks.between("mass", mass, 0, 1, low_open=True)
  mass = _per_image("mass", mass, batch, dtype)
  # Not jnp.clip: its derivative at a bound is half the right one.
  mass = jnp.where(mass > 1, 1, mass)
  tiny = float(jnp.finfo(dtype).tiny)
  return jnp.where(mass < tiny, tiny, mass)


def inverse_temperature_of(
  value: ArrayLike, batch: tuple[int, ...], dtype: jnp.dtype
) -> Array:
  """The inverse temperature of each image [images], not negative."""
  _checks.between("inverse_temperature", value, 0)
  value = _per_image("inverse_temperature", value, batch, dtype)
  return jnp.where(value < 0, 0, value)
