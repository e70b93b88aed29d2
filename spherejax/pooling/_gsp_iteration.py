"""Fixed-point iteration of the paper for generalized sum pooling, in the log domain."""

import jax
import jax.numpy as jnp
from jax import Array

from spherejax import _numerics
from spherejax.pooling import _gsp_solver, _tokens


def iterate(
  score: Array, mass: Array, mask: Array, steps: int
) -> tuple[Array, Array, Array]:
  """Weights [batch, n], residual [batch, n] and mass error [batch] after `steps`.

  With t = exp(theta), the paper's update of t and of the residual mass is

      rho = a (1 - sigmoid(theta + score)),   theta <- theta + log(mass / M(theta))

  where M is the mean of sigmoid(theta + score). The weights (a - rho) / mass belong to
  the residual from which the last theta was computed; they do not sum to 1.
  """
  some = jnp.any(mask, axis=1)
  number = _tokens.count(mask, mass.dtype)
  target = jnp.log(mass * number)

  def advance(theta: Array, _: None) -> tuple[Array, None]:
    taken = jax.nn.log_sigmoid(_gsp_solver.per_feature(theta) + score)
    attained = _numerics.logsumexp(taken, mask)
    return theta + jnp.where(some, target - attained, 0), None

  # The first residual belongs to t = 1, so `steps` residuals need steps - 1 updates.
  start = _numerics.varying(jnp.zeros_like(mass), score, mask)
  theta, _ = jax.lax.scan(advance, start, length=steps - 1)
  logits = _gsp_solver.per_feature(theta) + score
  share = _gsp_solver.per_feature(1 / number)
  weights = jnp.where(mask, jax.nn.sigmoid(logits) * share, 0)
  weights = weights / _gsp_solver.per_feature(mass)
  residual = jnp.where(mask, jax.nn.sigmoid(-logits) * share, 0)
  error = jnp.where(some, jnp.abs(jnp.sum(weights, axis=1) - 1), 0)
  return weights, residual, error
