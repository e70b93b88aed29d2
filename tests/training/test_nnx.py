"""Checkpoints, loops and sweeps of networks of flax.nnx."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from spherejax import losses, training
from tests.training.trees import assert_same

TWO = jax.local_devices()[:2]
CLASSES = np.arange(8, dtype=np.int32) % 4


class Network(nnx.Module):
  """Layers by number, statistics, random keys and proxies."""

  def __init__(self, rngs, axis_name=None):
    self.layers = nnx.List(
      [
        nnx.Linear(3, 8, rngs=rngs),
        nnx.BatchNorm(8, axis_name=axis_name, rngs=rngs),
        nnx.Dropout(0.1, rngs=rngs),
        nnx.Linear(8, 4, rngs=rngs),
      ]
    )
    self.proxies = nnx.Param(rngs.params.normal((4, 4)))

  def __call__(self, x):
    for layer in self.layers:
      x = layer(x)
    return x

  def loss(self, batch):
    return losses.proxy_anchor(self(batch["x"]), batch["y"], self.proxies[...])


def batch_of(number):
  generator = np.random.default_rng(number)
  x = generator.normal(size=(8, 3)).astype(np.float32)
  x[:, 0] += CLASSES
  return {"x": x, "y": CLASSES}


def batches(first):
  return map(batch_of, range(first, 100))


# --- Checkpoints ---


def other_values(state):
  def other(leaf):
    key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key(9) if key else jnp.ones_like(leaf)

  return jax.tree.map(other, state)


def test_a_state_comes_back_bit_for_bit(tmp_path):
  network = Network(nnx.Rngs(0))
  adam = nnx.Optimizer(network, optax.adam(0.1), wrt=nnx.Param)
  named = nnx.State({"a/b": nnx.Param(jnp.ones(2)), "c.d": nnx.Cache(jnp.bfloat16(2))})
  for name, tree in {
    "states": {"all": nnx.state((network, adam))},
    "modules": {"network": network, "optimizer": adam},
    "names": {"state": named},
  }.items():
    state = {"step": adam.step, **tree}
    with training.Checkpoints(tmp_path / name) as checkpoints:
      checkpoints.save(state)
      for like in (other_values(state), jax.eval_shape(lambda: state)):  # noqa: B023
        assert_same(checkpoints.restore(like).state, state)


def test_a_checkpoint_names_variables_as_the_network_does(tmp_path):
  checkpoints = training.Checkpoints(tmp_path)
  network = Network(nnx.Rngs(0))
  state = {"step": jnp.int32(0), "network": nnx.state(network)}
  checkpoints.save(state)
  network.proxies = nnx.Param(jnp.zeros((5, 4)))
  with pytest.raises(ValueError, match=r"network\.proxies is float32\[4, 4\] there"):
    checkpoints.restore(state | {"network": nnx.state(network)})
  # A state of plain arrays has the same names.
  plain = nnx.to_pure_dict(nnx.state(Network(nnx.Rngs(1))))
  network = Network(nnx.Rngs(2))
  nnx.update(network, checkpoints.restore(state | {"network": plain}).state["network"])
  assert_same(nnx.state(network), nnx.state(Network(nnx.Rngs(0))))


# --- The loop ---


def run_of_make_step():
  """The state and step of a network whose parameters an optax optimiser trains."""
  network = Network(nnx.Rngs(0), axis_name=training.AXIS_NAME)
  structure, params, rest = nnx.split(network, nnx.Param, ...)

  def objective(params, batch_stats, batch, *, key, axis_name):
    network = nnx.merge(structure, params["network"], batch_stats["network"])
    mean = training.global_mean(network.loss(batch), axis_name=axis_name)
    rest = nnx.state(network, nnx.Not(nnx.Param))
    return training.Outcome(mean, {"network": rest})

  groups = {"network": optax.adam(1e-2), "network/proxies": optax.adam(1e-1)}
  optimizer = training.optimizer(groups)
  variables = {"params": params, "batch_stats": rest}
  state = training.create_state(jax.random.key(1), optimizer, variables)
  return state, training.make_step(objective, optimizer)


def run_of_own_step():
  """The same with an `nnx.Optimizer` inside a step that the user wrote."""
  network = Network(nnx.Rngs(0), axis_name=training.AXIS_NAME)
  adam = nnx.Optimizer(network, optax.adam(1e-2), wrt=nnx.Param)
  structure, params, rest = nnx.split((network, adam), nnx.Param, ...)

  def step(state, batch, *, axis_name):
    network, adam = nnx.merge(structure, state.params, state.batch_stats)

    def mean(network):
      return training.global_mean(network.loss(batch), axis_name=axis_name)

    loss, grads = nnx.value_and_grad(mean)(network)
    loss, grads = jax.lax.pmean((loss, grads), axis_name)
    adam.update(network, grads)
    _, params, rest = nnx.split((network, adam), nnx.Param, ...)
    new = state.replace(step=state.step + 1, params=params, batch_stats=rest)
    return new, {"loss": loss, "gradient_norm": optax.tree.norm(grads)}

  variables = {"params": params, "batch_stats": rest, "opt_state": ()}
  numbers = {"step": jnp.int32(0), "learning_rate_scale": jnp.float32(1)}
  return training.TrainState(**variables, **numbers, key=jax.random.key(1)), step


@pytest.mark.parametrize(
  "start", [run_of_make_step, pytest.param(run_of_own_step, marks=pytest.mark.slow)]
)
def test_a_loop_over_two_devices_goes_on_where_it_ended(start, tmp_path):
  state, step = start()

  options = {
    "evaluate": lambda state: {"size": float(optax.tree.norm(state.params))},
    "evaluate_every": 4, "monitor": training.Monitor("size", patience=9),
    "checkpoint_every": 2, "devices": TWO, "progress": False,
  }  # fmt: skip
  whole = training.fit(state, step, batches, steps=8, **options)
  assert whole.curve[-1]["loss"] < whole.curve[0]["loss"]
  for steps in (4, 8):
    with training.Checkpoints(tmp_path) as checkpoints:
      parts = training.fit(
        state, step, batches, steps=steps, checkpoints=checkpoints, **options
      )
  assert_same((parts.state, parts.best), (whole.state, whole.best))


# --- Sweeps ---
FIRST = jax.random.key(0), {"rate": 0.1}


def sweep_functions():
  structure = nnx.graphdef(nnx.eval_shape(lambda: with_optimizer(*FIRST)))

  def init(key, hyper):
    return nnx.state(with_optimizer(key, hyper))

  def step(state, key, hyper):
    network, adam = nnx.merge(structure, state)
    x = jax.random.normal(key, (8, 3)).at[:, 0].add(CLASSES)
    batch = {"x": x, "y": CLASSES}
    loss, grads = nnx.value_and_grad(lambda x: x.loss(batch).mean())(network)
    adam.update(network, grads)
    return nnx.state((network, adam)), {"loss": loss}

  def evaluate(state, key, hyper):
    network, _ = nnx.merge(structure, state)
    network.eval()
    return network.loss(batch_of(0)).mean()

  return init, step, evaluate


def with_optimizer(key, hyper):
  network = Network(nnx.Rngs(key))
  adam = optax.inject_hyperparams(optax.adam)(hyper["rate"])
  return network, nnx.Optimizer(network, adam, wrt=nnx.Param)


def test_a_sweep_over_two_devices_goes_on_where_it_ended(tmp_path):
  functions = sweep_functions()

  def run(steps, checkpoints=None):
    options = {"seeds": 2, "steps": steps, "evaluate_every": 5, "mode": "min"}
    options |= {"devices": TWO, "checkpoints": checkpoints, "progress": False}
    cells = {"rate": [1e-3, 3e-2]}
    return training.sweep(jax.random.key(0), *functions, cells, **options)

  with training.Checkpoints(tmp_path) as checkpoints:
    result = run(10, checkpoints)
    again = run(10, checkpoints)  # restored, with no step left
  assert not result.diverged.any()
  assert (result.best_score[1] < result.best_score[0]).all()
  assert_same(again.state, result.state)
  state = jax.tree.map(lambda leaf: leaf[0, 0], result.state)
  begun = jax.eval_shape(functions[0], *FIRST)
  assert jax.tree.structure(state) == jax.tree.structure(begun)
