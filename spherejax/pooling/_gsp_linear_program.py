"""Unsmoothed limit of generalized sum pooling: a linear program, in closed form."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Real

from spherejax.pooling import _gsp_arguments


def gsp_linear_program(
  costs: Float[ArrayLike, "*batch prototypes tokens"],
  *,
  mass: Real[ArrayLike, "*batch"] | Real[ArrayLike, ""] = 0.3,
  where: Bool[ArrayLike, "*batch tokens"] | None = None,
) -> Float[Array, "*batch tokens"]:
  """Pooling weights that transport a given mass of features at least cost.

      min_{P, r >= 0}  sum_ij c_ij P_ij
      subject to       r_j + sum_i P_ij = a_j,   sum_ij P_ij = mass,   a_j = 1/tokens

  This is the limit of `gsp_weights` at infinite inverse temperature. The features with
  the least cost to any prototype are taken whole until the mass is full; at most one
  feature is cut. The optimal value is `mass * sum_j p_j min_i c_ij`.

  Args:
    costs: [..., prototypes, tokens], floating.
    mass: scalar or of the batch's shape, in (0, 1], may be traced (then clipped to
      that interval). Share of the features that is transported.
    where: [..., tokens], boolean, True keeps. None keeps all.

  Returns:
    [..., tokens], dtype of `costs`: transported mass of each feature divided by
    `mass`, sums to 1. Ties go to the lowest index. 0 where masked.

  Raises:
    TypeError: costs not floating, where not boolean.
    ValueError: shapes do not match, costs without entries, static mass not in (0, 1].

  Differentiable in: mass, where no feature is exactly full; the weights are
  piecewise constant in the costs, with derivative 0. Cost: O(prototypes tokens) and
  one sort of the tokens.

  Source: DML 5.2.1, problem P1; Gurbuz, Sener, Alatan 2023, "Generalized sum pooling
  for metric learning".

  Example:
    >>> costs = jnp.array([[0.4, 0.1, 0.9, 0.2]])
    >>> spherejax.pooling.gsp_linear_program(costs, mass=0.5)
    Array([0. , 0.5, 0. , 0.5], dtype=float32)
  """
  images = _gsp_arguments.from_costs(costs, where)
  mass = _gsp_arguments.mass_of(mass, images.batch, images.costs.dtype)
  mask = images.mask
  cheapest = jnp.where(mask, jnp.min(images.costs, axis=2), jnp.inf)
  order = jnp.argsort(cheapest, axis=1, stable=True)
  rank = jnp.argsort(order, axis=1).astype(mass.dtype)
  full = mass * jnp.sum(mask, axis=1, dtype=jnp.int32).astype(mass.dtype)
  left = jax.nn.relu(full[:, None] - rank)
  taken = jnp.where(mask, jnp.where(left < 1, left, 1), 0)
  weights = taken / jnp.where(full == 0, 1, full)[:, None]
  return images.restore(weights)
