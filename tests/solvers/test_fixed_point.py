"""Fixed points: affine maps with known answers, implicit derivatives, reports."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from spherejax import solvers
from spherejax.solvers import _fixed_point


def contraction(size, seed=0, norm=0.6):
  """A matrix that is not symmetric, of the given spectral norm, and an offset."""
  random = np.random.default_rng(seed)
  matrix = random.normal(size=(size, size))
  return matrix * norm / np.linalg.norm(matrix, 2), random.normal(size=size)


def affine(matrix, offset, **keywords):
  start = jnp.zeros_like(offset)
  return solvers.fixed_point(lambda x: matrix @ x + offset, start, **keywords)


@pytest.fixture(params=["elimination", "series"])
def linear_solver(request, monkeypatch):
  if request.param == "series":
    monkeypatch.setattr(_fixed_point, "_DENSE_UNKNOWNS", 0)


def test_affine_map(x64):
  matrix, offset = contraction(7)
  solve = jax.jit(lambda a, b: affine(a, b, tol=1e-14, max_steps=200))
  point = jax.tree.map(np.asarray, solve(matrix, offset))
  expected = np.linalg.solve(np.eye(7) - matrix, offset)
  np.testing.assert_allclose(point.value, expected, rtol=1e-12, atol=1e-12)
  assert point.converged
  residual = np.abs(matrix @ point.value + offset - point.value).max()
  np.testing.assert_allclose(point.residual, residual, atol=1e-15)


def test_steps_and_residual_of_a_known_rate():
  """x <- x/2 + 1 from 0: |x_k - 2| = 2^(1-k), gap 2^-k <= 2^-10 first at k = 10."""
  point = solvers.fixed_point(lambda x: x / 2 + 1, 0.0, tol=2.0**-10)
  assert point.steps == 10
  assert point.residual == 2.0**-10
  assert point.value == 2 - 2.0**-9
  assert point.converged
  # What does not converge raises no error.
  diverging = solvers.fixed_point(lambda x: 2 * x + 1, 1.0, max_steps=5)
  assert not diverging.converged
  assert diverging.steps == 5
  assert not solvers.fixed_point(lambda x: x * jnp.nan, 1.0).converged


def test_derivative_of_an_affine_map(x64, linear_solver):
  """x = (I - A)^-1 b, so dL/db = (I - A)^-T g and dL/dA = (dL/db) x^T."""
  matrix, offset = contraction(6)
  weights = np.arange(1.0, 7.0)

  def loss(matrix, offset):
    return weights @ affine(matrix, offset, tol=1e-14, max_steps=200).value

  @jax.jit
  def derivatives(matrix, offset, direction):
    _, tangent = jax.jvp(lambda b: loss(matrix, b), (offset,), (direction,))
    return *jax.grad(loss, (0, 1))(matrix, offset), tangent

  direction = np.cos(np.arange(6.0))
  d_matrix, d_offset, tangent = derivatives(matrix, offset, direction)
  adjoint = np.linalg.solve(np.eye(6) - matrix.T, weights)
  x = np.linalg.solve(np.eye(6) - matrix, offset)
  np.testing.assert_allclose(d_offset, adjoint, rtol=1e-11)
  np.testing.assert_allclose(d_matrix, np.outer(adjoint, x), rtol=1e-11, atol=1e-12)
  np.testing.assert_allclose(tangent, adjoint @ direction, rtol=1e-11)


def nonlinear(matrix, offset):
  """A pytree of two arrays of different shapes, coupled."""

  def fn(tree):
    mixed = jnp.tanh(matrix @ tree["x"] + offset + tree["y"])
    return {"x": mixed, "y": 0.3 * jnp.sin(mixed[0])}

  init = {"x": jnp.zeros_like(offset), "y": jnp.zeros((), offset.dtype)}
  return solvers.fixed_point(fn, init, tol=1e-14, max_steps=300)


def test_derivatives_of_both_modes_and_orders(x64, linear_solver):
  value = jax.jit(lambda matrix, offset: nonlinear(matrix, offset).value)
  check_grads(value, contraction(3, norm=0.5), order=2, modes=("fwd", "rev"))


def test_equals_differentiation_through_the_steps(x64):
  matrix, offset = contraction(4)

  def step(x, offset):
    return jnp.tanh(matrix @ x + offset)

  def unrolled(offset):
    x = jax.lax.fori_loop(0, 120, lambda _, x: step(x, offset), jnp.zeros(4))
    return jnp.sum(x**2)

  def implicit(offset):
    point = solvers.fixed_point(lambda x: step(x, offset), jnp.zeros(4), tol=1e-15)
    return jnp.sum(point.value**2)

  gradients = jax.jit(lambda b: (jax.grad(implicit)(b), jax.grad(unrolled)(b)))
  np.testing.assert_allclose(*gradients(offset), rtol=1e-12)


def test_many_unknowns_use_the_series():
  """More unknowns than elimination takes: a shifted average with a known answer."""
  size = _fixed_point._DENSE_UNKNOWNS + 1
  offset = np.linspace(-1, 1, size, dtype=np.float32)

  def loss(offset):
    start = jnp.zeros(size)
    return solvers.fixed_point(
      lambda x: 0.5 * jnp.roll(x, 1) + offset, start, tol=1e-6
    ).value[0]

  # x_0 = sum_k 2^-k b_(-k): the weight of b_(size - k) is 2^-k.
  expected = 0.5 ** (-np.arange(size) % size)
  np.testing.assert_allclose(jax.jit(jax.grad(loss))(offset), expected, atol=1e-6)


def test_start_and_report_carry_no_derivative():
  def fn(start):
    point = solvers.fixed_point(jnp.cos, start)
    return point.value + point.residual

  assert jax.jit(jax.grad(fn))(1.0) == 0
