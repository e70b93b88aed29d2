"""Pooling weights of generalized sum pooling from given costs."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Real

from spherejax import _checks, _numerics
from spherejax.pooling import _gsp_arguments, _gsp_iteration, _gsp_solver


class Plan(NamedTuple):
  """Summary of the transport from each image's features to the prototypes."""

  weights: Array  # [batch, n]
  attributes: Array  # [batch, m]
  residual: Array  # [batch, n]
  converged: Array  # [batch]
  mass_error: Array  # [batch]
  steps: Array  # [batch]


@functools.partial(jax.jit, static_argnames=("iterations",), inline=True)
def transport(
  costs: Array,
  mass: Array,
  inverse_temperature: Array,
  mask: Array,
  iterations: int | None,
) -> Plan:
  """Solves the plan of each image from costs [batch, n, m], without the plan matrix.

  With `iterations` None the solution is exact; a number runs that many steps of the
  paper's iteration.
  """
  cheapest = jax.lax.stop_gradient(jnp.min(costs, axis=2))
  exponentials = jnp.exp(
    -inverse_temperature[:, None, None] * (costs - cheapest[..., None])
  )
  total = jnp.sum(exponentials, axis=2)
  spread = jnp.log(total)
  # The derivative of the score is complete: `cheapest` cancels out of it.
  score = spread - inverse_temperature[:, None] * cheapest
  if iterations is None:
    problem = _gsp_solver.Problem(cheapest, spread, mass, inverse_temperature, mask)
    solution = _gsp_solver.solve(jax.lax.stop_gradient(problem))
    weights, residual, *_ = _gsp_solver.transport_weights(score, mass, mask, solution)
    normalised, error = weights, solution.mass_error
    converged, steps = solution.converged, solution.steps
  else:
    weights, residual, error = _gsp_iteration.iterate(score, mass, mask, iterations)
    normalised = _numerics.divide(weights, jnp.sum(weights, axis=1, keepdims=True))
    error = jax.lax.stop_gradient(error)
    converged = error <= 64 * float(jnp.finfo(error.dtype).eps)
    steps = jnp.full(error.shape, iterations, jnp.int32)
  attributes = _numerics.einsum("bnm,bn->bm", exponentials, normalised / total)
  return Plan(weights, attributes, residual, converged, error, steps)


def gsp_weights(
  costs: Float[ArrayLike, "*batch prototypes tokens"],
  *,
  mass: Real[ArrayLike, "*batch"] | Real[ArrayLike, ""] = 0.3,
  inverse_temperature: Real[ArrayLike, "*batch"] | Real[ArrayLike, ""] = 5.0,
  where: Bool[ArrayLike, "*batch tokens"] | None = None,
) -> Float[Array, "*batch tokens"]:
  """Weights that prefer features near a prototype, by smoothed partial transport.

      min  sum_ij c_ij P_ij + (1/b) (sum_ij P_ij log P_ij + sum_j r_j log r_j)
      subject to  r_j + sum_i P_ij = a_j,  sum_ij P_ij = mass,  P, r >= 0

  with a_j = 1/tokens and b the inverse temperature. The problem is solved exactly: only
  the mass constraint keeps a multiplier theta, and

      p_j = a_j sigmoid(theta + s_j) / mass,    s_j = log sum_i exp(-b c_ij)

  sums to 1. Accurate for every mass and inverse temperature in float32: |sum p - 1|
  is below 1e-6 and p within 2e-6 of its float64 value for the same costs.

  Args:
    costs: [..., prototypes, tokens], floating.
    mass: scalar or of the batch's shape, in (0, 1], may be traced (then clipped to that
      interval). Share of the features that is transported; 1 gives all the same weight.
    inverse_temperature: scalar or of the batch's shape, not negative, may be traced
      (then clipped at 0). In units of one over the cost; 0 gives all features the same
      weight; the limit at infinity is `gsp_linear_program`.
    where: [..., tokens], boolean, True keeps. None keeps all.

  Returns:
    [..., tokens], dtype of `costs`, between 0 and 1/(tokens * mass). 0 where masked,
    and everywhere if nothing is kept.

  Raises:
    TypeError: costs not floating, where not boolean.
    ValueError: shapes do not match, costs without entries, static mass not in (0, 1]
      or static inverse temperature negative or not finite.

  Differentiable in: costs, mass, inverse_temperature, in forward and reverse mode,
  repeatedly, by the implicit function theorem; one-sided in mass at 1. Cost:
  O(prototypes tokens), and O(tokens) for each of some 3 to 30 steps; memory of the
  backward pass does not depend on the steps.

  Source: DML 5.2.2, problem P2; Gurbuz, Sener, Alatan 2023, "Generalized sum pooling
  for metric learning". Differs from the paper: solved by a safeguarded Newton iteration
  on the mass constraint instead of 100 fixed-point steps. DML proposition 5.2.2
  misplaces a factor of the derivative.

  Example:
    >>> costs = jnp.array([[0.4, 0.1, 0.9, 0.2]])
    >>> weights = spherejax.pooling.gsp_weights(
    ...   costs, mass=0.5, inverse_temperature=100.0
    ... )
    >>> weights.round(3)
    Array([0. , 0.5, 0. , 0.5], dtype=float32)
  """
  return _weights(costs, mass, inverse_temperature, where, None)


def _weights(
  costs: ArrayLike,
  mass: ArrayLike,
  inverse_temperature: ArrayLike,
  where: ArrayLike | None,
  iterations: int | None,
) -> Array:
  """Weights of the checked problem, by `iterations` steps or by the exact solver."""
  images = _gsp_arguments.from_costs(costs, where)
  mass = _gsp_arguments.mass_of(mass, images.batch, images.costs.dtype)
  inverse_temperature = _gsp_arguments.inverse_temperature_of(
    inverse_temperature, images.batch, images.costs.dtype
  )
  plan = transport(images.costs, mass, inverse_temperature, images.mask, iterations)
  return images.restore(plan.weights)


def gsp_fixed_point(
  costs: Float[ArrayLike, "*batch prototypes tokens"],
  *,
  mass: Real[ArrayLike, "*batch"] | Real[ArrayLike, ""] = 0.3,
  inverse_temperature: Real[ArrayLike, "*batch"] | Real[ArrayLike, ""] = 5.0,
  steps: int = 100,
  where: Bool[ArrayLike, "*batch tokens"] | None = None,
) -> Float[Array, "*batch tokens"]:
  """Weights of `gsp_weights` after some steps of the paper's iteration.

      r <- a / (1 + t k),    t <- mass / sum_j k_j r_j,    k_j = sum_i exp(-b c_ij)

  from t = 1, with p = (a - r) / mass. Use it for comparisons only; `gsp_weights` is
  exact. The iteration converges linearly with a rate between `mass` and 1, hence slowly
  for a mass near 1 or a large inverse temperature. It is computed with log t, so that
  nothing underflows.

  Args:
    costs: [..., prototypes, tokens], floating.
    mass: scalar or of the batch's shape, in (0, 1], may be traced (then clipped).
    inverse_temperature: scalar or of the batch's shape, not negative, may be traced.
    steps: static. Number of residuals r to compute.
    where: [..., tokens], boolean, True keeps. None keeps all.

  Returns:
    [..., tokens], dtype of `costs`. Does not sum to 1 before convergence.

  Raises:
    TypeError: costs not floating, where not boolean, steps not a static integer.
    ValueError: shapes do not match, costs without entries, steps < 1, static mass not
      in (0, 1] or static inverse temperature negative or not finite.

  Differentiable in: costs, mass, inverse_temperature, through the steps. Cost:
  O(prototypes tokens + steps tokens); the backward pass stores every step.

  Source: DML proposition 5.2.1.

  Example:
    >>> costs = jnp.array([[0.4, 0.1, 0.9, 0.2]])
    >>> weights = spherejax.pooling.gsp_fixed_point(costs, mass=0.5, steps=100)
    >>> bool(jnp.allclose(weights, spherejax.pooling.gsp_weights(costs, mass=0.5)))
    True
  """
  _checks.count("steps", steps)
  return _weights(costs, mass, inverse_temperature, where, steps)
