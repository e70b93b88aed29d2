"""Costs of transporting features to prototypes, and the dominant prototypes."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int

from spherejax import _checks, _numerics, distances
from spherejax.pooling import _tokens

# A token with a larger entry is divided by that entry before it is squared.
_FAR = 2.0**40


def to_prototypes(tokens: Array, prototypes: ArrayLike) -> Array:
  """Distances in the unit ball: [batch, n, dim], [m, dim] -> [batch, n, m].

  The projected features are never formed: one product of the raw features is scaled
  afterwards.
  """
  prototypes = _tokens.points("prototypes", prototypes, tokens)
  batch, number, dim = tokens.shape
  rows = tokens.reshape(batch * number, dim)
  # Far outside the ball the length does not count; its square might be infinite.
  largest = _numerics.largest_size(rows, 1)
  rows = jnp.where(largest > _FAR, rows / largest, rows)
  squares = jnp.sum(rows**2, axis=1, keepdims=True)
  outside = squares > 1
  scale = jnp.where(outside, jax.lax.rsqrt(jnp.where(outside, squares, 1)), 1)
  inside = distances.unit_ball(prototypes)
  products = _numerics.product(rows, inside.T)
  norms = jnp.where(outside, 1, squares) + jnp.sum(inside**2, axis=1)[None]
  squared = norms - 2 * scale * products
  noise = _numerics.rounding(dim, squared.dtype) * norms
  squared = _numerics.keep(squared, ~(squared <= noise))  # NaN stays NaN
  return _numerics.sqrt(squared).reshape(batch, number, len(prototypes))


def dominant_prototypes(
  features: Float[ArrayLike, "batch *positions dim"],
  prototypes: Float[ArrayLike, "prototypes dim"],
  *,
  where: Bool[ArrayLike, "batch *positions"] | None = None,
) -> Int[Array, "batch *positions"]:
  """Prototype to which each position sends most of its mass.

      argmin_i |unit_ball(prototype_i) - unit_ball(f_j)|

  The result is a map of what `gsp` sees in an image. The plan of generalized sum
  pooling splits the mass of a position among the prototypes by a softmax of the
  negative costs. The largest share goes to the nearest prototype, for every mass and
  inverse temperature.

  Args:
    features: [batch, tokens, dim] or [batch, height, width, dim], floating.
    prototypes: [prototypes, dim], floating.
    where: boolean, the shape of `features` without channels, True keeps; masked
      positions may be NaN. None keeps all.

  Returns:
    int32 in the layout of the features, ties to the lowest index; -1 where masked.

  Raises:
    TypeError: features or prototypes not floating, where not boolean.
    ValueError: shapes do not match or have no entries.

  Not differentiable. Cost: O(batch tokens prototypes dim), one matrix product.

  Source: DML 5.2.2 and eq. 4.2.5, whose histogram counts the dominant prototypes.

  Example:
    >>> features = jnp.array([[[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]])
    >>> spherejax.pooling.dominant_prototypes(features, jnp.eye(2))
    Array([[0, 0, 1]], dtype=int32)
  """
  features = _checks.array("features", features)
  tokens, mask = _tokens.flatten(features, where)
  nearest = jnp.argmin(to_prototypes(tokens, prototypes), axis=2).astype(jnp.int32)
  if mask is not None:
    nearest = jnp.where(mask, nearest, -1)
  return nearest.reshape(features.shape[:-1])
