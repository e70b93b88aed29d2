"""Assignments: scipy, certificates, warm starts, invariances, edges."""

import functools
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from spherejax import solvers

SOLVE = jax.jit(solvers.linear_assignment, static_argnames="host")

HOST = pytest.mark.parametrize("host", [False, True])
SHAPES = ((5, 5), (4, 7))  # each with a batch of 8: few programs


def random_costs(shape, kind, seed=0):
  """Normal costs, costs of few values (with many ties), or all the same."""
  rng = np.random.default_rng([seed, *shape])
  if kind == "random":
    return rng.normal(size=(8, *shape)).astype(np.float32)
  return rng.integers(3 if kind == "tied" else 1, size=(8, *shape)).astype(np.float32)


def least_cost(costs):
  return costs[linear_sum_assignment(costs)].sum()


def certify(costs, result, atol):
  """Distinct columns, their cost, duals below all costs, and a sum of theirs."""
  rows, columns = costs.shape
  assignment, cost, u, v, augmentations = (np.asarray(part) for part in result)
  assert assignment.dtype == np.int32
  assert len(set(assignment.tolist())) == rows
  chosen = costs[np.arange(rows), assignment].astype(np.float64)
  np.testing.assert_allclose(cost, chosen.sum(), atol=atol)
  slack = costs - u[:, None] - v[None]
  assert slack.min() >= -atol
  np.testing.assert_allclose(slack[np.arange(rows), assignment], 0, atol=atol)
  free = np.setdiff1d(np.arange(columns), assignment)
  np.testing.assert_array_equal(v[free], 0)
  np.testing.assert_allclose(u.sum() + v.sum(), chosen.sum(), atol=atol)
  assert 0 <= augmentations <= rows


def problems(costs, results):
  """Yields each problem of a batch and its result."""
  for index, problem in enumerate(costs):
    yield problem, solvers.Assignment(*(np.asarray(part)[index] for part in results))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["random", "tied", "equal"])
@HOST
def test_least_cost_with_certificate_on_both_paths(shape, kind, host):
  costs = random_costs(shape, kind)
  for problem, solved in problems(costs, SOLVE(costs, host=host)):
    expected = least_cost(problem)
    on_host = solvers.host_linear_assignment(problem, duals=True)
    for result in (solved, on_host):
      np.testing.assert_allclose(result.cost, expected, atol=1e-5)
      certify(problem, result, 1e-5)
      assert result.augmentations == shape[0]
      if kind == "equal":
        np.testing.assert_array_equal(result.assignment, np.arange(shape[0]))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["random", "tied"])
@HOST
def test_a_warm_start_is_exact_after_a_drift_and_free_without(shape, kind, host):
  costs = random_costs(shape, kind)
  first = SOLVE(costs, host=host)
  start = first.assignment, first.column_dual
  same = SOLVE(costs, start=start, host=host)
  np.testing.assert_array_equal(same.augmentations, 0)
  np.testing.assert_array_equal(same.assignment, first.assignment)
  for size in (0.05, 1.0):
    drifted = costs + size * random_costs(shape, "random", seed=1)
    solved = problems(drifted, SOLVE(drifted, start=start, host=host))
    before = map(np.asarray, start)
    for (problem, after), *given in zip(solved, *before, strict=True):
      certify(problem, after, 1e-5)
      on_host = solvers.host_linear_assignment(problem, start=tuple(given))
      certify(problem, on_host, 1e-5)
      np.testing.assert_allclose(on_host.cost, least_cost(problem), atol=1e-5)


@HOST
def test_any_start_at_all_is_repaired(host):
  """Doubled, absent and foreign columns; duals that are wrong or not numbers."""
  costs = random_costs((4, 7), "random")
  assignment = np.array([[0, 0, -1, 9]] * 8, np.int32)
  duals = np.random.default_rng(3).normal(size=(8, 7)).astype(np.float32)
  duals[4:, 2] = np.nan
  solved = problems(costs, SOLVE(costs, start=(assignment, duals), host=host))
  for (problem, result), *start in zip(solved, assignment, duals, strict=True):
    certify(problem, result, 1e-5)
    certify(problem, solvers.host_linear_assignment(problem, start=tuple(start)), 1e-5)


@pytest.mark.parametrize("shape", [(60, 60), (40, 70)])
def test_larger_ones_agree_with_scipy_after_few_augmentations(shape):
  costs = np.random.default_rng(0).uniform(size=shape)
  result = solvers.host_linear_assignment(costs, duals=True)
  certify(costs, result, 1e-12)
  np.testing.assert_array_equal(result.assignment, linear_sum_assignment(costs)[1])
  # Rows must leave their columns, which are at 0: no others become dearer.
  leaving = np.flatnonzero(result.column_dual[result.assignment] == 0)[:3]
  worse = costs.copy()
  worse[leaving, result.assignment[leaving]] += 1
  start = result.assignment, result.column_dual
  after = solvers.host_linear_assignment(worse, start=start)
  certify(worse, after, 1e-12)
  np.testing.assert_allclose(after.cost, least_cost(worse))
  assert 0 < after.augmentations <= shape[0] / 8
  both = np.stack([costs, worse]).astype(np.float32)
  for problem, result in problems(both, SOLVE(both)):
    certify(problem, result, 1e-4)


def test_shifted_and_permuted_costs():
  costs = random_costs((5, 5), "random")
  rng = np.random.default_rng(5)
  shift = rng.normal(size=(8, 5, 1)), rng.normal(size=(8, 1, 5))
  shifted = (costs + shift[0] + shift[1]).astype(np.float32)
  rows, columns = rng.permutation(5), rng.permutation(5)
  plain, other = SOLVE(costs), SOLVE(shifted)
  permuted = SOLVE(costs[:, rows][:, :, columns])
  np.testing.assert_array_equal(other.assignment, plain.assignment)
  total = sum(part.sum((1, 2)) for part in shift)
  np.testing.assert_allclose(other.cost, plain.cost + total, atol=1e-5)
  back = columns[np.asarray(permuted.assignment)]
  np.testing.assert_array_equal(back, np.asarray(plain.assignment)[:, rows])


@HOST
def test_vmap_is_the_batch_and_the_cost_has_the_entries_as_its_derivative(host):
  costs = random_costs((5, 5), "random")
  solve = functools.partial(solvers.linear_assignment, host=host)
  batch = SOLVE(costs, host=host)
  mapped = jax.jit(jax.vmap(jax.vmap(solve)))(costs.reshape(2, 4, 5, 5))
  for ours, theirs in zip(mapped, batch, strict=True):
    np.testing.assert_array_equal(ours.reshape(theirs.shape), theirs)

  def total(costs):
    return jnp.sum(solve(costs).cost)

  assert SOLVE(costs[:0], host=host).assignment.shape == (0, 5)
  gradient = jax.jit(jax.grad(total))(costs)
  chosen = np.asarray(batch.assignment)[:, :, None] == np.arange(5)
  np.testing.assert_array_equal(gradient, chosen)


@HOST
def test_entries_that_are_not_finite(host):
  costs = random_costs((5, 5), "random")
  broken = costs.copy()
  broken[0, 1, 2], broken[1, 0, 0], broken[2] = np.nan, np.inf, 1e38
  good = SOLVE(costs, host=host)
  results = SOLVE(broken, host=host)
  start = good.assignment, good.column_dual
  for result in (results, SOLVE(broken, start=start, host=host)):
    assert np.isnan(np.asarray(result.cost)[:3]).all()
    np.testing.assert_array_equal(result.assignment[:3], [np.arange(5)] * 3)
    np.testing.assert_array_equal(result.column_dual[:3], 0)
    np.testing.assert_array_equal(result.assignment[3:], good.assignment[3:])


def test_the_host_names_an_entry_that_is_not_finite():
  broken = random_costs((5, 5), "random")
  broken[0, 1, 2], broken[1, 0, 0] = np.nan, np.inf
  broken[2, 0, 0], given = -np.inf, (np.arange(5), np.zeros(5))
  for costs, start, message in (
    (broken[0], None, r"finite, got nan at \[1, 2\]"),
    (broken[1], given, r"finite, got inf at \[0, 0\]"),
    (broken[2], None, r"finite, got -inf at \[0, 0\]"),
    (broken[2], given, r"finite, got -inf at \[0, 0\]"),
  ):
    with pytest.raises(ValueError, match=message):
      solvers.host_linear_assignment(costs, start=start)
  huge = np.full((2, 2), 5e307)  # finite, though their sum is not
  np.testing.assert_array_equal(solvers.host_linear_assignment(huge).assignment, [0, 1])


def test_one_row_and_half_precision():
  result = solvers.host_linear_assignment(np.ones((1, 1)), duals=True)
  assert result.assignment == [0]
  assert result.row_dual == [1.0]
  assert solvers.host_linear_assignment(np.ones((1, 1))).row_dual is None
  ones = np.ones((1, 1, 1), np.float32)
  for problem, result in problems(ones, SOLVE(ones)):
    certify(problem, result, 0)
  costs = jnp.asarray(random_costs((5, 5), "tied"), jnp.bfloat16)
  for host in (False, True):
    half = SOLVE(costs, host=host)
    assert half.cost.dtype == half.column_dual.dtype == jnp.bfloat16
    np.testing.assert_array_equal(half.cost, SOLVE(costs.astype(jnp.float32)).cost)


LARGE_ON_THE_HOST = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import jax, numpy as np
from scipy.optimize import linear_sum_assignment
from spherejax import solvers
costs = np.random.default_rng(0).random((2, 700, 701), np.float32)
solve = jax.jit(lambda costs: solvers.linear_assignment(costs, host=True))
def repair(costs, a, v):
  return solvers.linear_assignment(costs, start=(a, v), host=True)
start = jax.jit(repair)
found = solve(costs)
again = start(costs, found.assignment, found.column_dual)
for matrix, cost, repaired in zip(costs, found.cost, again.cost):
  least = matrix[linear_sum_assignment(matrix)].sum()
  np.testing.assert_allclose([cost, repaired], least, rtol=1e-5)
assert not np.any(again.augmentations)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="cores are chosen on Linux only")
def test_the_host_does_not_wait_for_the_only_thread():
  """A callback holds it, and operands of many bytes would come by another."""
  command = [sys.executable, "-c", LARGE_ON_THE_HOST]
  environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
  subprocess.run(command, env=environment, check=True, timeout=240)
