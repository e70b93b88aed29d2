"""Generalized max pooling."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Real

from spherejax import _checks, _numerics
from spherejax.pooling import _tokens


def gemax(
  features: Float[ArrayLike, "batch *positions channels"],
  *,
  ridge: Real[ArrayLike, ""] = 1.0,
  where: Bool[ArrayLike, "batch *positions"] | None = None,
) -> Float[Array, "batch channels"]:
  """Generalized max pooling: the vector that has the same product with every feature.

      argmin_z sum_j (<z, x_j> - 1)^2 + ridge |z|^2      over the kept positions j

  so that frequent features do not outweigh rare ones. With a small ridge, copies of a
  feature count once. With a large ridge, ridge times the result is the sum of features.

  Args:
    features: [batch, tokens, channels] or [batch, height, width, channels], floating.
    ridge: positive, may be traced. A ridge below the rounding errors of the features'
      products is raised to their size.
    where: boolean, the shape of `features` without channels, True keeps; masked
      positions may be NaN. None keeps all.

  Returns:
    [batch, channels], dtype of `features`. 0 where nothing is kept.

  Raises:
    TypeError: features not floating, where not boolean.
    ValueError: features without 3 or 4 axes or without entries, shapes do not match,
      a static ridge not positive.

  Differentiable in: features, ridge. Cost: O(batch positions channels m + batch m^3),
  m the smaller of positions and channels: a Cholesky factor of the smaller system.

  Source: Murray, Perronnin 2014, "Generalized max pooling"; Murray et al. 2016,
  "Interferences in match kernels"; DML 5.3.5.

  Example:
    >>> features = jnp.array([[[2.0, 0.0], [0.0, 1.0], [0.0, 1.0]]])
    >>> spherejax.pooling.gemax(features, ridge=1e-6)
    Array([[0.5, 1. ]], dtype=float32)
  """
  features = _checks.array("features", features)
  tokens, mask = _tokens.flatten(features, where)
  _checks.positive("ridge", ridge)
  ridge = _checks.scalar("ridge", ridge, tokens.dtype)
  wide = tokens.shape[1] < tokens.shape[2]
  left = tokens if wide else jnp.swapaxes(tokens, 1, 2)
  gram = _numerics.product(left, jnp.swapaxes(left, 1, 2))
  if not wide:
    right = jnp.sum(tokens, axis=1)
  elif mask is None:
    right = jnp.ones(tokens.shape[:2], tokens.dtype)
  else:
    right = mask.astype(tokens.dtype)
  solve = jax.vmap(_numerics.solve_ridge, (0, None, 0))
  solution = solve(gram, ridge, right[..., None])[..., 0]
  if wide:
    solution = _numerics.einsum("bnd,bn->bd", tokens, solution)
  return solution.astype(features.dtype)
