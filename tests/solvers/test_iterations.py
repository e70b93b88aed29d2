"""Roots and fixed points: known ones, implicit derivatives, safeguards, reports."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy import optimize

from spherejax import solvers
from spherejax.solvers import _fixed_point
from tests import programs


# Both give a root of a.
def newton(a, **settings):
  return solvers.newton(lambda x: x**2 - a, (0.0, 1.0 + a), **settings)


def fixed_point(a, **settings):
  return solvers.fixed_point(lambda x: (a + x) / (1 + x), 1.0, **settings)


BOTH = pytest.mark.parametrize("solve", [newton, fixed_point])


@BOTH
def test_vmap_equals_the_loop(solve):
  targets = np.array([0.1, 1.0, 5.0, 50.0], np.float32)

  def root_and_slope(a):
    return solve(a), jax.grad(lambda a: solve(a).value)(a)

  batch = jax.tree.map(np.asarray, jax.jit(jax.vmap(root_and_slope))(targets))
  assert len(set(batch[0].steps.tolist())) > 1
  np.testing.assert_allclose(batch[1], targets**-0.5 / 2, rtol=1e-4)
  alone = jax.jit(root_and_slope)
  for i, target in enumerate(targets):
    row = jax.tree.map(lambda leaf, i=i: leaf[i], batch)
    chex.assert_trees_all_close(row, alone(target), rtol=1e-5, atol=1e-6)


@BOTH
def test_numbers_may_be_traced(solve):
  root = jax.jit(lambda a, tol: solve(a, tol=tol).value)
  for a, tol in ((2.0, 1e-6), (3.0, 1e-5)):
    np.testing.assert_allclose(root(a, tol), a**0.5, rtol=1e-5)


@BOTH
def test_backward_memory_does_not_depend_on_the_steps(solve):
  few, many = (
    programs.temporary_bytes(jax.grad(lambda a, s=s: solve(a, max_steps=s).value), 2.0)
    for s in (2, 1000)
  )
  assert few == many


def test_start_bracket_and_report_carry_no_derivative():
  def reports(end):
    root = solvers.newton(lambda x: x**2 - 2.0, (0.0, end))
    point = solvers.fixed_point(jnp.cos, end)
    return jnp.stack([root.value, root.residual, point.value, point.residual])

  np.testing.assert_array_equal(jax.jit(jax.jacrev(reports))(2.0), np.zeros(4))


def solve(fn, low, high, **settings):
  """The root with its report, compiled."""
  find = jax.jit(lambda low, high: solvers.newton(fn, (low, high), **settings))
  return find(low, high)


# Functions of numbers and of the module of numpy or jax.numpy, and brackets.
CASES = {
  "rising": (lambda x, _: x**3 + x - 2.5, 0.0, 3.0),
  "falling": (lambda x, m: m.exp(-x) - x, 0.0, 1.0),
  "inflection": (lambda x, m: m.arctan(x - 7.0), -90.0, 100.0),  # plain Newton diverges
  "flat ends": (lambda x, m: m.tanh(20 * (x - 0.3)) + 1e-3, -8.0, 9.0),
  "end of the bracket": (lambda x, _: x * (x + 1), 0.0, 5.0),
}


@pytest.mark.parametrize("name", CASES)
def test_finds_the_root(name, x64):
  fn, low, high = CASES[name]
  expected = optimize.brentq(fn, low, high, args=(np,), xtol=1e-15)
  root = solve(lambda x: fn(x, jnp), low, high, tol=1e-13)
  assert root.converged
  assert root.residual <= 1e-13
  assert root.steps <= 25
  np.testing.assert_allclose(root.value, expected, rtol=1e-12, atol=1e-12)


def test_newton_steps_are_quadratic(x64):
  root = solve(lambda x: jnp.exp(x) - 3.0, 0.0, 2.0, tol=1e-13)
  assert root.converged
  assert root.steps <= 6  # where bisection would need 45
  np.testing.assert_allclose(root.value, np.log(3.0), rtol=1e-14)


def test_float32_root_needs_no_float64():
  root = solvers.newton(lambda x: x**2 - 2.0, (0, 2), tol=1e-6)
  assert root.value.dtype == jnp.float32
  np.testing.assert_allclose(root.value, np.sqrt(2), rtol=2e-7)


def test_ends_when_the_bracket_cannot_be_split():
  """A residual below every reachable one: stops by itself, reports honestly."""
  root = solve(lambda x: 1e6 * (x**3 - 2.0), 0.0, 2.0, tol=1e-9)
  assert not root.converged
  assert root.steps < 64
  np.testing.assert_allclose(root.value, 2 ** (1 / 3), rtol=2e-7)


def test_what_is_not_solved_is_reported():
  # Without a sign change, the better end.
  root = solve(lambda x: x**2 + 1.0, -1.0, 3.0)
  assert (root.value, root.residual, root.converged) == (-1, 2, False)
  root = solve(lambda x: jnp.arctan(x - 7.0), -90.0, 100.0, max_steps=2)
  assert (root.steps, root.converged) == (2, False)
  assert not solve(lambda x: x * jnp.nan, 0.0, 1.0).converged


@jax.jit
def depressed_cubic(a, b):
  return solvers.newton(lambda x: x**3 + a * x - b, (0.0, 4.0), tol=1e-13).value


def test_derivatives_of_a_root_of_both_modes_and_orders(x64):
  check_grads(
    depressed_cubic, (np.float64(1.5), np.float64(2.0)), order=2, modes=("fwd", "rev")
  )


def test_derivative_is_the_implicit_one(x64):
  a, b = 1.5, 2.0
  x = optimize.brentq(lambda t: t**3 + a * t - b, 0.0, 4.0, xtol=1e-15)
  slope = 3 * x**2 + a

  @jax.jit
  def derivatives(a, b):
    return (
      jax.grad(depressed_cubic, (0, 1))(a, b),
      jax.grad(jax.grad(depressed_cubic, 1), 1)(a, b),
    )

  (d_a, d_b), second = derivatives(a, b)
  np.testing.assert_allclose([d_a, d_b], [-x / slope, 1 / slope], rtol=1e-12)
  np.testing.assert_allclose(second, -6 * x / slope**3, rtol=1e-12)


def contraction(size, norm=0.6):
  """A matrix that is not symmetric, of the given spectral norm, and an offset."""
  random = np.random.default_rng(0)
  matrix = random.normal(size=(size, size))
  return matrix * norm / np.linalg.norm(matrix, 2), random.normal(size=size)


@pytest.fixture(params=["elimination", "series"])
def linear_solver(request, monkeypatch):
  if request.param == "series":
    monkeypatch.setattr(_fixed_point, "_DENSE_UNKNOWNS", 0)


def test_steps_and_residual_of_a_known_rate():
  """x <- x/2 + 1 from 0: |x_k - 2| = 2^(1-k), gap 2^-k <= 2^-10 first at k = 10."""
  point = solvers.fixed_point(lambda x: x / 2 + 1, 0.0, tol=2.0**-10)
  assert point == (2 - 2.0**-9, 2.0**-10, 10, True)
  # What does not converge raises no error.
  diverging = solvers.fixed_point(lambda x: 2 * x + 1, 1.0, max_steps=5)
  assert (diverging.steps, diverging.converged) == (5, False)
  assert not solvers.fixed_point(lambda x: x * jnp.nan, 1.0).converged


def test_an_affine_map_and_its_derivatives(x64, linear_solver):
  """x = (I - A)^-1 b, so dL/db = (I - A)^-T g and dL/dA = (dL/db) x^T."""
  matrix, offset = contraction(6)
  weights = np.arange(1.0, 7.0)

  def loss(matrix, offset):
    point = solvers.fixed_point(
      lambda x: matrix @ x + offset, jnp.zeros(6), tol=1e-14, max_steps=200
    )
    return weights @ point.value, point

  @jax.jit
  def derivatives(matrix, offset, direction):
    _, tangent = jax.jvp(lambda b: loss(matrix, b)[0], (offset,), (direction,))
    return *jax.grad(loss, (0, 1), has_aux=True)(matrix, offset), tangent

  direction = np.cos(np.arange(6.0))
  (d_matrix, d_offset), point, tangent = derivatives(matrix, offset, direction)
  adjoint = np.linalg.solve(np.eye(6) - matrix.T, weights)
  x = np.linalg.solve(np.eye(6) - matrix, offset)
  np.testing.assert_allclose(point.value, x, rtol=1e-12, atol=1e-12)
  assert point.converged
  residual = np.abs(matrix @ point.value + offset - point.value).max()
  np.testing.assert_allclose(point.residual, residual, atol=1e-15)
  np.testing.assert_allclose(d_offset, adjoint, rtol=1e-11)
  np.testing.assert_allclose(d_matrix, np.outer(adjoint, x), rtol=1e-11, atol=1e-12)
  np.testing.assert_allclose(tangent, adjoint @ direction, rtol=1e-11)


def test_derivatives_of_both_modes_and_orders(x64, linear_solver):
  """Of a pytree of two arrays of different shapes, coupled."""

  @jax.jit
  def value(matrix, offset):
    def fn(tree):
      mixed = jnp.tanh(matrix @ tree["x"] + offset + tree["y"])
      return {"x": mixed, "y": 0.3 * jnp.sin(mixed[0])}

    init = {"x": jnp.zeros_like(offset), "y": jnp.zeros((), offset.dtype)}
    return solvers.fixed_point(fn, init, tol=1e-14, max_steps=300).value

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
