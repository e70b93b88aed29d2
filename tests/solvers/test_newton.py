"""Scalar roots: known roots, implicit derivatives, safeguards, what is reported."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy import optimize

from spherejax import solvers


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


def test_derivatives_of_both_modes_and_orders(x64):
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


def test_bracket_and_report_carry_no_derivative():
  def fn(high):
    root = solvers.newton(lambda x: x**2 - 2.0, (0.0, high))
    return root.value + root.residual

  assert jax.jit(jax.grad(fn))(2.0) == 0
