"""The train state and the optimiser's groups."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from spherejax import training

KEY = jax.random.key(5)
PARAMS = {
  "network": {"head": {"w": jnp.ones(2)}, "headless": jnp.ones(2)},
  "loss": {"proxies": jnp.ones(3), "other": jnp.ones(1)},
}


def updates_of(optimizer, grads):
  """Of parameters of the same shapes."""
  return optimizer.update(grads, optimizer.init(grads), grads)[0]


def test_each_group_has_its_rate():
  rates = {"network": 1.0, "loss": 10.0, "loss/proxies": 100.0}
  groups = {name: optax.sgd(rate) for name, rate in rates.items()}
  optimizer = training.optimizer(groups | {"network/head": optax.set_to_zero()})
  updates = updates_of(optimizer, jax.tree.map(jnp.ones_like, PARAMS))
  assert updates["network"]["head"]["w"].tolist() == [0, 0]
  assert updates["network"]["headless"].tolist() == [-1, -1]  # no folder "head"
  assert updates["loss"]["other"].tolist() == [-10]
  assert updates["loss"]["proxies"].tolist() == [-100, -100, -100]


def test_gradients_are_clipped_together_and_before_the_rates():
  groups = {"network": optax.sgd(1.0), "loss": optax.sgd(100.0)}
  grads = jax.tree.map(jnp.zeros_like, PARAMS)
  grads["network"]["headless"] = jnp.array([6.0, 0.0])
  grads["loss"]["other"] = jnp.array([8.0])
  # Of norm 10, scaled by 0.4 to 2.4 and 3.2.
  for options, network, loss in (({"max_value": 1.5}, -1.5, -150), ({}, -2.4, -320)):
    updates = updates_of(training.optimizer(groups, max_norm=4, **options), grads)
    np.testing.assert_allclose(updates["network"]["headless"], [network, 0], rtol=1e-6)
    np.testing.assert_allclose(updates["loss"]["other"], [loss], rtol=1e-6)


def test_groups_that_do_not_fit():
  groups = {name: optax.sgd(1.0) for name in ("network", "loss", "los")}
  for names, message in (
    (["network"], r"'loss/other' belongs to no group.*'network'"),
    (groups, r"groups \['los'\] .* match no parameter"),
  ):
    optimizer = training.optimizer({name: groups[name] for name in names})
    with pytest.raises(ValueError, match=message):
      optimizer.init(PARAMS)
  for chosen, options, message in (
    ({}, {}, "at least one"),
    (groups, {"max_norm": 0.0}, "max_norm must be in"),
    (groups, {"max_value": -1.0}, "max_value must be in"),
  ):
    with pytest.raises(ValueError, match=message):
      training.optimizer(chosen, **options)


def test_state_is_laid_out_by_part():
  optimizer = training.optimizer({"network": optax.adam(1.0), "loss": optax.sgd(1.0)})
  network = {"params": PARAMS["network"], "batch_stats": {"mean": jnp.zeros(2)}}
  state = training.create_state(KEY, optimizer, network, {"params": PARAMS["loss"]})
  assert state.params == PARAMS
  assert state.variables() == network
  assert state.variables("loss") == {"params": PARAMS["loss"]}
  assert int(state.step) == 0
  assert float(state.learning_rate_scale) == 1
  assert state.key == KEY
  # Adam's moments for the network alone: two arrays for each of its two, a count.
  assert len(jax.tree.leaves(state.opt_state)) == 5


def test_state_of_a_loss_without_parameters_and_what_is_none():
  optimizer = training.optimizer({"network": optax.sgd(1.0)})
  network = {"params": PARAMS["network"]}
  state = training.create_state(KEY, optimizer, network)
  assert set(state.params) == {"network"}
  assert state.batch_stats == {}
  with pytest.raises(TypeError, match=r"must be typed .* got dtype uint32"):
    training.create_state(jnp.zeros(2, jnp.uint32), optimizer, network)
  with pytest.raises(ValueError, match=r"network may have .* got \['cache'\]"):
    training.create_state(KEY, optimizer, network | {"cache": {}})
  with pytest.raises(ValueError, match=r"'loss/other' belongs to no group"):
    training.create_state(KEY, optimizer, network, {"params": PARAMS["loss"]})


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("size", [1e-3, 3.0, 1e3, 2e19, 3e38])
def test_large_finite_gradients_are_scaled_to_the_norm(size, dtype):
  if size > float(jnp.finfo(dtype).max):
    return
  gradients = {"network": jnp.array([size, 0, -size], dtype)}
  optimizer = training.optimizer({"network": optax.sgd(1.0)}, max_norm=1.0)
  update = updates_of(optimizer, gradients)["network"]
  assert update.dtype == dtype
  length = min(size, 0.5**0.5)
  np.testing.assert_allclose(np.float32(update), [-length, 0, length], rtol=1e-2)


def test_clipping_of_usual_gradients_is_that_of_optax():
  gradients = {"network": jnp.array([0.3, -7.0, 1e4]), "loss": jnp.array([[1e-5, 2.0]])}
  groups = {"network": optax.identity(), "loss": optax.identity()}
  updates = updates_of(training.optimizer(groups, max_norm=0.7), gradients)
  expected = updates_of(optax.clip_by_global_norm(0.7), gradients)
  jax.tree.map(np.testing.assert_array_equal, updates, expected)
