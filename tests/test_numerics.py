"""Numerics that several rooms share and no room's tests cover."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.test_util import check_grads

from spherejax import _numerics, losses, metrics, solvers, training


def derivative_of_a_fixed_point(matrix):
  def total(matrix):
    start = jnp.ones(len(matrix))
    return solvers.fixed_point(lambda x: 0.1 * matrix @ x + 1, start).value.sum()

  return jax.grad(total)(matrix)


def triangle(matrix):
  start = metrics.triangle_init(len(matrix))
  return jnp.abs(metrics.triangle_update(start, matrix).triangle)


@pytest.mark.parametrize(
  ("function", "routine"),
  [(derivative_of_a_fixed_point, "sgetrf"), (triangle, "sgeqrf")],
)
def test_many_factorisations_are_done_one_after_another_on_a_cpu(function, routine):
  # Two programs with batched ones can wait for each other's threads for ever.
  matrices = np.random.default_rng(0).normal(size=(3, 4, 4)).astype(np.float32)
  mapped = jax.jit(jax.vmap(function))
  program = mapped.lower(matrices).as_text()
  assert f"lapack_{routine}" in program
  assert 'num_batch_dims = "1"' not in program
  for found, matrix in zip(mapped(matrices), matrices, strict=True):
    np.testing.assert_allclose(found, function(matrix), rtol=1e-5, atol=1e-6)


def test_many_definite_systems_and_their_derivatives(x64):
  rng = np.random.default_rng(0)
  roots = rng.normal(size=(3, 4, 4))
  matrices = roots @ roots.swapaxes(1, 2) + np.eye(4)
  right, weights = rng.normal(size=(4, 2)), rng.normal(size=(4, 2))

  def total(matrix, right):
    solution = _numerics.solve_definite(matrix, right)
    return jnp.sum(solution * weights), solution

  derivative = jax.grad(total, (0, 1), has_aux=True)
  mapped = jax.jit(jax.vmap(derivative, (0, None)))  # the second argument is not mapped
  (by_matrix, by_right), solutions = mapped(matrices, right)
  for index, matrix in enumerate(matrices):
    solution = np.linalg.solve(matrix, right)
    dual = np.linalg.solve(matrix, weights)
    np.testing.assert_allclose(solutions[index], solution, rtol=1e-10)
    np.testing.assert_allclose(by_right[index], dual, rtol=1e-10)
    np.testing.assert_allclose(by_matrix[index], -dual @ solution.T, rtol=1e-10)

  def along(x):  # 1 / (2 + x) in one dimension
    return _numerics.solve_definite(jnp.full((1, 1), 2 + x), jnp.ones((1, 1)))[0, 0]

  np.testing.assert_allclose(jax.jit(jax.hessian(along))(1.0), 2 / 27, rtol=1e-12)


def test_adam_is_that_of_optax(x64):
  gradients = np.random.default_rng(1).normal(size=(5, 3))
  reference, adam = optax.scale_by_adam(), jax.jit(_numerics.adam)
  state = reference.init(jnp.zeros(3))
  moments = _numerics.AdamMoments(jnp.zeros(3), jnp.zeros(3))
  for count, gradient in enumerate(gradients, 1):
    right, state = reference.update(jnp.asarray(gradient), state)
    found, moments = adam(gradient, moments, count)
    np.testing.assert_allclose(found, right, rtol=1e-10)


def test_derivatives_that_are_written_out(x64):
  x = jnp.asarray(np.random.default_rng(0).normal(size=(3, 4, 5)))
  check_grads(jax.jit(_numerics.normalize), (x,), 2)

  @jax.jit
  def reduced(x, temperature):
    return losses.multi_proxy(x, temperature=temperature)

  check_grads(reduced, (x, 0.3), 2, rtol=1e-4)
  zero = jnp.zeros((1, 3))
  np.testing.assert_array_equal(jax.jacrev(_numerics.normalize)(zero), 0)
  assert np.isfinite(jax.hessian(_numerics.normalize)(zero)).all()


@pytest.mark.parametrize("due", [[True, False, True], [True] * 3, [False] * 3])
def test_either_is_a_condition(due):
  x, due = jnp.arange(6.0).reshape(3, 2), jnp.asarray(due)

  def chosen(choose, due, x):
    return choose(
      due,
      lambda y: {"size": jnp.sum(y * x), "large": y > 1},
      lambda y: {"size": jnp.max(y) - x[0], "large": y < 0},
      2 * x,
    )

  for derive in (lambda fn: fn, lambda fn: lambda due, x: jax.jvp(
    lambda x: fn(due, x)["size"], (x,), (x + 1,)
  )):  # fmt: skip
    found, expected = (
      jax.jit(jax.vmap(derive(lambda due, x, choose=choose: chosen(choose, due, x))))
      for choose in (_numerics.either, jax.lax.cond)
    )
    jax.tree.map(np.testing.assert_array_equal, found(due, x), expected(due, x))


def test_when_takes_keys_and_closes_over_them():
  keys = jax.random.split(jax.random.key(0), 4).reshape(2, 2)

  def mixed(due, key, other):
    return training.when(
      due, lambda now: (jax.random.fold_in(other, now[1]), now[1] + 1), (key, 7)
    )

  found, numbers = jax.vmap(mixed)(jnp.array([True, False]), *keys)
  expected = jnp.stack([jax.random.fold_in(keys[1, 0], 7), keys[0, 1]])
  assert (found == expected).all()
  np.testing.assert_array_equal(numbers, [8, 7])


SORT = {
  "either": lambda due, x: _numerics.either(due, lambda: jnp.sort(x), lambda: x),
  "when": lambda due, x: training.when(due, lambda value: value + jnp.sort(x), x),
  "triplet": lambda due, x: losses.triplet(
    x[:, None], jnp.where(due, jnp.arange(128) % 64, 0), normalize="none", squared=True
  ),
}


@pytest.mark.parametrize("name", SORT)
def test_a_vmapped_program_sorts_only_where_it_is_due(name):
  mapped = jax.jit(jax.vmap(SORT[name]))
  due, x = jnp.array([True, False]), jnp.ones((2, 128))
  text = mapped.lower(due, x).compile().as_text()
  entry = text[text.index("\nENTRY ") :]
  # Outside the loops, which take no turn where nothing is due.
  assert "sort" in text
  assert "sort" not in entry


def test_no_other_condition_computes_both_branches_under_vmap():
  # `sweep` has a condition inside a map, which is not vmapped.
  package = pathlib.Path(_numerics.__file__).parent
  files = {x.name for x in package.rglob("*.py") if "lax.cond(" in x.read_text()}
  assert files == {"_sweep.py"}
