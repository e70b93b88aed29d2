"""Training under attack: what the attack leaves alone."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from spherejax import attacks, losses, training

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
