"""Sinkhorn's iteration against its scaling form, marginals, masks, derivatives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.test_util import check_grads

from spherejax import solvers
from tests import programs

RANDOM = np.random.default_rng(0)
COSTS = RANDOM.uniform(size=(2, 3, 4))
SHARPNESS = np.array([3.0, 8.0])
ROWS = np.array([[0.2, 0.5, 0.3], [0.4, 0.0, 0.6]])
COLUMNS = np.array([[0.1, 0.4, 0.3, 0.2], [0.5, 0.0, 0.2, 0.3]])
THERE = (ROWS > 0)[:, :, None] & (COLUMNS > 0)[:, None]
sinkhorn = jax.jit(solvers.sinkhorn, static_argnames="steps")


def scaled(costs, sharpness, rows, columns, steps):
  """Diag(u) K Diag(v) by alternating scaling."""
  kernel = np.exp(-sharpness * costs)
  u = np.ones(len(rows))
  for _ in range(steps):
    v = columns / (kernel.T @ u)
    u = rows / (kernel @ v)
  v = columns / (kernel.T @ u)
  return u[:, None] * kernel * v[None], u, v


def test_equals_the_scaling_and_leaves_zeros_out(x64):
  marginals = {"row_marginal": ROWS, "column_marginal": COLUMNS}
  costs = np.where(THERE, COSTS, np.nan)
  result = sinkhorn(costs, inverse_temperature=SHARPNESS, **marginals, steps=5)
  for b, (r, a) in enumerate(zip(ROWS > 0, COLUMNS > 0, strict=True)):
    plan, u, v = scaled(COSTS[b][r][:, a], SHARPNESS[b], ROWS[b][r], COLUMNS[b][a], 5)
    np.testing.assert_allclose(np.exp(result.log_plan[b])[r][:, a], plan, rtol=1e-12)
    np.testing.assert_allclose(result.row_potential[b][r], np.log(u), rtol=1e-11)
    np.testing.assert_allclose(result.column_potential[b][a], np.log(v), rtol=1e-11)
    error = np.abs(plan.sum(axis=1) - ROWS[b][r]).max()
    np.testing.assert_allclose(result.residual[b], error, rtol=1e-9)
    assert error > 1e-6
  np.testing.assert_array_equal(result.log_plan == -np.inf, ~THERE)
  np.testing.assert_array_equal(result.row_potential == -np.inf, ROWS == 0)
  np.testing.assert_allclose(np.exp(result.log_plan).sum(axis=1), COLUMNS, atol=1e-15)


def test_float32_converges_where_the_kernel_underflows():
  """exp(-b c) is 0 in float32 beyond b c = 103."""
  costs = jnp.asarray(3 + COSTS, jnp.float32)
  result = sinkhorn(costs, inverse_temperature=60.0, steps=2000)
  plan = np.exp(np.asarray(result.log_plan, float))
  np.testing.assert_allclose(plan.sum(axis=1), 1 / 4, rtol=1e-6)
  # The spread of b c is 60, one ulp there 4e-6.
  np.testing.assert_allclose(plan.sum(axis=2), 1 / 3, rtol=1e-5)
  error = np.abs(plan.sum(axis=2) - 1 / 3).max(axis=1)
  np.testing.assert_allclose(result.residual, error, atol=1e-7)
  nothing = sinkhorn(costs, column_marginal=jnp.zeros((2, 4)), steps=3)
  assert not np.exp(nothing.log_plan).any()


def test_derivatives(x64):
  weights = RANDOM.normal(size=COSTS.shape)

  def plan(costs, sharpness, rows, columns):
    # Marginals that are 0 stay 0.
    result = solvers.sinkhorn(
      jnp.where(THERE, costs, jnp.nan),
      inverse_temperature=sharpness,
      row_marginal=jnp.where(ROWS > 0, rows, 0),
      column_marginal=jnp.where(COLUMNS > 0, columns, 0),
      steps=3,
    )
    return jnp.sum(jnp.exp(result.log_plan) * weights, axis=(1, 2))

  arguments = (COSTS, SHARPNESS, ROWS, COLUMNS)
  check_grads(jax.jit(plan), arguments, 1, modes=("fwd", "rev"), rtol=1e-6)


def test_the_backward_pass_stores_the_potentials_of_a_step_and_not_its_plan():
  def total(costs, *, steps):
    return jnp.sum(jnp.exp(solvers.sinkhorn(costs, steps=steps).log_plan) ** 2)

  costs = jax.ShapeDtypeStruct((64, 64), jnp.float32)
  few, many = (
    programs.temporary_bytes(jax.grad(functools.partial(total, steps=steps)), costs)
    for steps in (10, 110)
  )
  # 100 more vectors of 64 numbers; all plans would be 64 times as much.
  assert many - few < 2 * 100 * 64 * 4
