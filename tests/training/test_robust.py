"""Training under attack: what the attack leaves alone, and that it can be repeated."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from spherejax import attacks, losses, training
from tests.training.trees import assert_same, bits

RANDOM = np.random.default_rng(0)
X = RANDOM.random((16, 5)).astype(np.float32)
Y = RANDOM.integers(0, 3, 16)
MOMENTUM = 0.9


class Network(nn.Module):
  """Dense, BatchNorm, dense."""

  @nn.compact
  def __call__(self, x, train=False):
    x = nn.Dense(8)(x)
    x = nn.BatchNorm(use_running_average=not train, momentum=MOMENTUM)(x)
    return nn.Dense(3)(nn.relu(x))


def attacked(variables, x):
  options = {"key": jax.random.key(5), "epsilon": 0.2, "steps": 3, "mode": "train"}
  return attacks.pgd(lambda x: Network().apply(variables, x), x, Y, **options).x_adv


def noisy(key, x):
  return jnp.clip(x + 0.01 * jax.random.normal(key, x.shape), 0, 1)


def of_both(variables, *halves):
  """The mean loss of one pass over both halves, and the new statistics."""
  both = jnp.concatenate(halves)
  logits, new = Network().apply(variables, both, train=True, mutable=["batch_stats"])
  loss = losses.adversarial_training(*jnp.split(logits, 2), Y, clean_weight=0.5)
  return training.global_mean(loss), new["batch_stats"]


def objective(params, batch_stats, batch, *, key, axis_name):
  """DIST eq. 3.7 with the attack of running statistics."""
  frozen = {"params": params["network"], "batch_stats": batch_stats["network"]}
  x = noisy(key, batch)
  mean, new = of_both(frozen, x, attacked(frozen, x))
  return training.Outcome(mean, {"network": new})


initialized = jax.jit(lambda key: Network().init(key, X[:1]))
OPTIMIZER = optax.sgd(0.1, 0.9)
step = jax.jit(training.make_step(objective, OPTIMIZER))


def trained(seed, steps):
  first, second = jax.random.split(jax.random.key(seed))
  state = training.create_state(second, OPTIMIZER, initialized(first))
  for _ in range(steps):
    state, _ = step(state, X)
  return state


def test_the_attack_leaves_statistics_and_parameters_alone():
  key, variables = jax.random.key(1), initialized(jax.random.key(0))
  # Beside those of the start, which are 0 and 1.
  stats = jax.tree.map(lambda v: v + 0.3, variables["batch_stats"])

  def loss(params):
    given = {"network": params}, {"network": stats}
    outcome = objective(*given, X, key=key, axis_name=None)
    return outcome.loss, outcome.batch_stats["network"]["BatchNorm_0"]

  grads, new = jax.jit(jax.grad(loss, has_aux=True))(variables["params"])
  # An update of the statistics, by what both halves are in the first layer.
  frozen, x = {"params": variables["params"], "batch_stats": stats}, noisy(key, X)
  moved = jax.jit(attacked)(frozen, x)
  assert np.abs(moved - x).max() > 0.1
  both = np.concatenate([x, moved]).astype(np.float64)
  dense = jax.tree.map(np.float64, variables["params"]["Dense_0"])
  hidden = both @ dense["kernel"] + dense["bias"]
  for name, of_batch in (("mean", hidden.mean(0)), ("var", hidden.var(0))):
    old = np.asarray(stats["BatchNorm_0"][name], np.float64)
    expected = MOMENTUM * old + (1 - MOMENTUM) * of_batch
    np.testing.assert_allclose(new[name], expected, rtol=2e-5, atol=1e-6)
  # No gradient goes through the attack.
  expected = jax.jit(jax.grad(lambda p: of_both(frozen | {"params": p}, x, moved)[0]))
  close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6)
  jax.tree.map(close, grads, expected(variables["params"]))


def test_without_a_budget_it_is_standard_training():
  def scores(w, x):
    return jnp.tanh(x @ w)

  def standard(w):
    return optax.softmax_cross_entropy_with_integer_labels(scores(w, X), Y).mean()

  def robust(w, epsilon):
    frozen = jax.lax.stop_gradient(w)
    network, key = functools.partial(scores, frozen), jax.random.key(0)
    x_adv = attacks.pgd(network, X, Y, key=key, epsilon=epsilon).x_adv
    both = scores(w, X), scores(w, x_adv)
    return losses.adversarial_training(*both, Y, clean_weight=0.5).mean()

  w = RANDOM.normal(size=(5, 3)).astype(np.float32)
  expected, slope = jax.value_and_grad(standard)(w)
  value, gradient = jax.jit(jax.value_and_grad(robust))(w, 0.0)
  np.testing.assert_allclose(value, expected, rtol=1e-6)
  np.testing.assert_allclose(gradient, slope, atol=1e-7)
  assert jax.jit(robust)(w, 0.3) > expected + 0.02


def test_the_same_seed_gives_the_same_parameters():
  first, again, other = (trained(seed, 3) for seed in (0, 0, 1))
  assert_same((first.params, first.batch_stats), (again.params, again.batch_stats))
  assert bits(first.params) != bits(other.params)
