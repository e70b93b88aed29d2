"""Smoothed weights: optimality, limits, the paper's iteration, invariances, accuracy.

The reference of `benchmarks.gsp_accuracy` bisects the mass equation in float64, and
shares nothing with the solver. At the end the weights of the linear program.
"""

import itertools

import chex
import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st
from scipy import optimize
from scipy.special import logsumexp, softmax

from benchmarks import gsp_accuracy
from spherejax import pooling
from spherejax.pooling import _gsp_weights

iterate = jax.jit(pooling.gsp_fixed_point, static_argnames="steps")
weigh, solve = jax.jit(pooling.gsp_weights), jax.jit(pooling.gsp_linear_program)


def random_costs(seed, m=5, n=7, low=0.1, high=1.9):
  return np.random.default_rng(seed).uniform(low, high, (m, n))


def reference(costs, mass, beta):
  numbers = np.array([mass]), np.array([beta])
  return gsp_accuracy.reference(costs[None], *numbers)[0]


def softmin_plan(costs, weights, beta):
  """w_j softmax_i(-beta c_ij)."""
  return weights * softmax(-beta * costs, axis=0)


@pytest.mark.filterwarnings("ignore:Values in x were outside bounds")  # scipy < 1.15
@pytest.mark.parametrize(
  ("mass", "beta"), [(0.3, 5.0), (0.6, 2.0), (0.7, 20.0), (0.95, 0.5)]
)
def test_equals_a_convex_solver_and_the_dual(mass, beta, x64):
  m, n = 3, 4
  costs = random_costs(2, m, n)

  def primal(plan):
    residual = 1 / n - plan.sum(0)
    entropy = (plan * np.log(plan)).sum() + (residual * np.log(residual)).sum()
    return (costs * plan).sum() + entropy / beta

  def gradient(flat):
    plan = flat.reshape(m, n)
    residual = 1 / n - plan.sum(0)
    return (costs + (np.log(plan) - np.log(residual)) / beta).ravel()

  marginals = optimize.LinearConstraint(np.tile(np.eye(n), m), 1e-9, 1 / n - 1e-9)
  total = optimize.LinearConstraint(np.ones(m * n), mass, mass)
  solution = optimize.minimize(
    lambda flat: primal(flat.reshape(m, n)),
    np.full(m * n, mass / (m * n)),
    jac=gradient,
    bounds=optimize.Bounds(1e-9, 1),
    constraints=[marginals, total],
    method="SLSQP",
    options={"ftol": 1e-15, "maxiter": 1000},
  )
  weights = np.asarray(weigh(costs, mass=mass, inverse_temperature=beta))
  plan = softmin_plan(costs, mass * weights, beta)
  np.testing.assert_allclose(plan, solution.x.reshape(m, n), atol=1e-5)
  np.testing.assert_allclose(primal(plan), solution.fun, atol=1e-8)
  # Its conditions: marginals, mass, and one multiplier for all i, j.
  residual = 1 / n - plan.sum(0)
  assert (residual > 0).all()
  np.testing.assert_allclose(plan.sum(), mass, rtol=1e-12)
  multiplier = np.log(plan) - np.log(residual) + beta * costs
  np.testing.assert_allclose(multiplier, multiplier[0, 0], atol=1e-11)

  scores = logsumexp(-beta * costs, axis=0)

  def minus_dual(theta):
    softplus = np.logaddexp(0, theta + scores).mean()
    return (softplus + np.log(n) - theta * mass) / beta

  best = optimize.minimize_scalar(minus_dual, tol=1e-12)
  np.testing.assert_allclose(primal(plan), -best.fun, atol=1e-10)


def test_large_inverse_temperature_is_the_linear_program(x64):
  costs = random_costs(3, 6, 10)
  cheapest = np.sort(costs.min(0))
  for mass in (0.15, 0.37, 0.85):
    cut = int(mass * 10)
    gap = np.diff(cheapest)[cut - 1 : cut + 1].min()
    linear = solve(costs, mass=mass)
    for beta_gap, atol in ((10, 2 * np.exp(-5)), (60, 1e-12)):
      weights = weigh(costs, mass=mass, inverse_temperature=beta_gap / gap)
      np.testing.assert_allclose(weights, linear, atol=atol)
      assert beta_gap > 10 or np.abs(weights - linear).max() > 1e-6


def test_tie_at_the_cut(x64):
  """Tied features share by the number of prototypes at their minimum."""
  # Feature 0 is cheapest; 1, 2, 3 tie with 1, 2, 2 prototypes at the minimum.
  costs = np.array(
    [[0.1, 0.5, 0.5, 0.9, 1.5], [0.7, 0.8, 0.5, 0.5, 1.5], [0.9, 0.9, 0.9, 0.5, 1.5]]
  )
  mass, number, copies = 0.5, 5, np.array([1, 2, 2])

  def surplus(t):
    return (copies * t / (1 + copies * t)).sum() / number - (mass - 1 / number)

  t = optimize.brentq(surplus, 1e-6, 1e3, xtol=1e-14)
  tied = copies * t / (1 + copies * t) / number
  weights = weigh(costs, mass=mass, inverse_temperature=1e4)
  np.testing.assert_allclose(mass * weights, [1 / number, *tied, 0], atol=1e-10)
  assert weights[2] == weights[3]


def test_small_mass_is_a_softmax_with_linear_error(x64):
  costs, beta = random_costs(4), 5.0
  limit = softmax(logsumexp(-beta * costs, axis=0))
  large, small = (
    np.abs(weigh(costs, mass=mass, inverse_temperature=beta) - limit).max()
    for mass in (1e-3, 1e-4)
  )
  np.testing.assert_allclose(large / small, 10, rtol=0.05)


def test_small_inverse_temperature_is_even_with_the_stated_slope(x64):
  costs, mass = random_costs(5), 0.3
  centred = costs.mean(0) - costs.mean()

  def error(beta):
    weights = weigh(costs, mass=mass, inverse_temperature=beta)
    return np.abs(7 * weights - (1 - beta * (1 - mass) * centred)).max()

  np.testing.assert_allclose(error(1e-3) / error(1e-4), 100, rtol=0.05)


@pytest.mark.parametrize("beta", [0.0, 0.5, 5.0, 1e4])
def test_all_mass_weighs_all_alike(beta):
  weights = weigh(np.float32(random_costs(6)), mass=1.0, inverse_temperature=beta)
  np.testing.assert_array_equal(weights, np.full(7, np.float32(1 / 7)))


def paper_iteration(costs, mass, beta, steps):
  """Proposition 5.2.1 as printed, with its transposes, from t = 1."""
  total, share, t = np.exp(-beta * costs).sum(0), 1 / costs.shape[1], 1.0
  for _ in range(steps):
    residual = share / (1 + t * total)
    t = mass / (total @ residual)
  return (share - residual) / mass


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_fixed_point_is_the_papers_iteration(steps, x64):
  costs = random_costs(7)
  weights = iterate(costs, mass=0.6, inverse_temperature=8.0, steps=steps)
  expected = paper_iteration(costs, 0.6, 8.0, steps)
  np.testing.assert_allclose(weights, expected, rtol=1e-12)
  assert abs(weights.sum() - 1) > 1e-4


def test_fixed_point_survives_where_the_printed_form_underflows():
  costs = np.float32(random_costs(7, low=1.5, high=2.0))
  weights = iterate(costs, mass=0.6, inverse_temperature=80.0, steps=200)
  expected = reference(costs.astype(float), 0.6, 80.0)
  np.testing.assert_allclose(weights, expected, atol=1e-5)


def test_converged_fixed_point_equals_the_solver(x64):
  costs = random_costs(8)
  for mass, beta in itertools.product((0.1, 0.3, 0.7), (0.5, 5.0, 20.0)):
    setting = {"mass": mass, "inverse_temperature": beta}
    weights = iterate(costs, **setting, steps=1500)
    np.testing.assert_allclose(weights, weigh(costs, **setting), atol=1e-12)


def test_fixed_point_leaves_mass_behind_at_mass_1(x64):
  """Equal k_j: the residual after k updates is 1/(k + 1 + k_j); not average pooling."""
  costs = np.zeros((4, 6))
  weights = iterate(costs, mass=1.0, inverse_temperature=5.0, steps=100)
  # The residual of step 100 belongs to the 99th update of t.
  np.testing.assert_allclose(1 - weights.sum(), 1 / (100 + 4), rtol=1e-10)


@hypothesis.settings(derandomize=True, deadline=None, max_examples=40)
@hypothesis.given(
  seed=st.integers(0, 10_000), mass=st.floats(0.01, 0.99), beta=st.floats(0.01, 100)
)
def test_bounds_order_and_monotonicity(seed, mass, beta):
  costs = np.float32(random_costs(seed))
  weights = np.asarray(weigh(costs, mass=mass, inverse_temperature=beta))
  assert (weights >= 0).all()
  assert (weights <= (1 + 2e-6) / (7 * mass)).all()
  scores = logsumexp(-beta * costs.astype(np.float64), axis=0)
  assert (np.diff(weights[np.argsort(-scores)]) <= 1e-6).all()
  more = min(1.0, mass * 1.3)
  larger = np.asarray(weigh(costs, mass=more, inverse_temperature=beta))
  assert (more * larger >= mass * weights - 1e-6).all()
  rate = 7 * mass * (weights**2).sum()  # of the paper's iteration
  assert mass * (1 - 1e-5) <= rate <= 1 + 1e-5


def test_invariances(x64):
  costs, random = random_costs(9), np.random.default_rng(0)
  weights = weigh(costs, mass=0.4, inverse_temperature=6.0)
  columns, rows = random.permutation(7), random.permutation(5)

  def check(changed, expected, beta=6.0, atol=1e-13):
    result = weigh(changed, mass=0.4, inverse_temperature=beta)
    np.testing.assert_allclose(result, expected, atol=atol)

  check(costs[:, columns], weights[columns])
  check(costs[rows], weights)
  check(costs + 1e3, weights)
  check(costs * 50, weights, beta=6.0 / 50)
  check(np.concatenate([costs, costs]), weights, atol=1e-14)
  even = weigh(np.full((5, 7), 0.7), mass=0.4, inverse_temperature=6.0)
  np.testing.assert_allclose(even, 1 / 7, rtol=1e-15)


def test_a_single_feature_and_a_single_prototype():
  assert weigh(jnp.ones((3, 1)), mass=0.2).tolist() == [1]
  costs = random_costs(11, 1, 6)
  weights, expected = weigh(np.float32(costs), mass=0.4), reference(costs, 0.4, 5.0)
  np.testing.assert_allclose(weights, expected, atol=1e-6)


def test_mask_equals_deletion_and_nothing_kept_is_zero():
  random = np.random.default_rng(1)
  costs = np.float32(random.random((3, 4, 6)))
  where = np.array([[1, 1, 0, 1, 0, 1], [0] * 6, [0, 0, 1, 0, 0, 0]], bool)
  poisoned = np.where(where[:, None], costs, np.nan)
  poisoned[0, :, 2] = np.inf
  weights, pull = jax.vjp(lambda c: pooling.gsp_weights(c, where=where), poisoned)
  (gradient,) = pull(np.float32(random.random((3, 6))))
  assert (weights[~where] == 0).all()
  assert (gradient.swapaxes(1, 2)[~where] == 0).all()
  assert np.isfinite(gradient).all()
  expected = weigh(costs[0][:, where[0]])
  np.testing.assert_allclose(weights[0][where[0]], expected, atol=2e-7)
  assert weights[2, 2] == 1


def test_traced_mass_and_temperature_out_of_range_are_clipped():
  costs = np.float32(random_costs(12))
  np.testing.assert_array_equal(weigh(costs, mass=jnp.float32(7.0)), np.float32(1 / 7))
  cold = weigh(costs, inverse_temperature=jnp.float32(-3.0))
  np.testing.assert_allclose(cold, 1 / 7, rtol=1e-6)
  tiny, scores = weigh(costs, mass=jnp.float32(0)), logsumexp(-5.0 * costs, axis=0)
  np.testing.assert_allclose(tiny, softmax(scores), rtol=1e-5)


def test_vmap_over_mass_and_temperature_equals_the_loop_and_traces_once():
  costs = np.float32(random_costs(13))
  masses, betas = jnp.array([0.1, 0.5, 1.0]), jnp.array([0.0, 5.0, 1e4])

  def fn(mass, beta):
    return pooling.gsp_weights(costs, mass=mass, inverse_temperature=beta)

  by_both = jax.vmap(jax.vmap(fn, (0, None)), (None, 0))
  grid = jax.jit(by_both)(masses, betas)
  stacked = weigh(
    jnp.broadcast_to(costs, (3, 3, 5, 7)),
    mass=jnp.broadcast_to(masses, (3, 3)),
    inverse_temperature=jnp.broadcast_to(betas[:, None], (3, 3)),
  )
  alone = jax.jit(chex.assert_max_traces(fn, n=1))
  expected = np.array([[alone(mass, beta) for mass in masses] for beta in betas])
  np.testing.assert_allclose(grid, expected, atol=2e-7)
  np.testing.assert_allclose(stacked, expected, atol=2e-7)


def test_extreme_masses_and_temperatures():
  """Far outside of use: still exact in float32 for the costs given."""
  costs = np.float32(random_costs(14))
  for mass in (np.float32(1e-30), np.float32(1 - 6e-8)):
    expected = reference(costs.astype(np.float64), float(mass), 5.0)
    np.testing.assert_allclose(weigh(costs, mass=mass), expected, atol=2e-6)
  for mass in (0.3, 1e-30):
    weights = weigh(costs, mass=mass, inverse_temperature=1e12)
    np.testing.assert_allclose(weights, solve(costs, mass=mass), atol=2e-6)


@pytest.mark.parametrize("dtype", gsp_accuracy.LIMITS)
@pytest.mark.parametrize("size", [(128, 64), (16, 196)])
def test_accuracy(size, dtype, x64):
  """The mass left behind says that of the solver, which reports its error."""
  result = gsp_accuracy.solved(dtype, *size)
  assert result.plan.weights.dtype == dtype
  # Of the reference: 1 only at the root.
  np.testing.assert_allclose(result.expected.sum(1), 1, rtol=1e-13)
  limits = gsp_accuracy.LIMITS[dtype]
  *errors, steps = np.moveaxis(gsp_accuracy.errors(result), 2, 0)
  for error, limit in zip(errors, limits, strict=True):
    assert error.shape == (len(gsp_accuracy.MASSES), len(gsp_accuracy.SHARPNESS))
    assert error.max() <= limit, np.argwhere(error > limit)
  assert steps.max() <= 64
  left = np.float64(result.plan.residual).sum(1)
  assert np.abs(1 - left - result.mass).max() <= limits[0]
  assert result.plan.converged.all()


@pytest.mark.parametrize("solver", ["newton", "fixed_point"])
def test_a_second_call_outside_jit_traces_nothing(solver, monkeypatch):
  features, prototypes = np.ones((3, 7, 2), np.float32), np.eye(2, dtype=np.float32)
  pooling.gsp(features, prototypes, solver=solver, steps=3)
  with monkeypatch.context() as patched:  # it is not called again
    patched.setattr(_gsp_weights, "transport", None)
    pooling.gsp(features, prototypes, solver=solver, steps=3)


def test_the_implicit_derivative_solves_for_each_feature_and_the_multiplier():
  """Appendix B.3: n + 1 equations, n residuals and theta, whatever m is."""
  costs, mass, beta = random_costs(15), 0.6, 4.0
  m, n = costs.shape
  taken = n * mass * reference(costs, mass, beta)
  ratio = taken / (1 - taken)  # of what is taken of a feature to its residual
  residual = 1 / n / (1 + ratio)
  matrix = np.zeros((n + 1, n + 1))
  matrix[:n, :n] = np.diag(1 + ratio)  # residual (1 + ratio) = 1 / n
  matrix[:n, n] = residual * ratio
  matrix[n, :n] = 1  # the residuals add to 1 - mass
  share = softmin_plan(costs, 1.0, beta)
  for i, j in np.ndindex(m, n):
    right = np.zeros(n + 1)
    right[j] = residual[j] * ratio[j] * beta * share[i, j]
    slope = -np.linalg.solve(matrix, right)[:n] / mass
    step = np.zeros((m, n))
    step[i, j] = 1e-5
    ends = [reference(costs + sign * step, mass, beta) for sign in (1, -1)]
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-5, atol=1e-8)


def highs(costs, mass):
  """Transported mass of each feature and the optimal value, all variables at once."""
  m, n = costs.shape
  marginals = np.hstack([np.tile(np.eye(n), m), np.eye(n)])  # plan by rows, then r
  total = np.concatenate([np.ones(m * n), np.zeros(n)])
  result = optimize.linprog(
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
