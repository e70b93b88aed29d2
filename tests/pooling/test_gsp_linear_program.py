"""The linear program: HiGHS, the greedy rule, ties, masks, the toy map."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

from spherejax import pooling

solve = jax.jit(pooling.gsp_linear_program)


def highs(costs, mass):
  """Transported mass of each feature and the optimal value, all variables at once."""
  m, n = costs.shape
  marginals = np.hstack([np.tile(np.eye(n), m), np.eye(n)])  # plan by rows, then r
  total = np.concatenate([np.ones(m * n), np.zeros(n)])
  result = linprog(
    np.concatenate([costs.ravel(), np.zeros(n)]),
    A_eq=np.vstack([marginals, total]),
    b_eq=np.concatenate([np.full(n, 1 / n), [mass]]),
    method="highs",
  )
  assert result.success
  return result.x[: m * n].reshape(m, n).sum(0), result.fun


@pytest.mark.parametrize("mass", [0.05, 0.3, 0.62, 1.0])
@pytest.mark.parametrize("shape", [(1, 1), (4, 9), (7, 13)])
def test_equals_highs(shape, mass, x64):
  costs = np.random.default_rng(shape[0]).random(shape)
  weights = solve(costs, mass=mass)
  transported, value = highs(costs, mass)
  np.testing.assert_allclose(mass * weights, transported, atol=1e-12)
  np.testing.assert_allclose(mass * weights @ costs.min(0), value, rtol=1e-12)


def test_tied_value_equals_highs_and_the_lowest_index_wins(x64):
  costs = np.array([[0.5, 0.2, 0.9, 0.5, 0.5, 0.5], [0.7, 0.9, 0.5, 0.5, 0.6, 0.5]])
  weights = solve(costs, mass=0.45)
  # 2.7 features: the nearest, then the tied ones by index.
  np.testing.assert_allclose(weights * 2.7, [1, 1, 0.7, 0, 0, 0], atol=1e-12)
  np.testing.assert_allclose(0.45 * weights @ costs.min(0), highs(costs, 0.45)[1])


def test_whole_features_are_whole_in_float32():
  costs = jnp.arange(100.0)[::-1].reshape(1, 100)
  for mass in (0.2, 0.5, 0.7):
    weights = solve(costs, mass=mass)
    assert (weights > 0.001).sum() == round(100 * mass)
    np.testing.assert_allclose(weights.sum(), 1, rtol=1e-6)


def test_batch_of_masses_and_mask_equal_single_calls():
  random = np.random.default_rng(2)
  costs = random.random((3, 2, 4, 6)).astype(np.float32)
  mass = random.uniform(0.1, 1, (3, 2)).astype(np.float32)
  where = random.random((3, 2, 6)) < 0.7
  where[0, 0] = False
  poisoned = np.where(where[:, :, None], costs, np.nan)
  weights = solve(poisoned, mass=mass, where=where)
  assert weights.shape == (3, 2, 6)
  assert (weights[~where] == 0).all()
  for place in np.ndindex(3, 2):
    mask = where[place]
    if mask.any():
      share, _ = highs(costs[place][:, mask].astype(np.float64), float(mass[place]))
      np.testing.assert_allclose(mass[place] * weights[place][mask], share, atol=1e-6)


def test_derivatives():
  costs = jnp.array([[0.4, 0.1, 0.9, 0.2]])
  slopes = jax.jacfwd(lambda costs, mass: solve(costs, mass=mass), (0, 1))
  by_cost, by_mass = jax.jit(slopes)(costs, 0.6)
  assert (by_cost == 0).all()
  # 2.4 features are taken: weights (0.4, 1, 0, 1) / 2.4, with 4 mass = 2.4.
  expected = [4 / 2.4 - 0.4 * 4 / 2.4**2, -4 / 2.4**2, 0, -4 / 2.4**2]
  np.testing.assert_allclose(by_mass, expected, rtol=1e-5, atol=1e-7)
