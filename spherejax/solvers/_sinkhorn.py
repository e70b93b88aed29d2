"""Entropy-smoothed optimal transport, by Sinkhorn's iteration on logarithms."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from spherejax import _checks, _numerics


class SinkhornResult(NamedTuple):
  """Transport plan, its potentials, and its residual against the marginals."""

  log_plan: Float[Array, "*batch rows columns"]
  """Logarithm of the plan; -inf where a marginal is 0."""
  row_potential: Float[Array, "*batch rows"]
  """f, the logarithm of the rows' scaling; -inf where the marginal is 0."""
  column_potential: Float[Array, "*batch columns"]
  """g, the logarithm of the columns' scaling; likewise."""
  residual: Float[Array, "*batch"]
  """Largest |sum of a row - its marginal|; no derivative. Columns are exact."""


def sinkhorn(
  costs: Float[ArrayLike, "*batch rows columns"],
  *,
  inverse_temperature: Real[ArrayLike, "*batch"] | Real[ArrayLike, ""] = 1.0,
  row_marginal: Real[ArrayLike, "*batch rows"] | None = None,
  column_marginal: Real[ArrayLike, "*batch columns"] | None = None,
  steps: int = 100,
) -> SinkhornResult:
  """Transport plan of least cost between two marginals, smoothed by entropy.

      min  sum_ij c_ij P_ij + (1/b) sum_ij P_ij log P_ij,   P 1 = r,  P^T 1 = a

      log P_ij = f_i + g_j - b c_ij
      g_j <- log a_j - log sum_i exp(f_i - b c_ij)
      f_i <- log r_i - log sum_j exp(g_j - b c_ij)

  with b the inverse temperature. From f = 0 the two half steps are repeated `steps`
  times, then the first once more, so that the column marginal is met exactly after any
  number of steps. Logarithms keep everything from underflowing, whatever b c is.

  Args:
    costs: [..., rows, columns], floating. May be NaN where a marginal is 0.
    inverse_temperature: scalar or of the batch's shape, not negative, may be traced.
    row_marginal: r, [..., rows], not negative, of sum 1. None is uniform.
    column_marginal: a, [..., columns], not negative, of sum 1. None is uniform. A 0 in
      a marginal leaves that row or column out, which serves as a mask.
    steps: static, not negative. Convergence is linear and slows down as the inverse
      temperature grows; see `residual`.

  Returns:
    SinkhornResult(log_plan, row_potential, column_potential, residual), dtype of
    `costs`. A marginal of zeros makes a plan of zeros.

  Raises:
    TypeError: costs not floating, steps not a static integer.
    ValueError: shapes do not match, costs without entries, negative steps, static
      inverse temperature negative or not finite.

  Differentiable in: costs, inverse_temperature and the marginals where they are not 0,
  in forward and reverse mode, through the steps. Cost: O(steps rows columns) time. The
  backward pass stores the potentials of the rows of each step, O(steps rows), and
  computes the rest again.

  Source: Cuturi 2013, "Sinkhorn distances"; Peyre, Cuturi 2019, "Computational
  optimal transport", 4.4.

  Example:
    >>> costs = jnp.array([[0.0, 1.0], [1.0, 0.0]])
    >>> plan = jnp.exp(jax.jit(spherejax.solvers.sinkhorn)(costs).log_plan)
    >>> plan
    Array([[0.366 , 0.134],
           [0.134, 0.366 ]], dtype=float32)
  """
  costs = _checks.array("costs", costs, "floating")
  if costs.ndim < 2 or 0 in costs.shape[-2:]:
    raise ValueError(f"costs must be [..., rows, columns], got {costs.shape}")
  *batch, rows, columns = costs.shape
  _checks.between("inverse_temperature", inverse_temperature, 0)
  _checks.count("steps", steps, 0)
  dtype = _numerics.compute_dtype(costs.dtype)
  sharpness = jnp.asarray(inverse_temperature, dtype)
  if sharpness.ndim > 0:
    _checks.shape("inverse_temperature", sharpness, batch, "the batch")
  r = _marginal("row_marginal", row_marginal, (*batch, rows), dtype)
  a = _marginal("column_marginal", column_marginal, (*batch, columns), dtype)
  mask = (r > 0)[..., :, None] & (a > 0)[..., None, :]
  costs_kept = jnp.where(mask, _numerics.upcast(costs), 0)
  # Differences to the cheapest of a column keep the digits that a large b c loses.
  cheapest = jnp.min(costs_kept, axis=-2, where=mask, initial=jnp.inf)
  cheapest = jax.lax.stop_gradient(jnp.where(jnp.any(mask, axis=-2), cheapest, 0))
  sharpness = jnp.broadcast_to(sharpness, batch)[..., None]
  scores = -sharpness[..., None] * (costs_kept - cheapest[..., None, :])
  f, g, log_plan = _iterate(scores, mask, r, a, steps)
  error = jnp.abs(jnp.sum(jnp.exp(log_plan), axis=-1) - r)
  residual = jax.lax.stop_gradient(jnp.max(error, axis=-1))
  g += sharpness * cheapest
  return SinkhornResult(*(x.astype(costs.dtype) for x in (log_plan, f, g, residual)))


def _iterate(
  scores: Array, mask: Array, r: Array, a: Array, steps: int
) -> tuple[Array, Array, Array]:
  """Potentials of rows and columns, and the logarithm of the plan."""
  # Far below all others, and finite: its exponential and the derivative of it are 0.
  scores = jnp.where(mask, scores, -float(jnp.finfo(scores.dtype).max) / 4)
  rows, columns = jnp.any(mask, axis=-1), jnp.any(mask, axis=-2)
  log_r = jnp.log(jnp.where(rows, r, 1))
  log_a = jnp.log(jnp.where(columns, a, 1))

  def by_columns(f: Array) -> tuple[Array, Array]:
    shares, total = _log_shares(f[..., :, None] + scores, -2)
    return shares, jnp.where(columns, log_a - total, 0)

  def step(f: Array, _: None) -> tuple[Array, None]:
    g = by_columns(f)[1]
    total = _log_shares(g[..., None, :] + scores, -1)[1]
    return jnp.where(rows, log_r - total, 0), None

  start = _numerics.varying(jnp.zeros_like(r), scores, mask, r, a)
  f, _ = jax.lax.scan(jax.checkpoint(step), start, length=steps)
  # Uses the shares, not the potentials, so that columns are exact up to rounding.
  shares, g = by_columns(f)
  log_plan = jnp.where(mask, log_a[..., None, :] + shares, -jnp.inf)
  f, g = jnp.where(rows, f, -jnp.inf), jnp.where(columns, g, -jnp.inf)
  return f, g, log_plan


def _log_shares(x: Array, axis: int) -> tuple[Array, Array]:
  """Logarithms of the softmax over an axis, and of what it divides by."""
  largest = jax.lax.stop_gradient(jnp.max(x, axis=axis, keepdims=True))
  total = jnp.log(jnp.sum(jnp.exp(x - largest), axis=axis, keepdims=True))
  return x - largest - total, jnp.squeeze(largest + total, axis)


def _marginal(
  name: str, value: ArrayLike | None, shape: tuple[int, ...], dtype: jnp.dtype
) -> Array:
  """The marginal in its computing type, uniform if there is none."""
  if value is None:
    return jnp.full(shape, 1 / shape[-1], dtype)
  marginal = _checks.array(name, value).astype(dtype)
  _checks.shape(name, marginal, shape, "the costs")
  return marginal
