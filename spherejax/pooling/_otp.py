"""Optimal-transport pooling (OTP): an average of the features for each prototype."""

from typing import Literal

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Real

from spherejax import _checks, _numerics, distances, solvers
from spherejax.pooling import _costs, _tokens

Cost = Literal["distance", "gaussian"]


def otp(
  features: Float[ArrayLike, "batch *positions dim"],
  prototypes: Float[ArrayLike, "prototypes dim"],
  *,
  inverse_temperature: Real[ArrayLike, " batch"] | Real[ArrayLike, ""] = 2.0,
  steps: int = 10,
  cost: Cost = "distance",
  bandwidth: Real[ArrayLike, ""] = 1.0,
  where: Bool[ArrayLike, "batch *positions"] | None = None,
) -> Float[Array, "batch prototypes*dim"]:
  """Concatenates the sums of the features transported to each prototype (OTP).

      pooled = concatenation over i of sqrt(m) sum_j P_ij f_j

  where P is the plan of `solvers.sinkhorn` between the m prototypes, of equal mass,
  and the features, of equal mass, for the costs

      "distance"   c_ij = |unit_ball(prototype_i) - unit_ball(f_j)|
      "gaussian"   c_ij = -exp(-|prototype_i - f_j|^2 / (2 bandwidth^2))

  Every feature is transported, so the blocks divided by sqrt(m) add up to global
  average pooling, after any number of steps.

  Args:
    features: [batch, tokens, dim] or [batch, height, width, dim], floating; the
      result has m times as many entries as a feature, so project to few dimensions
      first.
    prototypes: [prototypes, dim], floating, usually learned.
    inverse_temperature: scalar or [batch], not negative, may be traced. 0 spreads every
      feature evenly over the prototypes.
    steps: static, not negative. Steps of `solvers.sinkhorn`.
    cost: static. "distance", with 10 steps at inverse temperature 2, is DML's form;
      "gaussian", with 100 steps, is the original.
    bandwidth: of "gaussian", positive, may be traced.
    where: boolean, the shape of `features` without channels, True keeps; masked
      positions may be NaN. None keeps all.

  Returns:
    [batch, prototypes * dim], dtype of `features`. 0 where nothing is kept.

  Raises:
    TypeError: features or prototypes not floating, where not boolean, steps not a
      static integer.
    ValueError: shapes do not match or have no entries, unknown cost, negative steps,
      static bandwidth not positive, static inverse temperature negative or not
      finite.

  Differentiable in: features, prototypes, inverse_temperature, bandwidth, through the
  steps. Cost: O(batch tokens prototypes (dim + steps)).

  Source: Mialon et al. 2021, "A trainable optimal transport embedding for feature
  aggregation"; DML 5.3.5. The two differ in the cost, which DML does not mention.

  Example:
    >>> features = jnp.array([[[1.0, 0.0], [0.0, 1.0]]])
    >>> jax.jit(spherejax.pooling.otp)(features, jnp.eye(2))
    Array([[0.668 , 0.039, 0.039, 0.668 ]], dtype=float32)
  """
  features = _checks.array("features", features)
  tokens, mask = _tokens.flatten(features, where)
  _checks.one_of("cost", cost, Cost)
  _checks.positive("bandwidth", bandwidth)
  _checks.count("steps", steps, 0)
  if cost == "distance":
    costs = _costs.to_prototypes(tokens, prototypes)
  else:
    costs = _kernel(tokens, prototypes, bandwidth)
  marginal = None
  if mask is not None:
    share = 1 / _tokens.count(mask, tokens.dtype)
    marginal = jnp.where(mask, share[:, None], 0)
  transport = solvers.sinkhorn(
    costs.swapaxes(1, 2),
    inverse_temperature=inverse_temperature,
    column_marginal=marginal,
    steps=steps,
  )
  blocks = _numerics.einsum("bmn,bnd->bmd", jnp.exp(transport.log_plan), tokens)
  pooled = costs.shape[2] ** 0.5 * blocks
  return pooled.reshape(len(pooled), pooled.shape[1] * pooled.shape[2]).astype(
    features.dtype
  )


def _kernel(tokens: Array, prototypes: ArrayLike, bandwidth: ArrayLike) -> Array:
  """Negative Gaussian kernel: [batch, n, dim], [m, dim] -> [batch, n, m]."""
  points = _tokens.points("prototypes", prototypes, tokens)
  width = _checks.scalar("bandwidth", bandwidth, tokens.dtype)
  rows = tokens.reshape(-1, tokens.shape[2])
  squared = distances.pairwise_squared_euclidean(rows, points)
  kernel = jnp.exp(-squared / (2 * width**2))
  return -kernel.reshape(*tokens.shape[:2], len(points))
