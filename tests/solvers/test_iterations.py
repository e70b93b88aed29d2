"""What both iterations promise: vmap, traced numbers, memory. Both find a root of a."""

import chex
import jax
import numpy as np
import pytest

from spherejax import solvers
from tests import programs


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
