"""The step on four devices, mapped in three ways, is the step on one device."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from spherejax import losses, training

DIM, CLASSES, BATCH, STEPS = 3, 4, 16, 4
P = jax.sharding.PartitionSpec


class Network(nn.Module):
  """Dense, BatchNorm over the axis, dense."""

  axis_name: str | None = None

  @nn.compact
  def __call__(self, x, train):
    x = nn.Dense(8)(x)
    x = nn.BatchNorm(use_running_average=not train, axis_name=self.axis_name)(x)
    return nn.Dense(DIM)(nn.relu(x))


def objective(params, batch_stats, batch, *, key, axis_name):
  """Masked global means of a pair loss (counts) and a proxy loss (columns)."""
  del key
  embeddings, updates = Network(axis_name).apply(
    {"params": params["network"], "batch_stats": batch_stats["network"]},
    batch["x"],
    train=True,
    mutable=["batch_stats"],
  )
  mean = functools.partial(
    training.global_mean, where=batch["where"], axis_name=axis_name
  )
  args = {"where": batch["where"], "axis_name": axis_name}
  pair = mean(losses.contrastive(embeddings, batch["label"], **args))
  proxies = params["loss"]["proxies"]
  proxy = mean(losses.proxy_anchor(embeddings, batch["label"], proxies, **args))
  return training.Outcome(
    pair + proxy, {"network": updates["batch_stats"]}, {"pair": pair}
  )


# Not Adam: it would blow the rounding of gradients that are zero (a bias before
# BatchNorm) up to full steps.
OPTIMIZER = training.optimizer(
  {"network": optax.sgd(0.1, 0.9), "loss": optax.sgd(1.0, 0.9)}, max_norm=1.0
)
STEP = training.make_step(objective, OPTIMIZER)


def start_state():
  network = Network().init(jax.random.key(0), jnp.zeros((2, 5)), train=False)
  proxies = jax.random.normal(jax.random.key(1), (CLASSES, DIM))
  loss = {"params": {"proxies": proxies}}
  return training.create_state(jax.random.key(2), OPTIMIZER, network, loss)


def batches(masked):
  rng = np.random.default_rng(0)
  for _ in range(STEPS):
    # The kept rows lie unevenly: 4, 3, 1 and 2 of 4 on the four devices.
    where = np.array([1, 1, 1, 1, 0, 1, 1, 1, 0, 0, 0, 1, 1, 0, 1, 0], bool)
    yield {
      "x": rng.normal(size=(BATCH, 5)).astype(np.float32),
      "label": rng.integers(CLASSES, size=BATCH),
      "where": where if masked else np.ones(BATCH, bool),
    }


def run_pmap(batch_list):
  step = training.parallel_step(STEP)
  state = training.replicate(start_state())
  for batch in batch_list:
    state, metrics = step(state, training.shard(batch))
  return training.unreplicate((state, metrics))


def run_vmap(batch_list):
  mapped = functools.partial(STEP, axis_name="batch")
  step = jax.jit(
    jax.vmap(mapped, axis_name="batch", in_axes=(None, 0), out_axes=(None, None))
  )
  state = start_state()
  for batch in batch_list:
    state, metrics = step(
      state, jax.tree.map(lambda x: x.reshape(4, 4, *x.shape[1:]), batch)
    )
  return state, metrics


def run_shard_map(batch_list, check_vma):
  mapped = functools.partial(STEP, axis_name="batch")
  mesh = jax.sharding.Mesh(np.array(jax.devices()), ("batch",))
  step = jax.jit(
    jax.shard_map(
      mapped,
      mesh=mesh,
      in_specs=(P(), P("batch")),
      out_specs=(P(), P()),
      check_vma=check_vma,
    )
  )
  state = start_state()
  for batch in batch_list:
    state, metrics = step(state, batch)
  return state, metrics


def arrays(state):
  return {
    jax.tree_util.keystr(path): np.asarray(leaf)
    for path, leaf in jax.tree_util.tree_leaves_with_path(state.replace(key=()))
  }


@functools.cache
def one_device(masked):
  step, state = jax.jit(STEP), start_state()
  for batch in batches(masked):
    state, metrics = step(state, batch)
  return arrays(state), float(metrics["loss"]), float(metrics["pair"])


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
  "run",
  [
    run_pmap,
    run_vmap,
    functools.partial(run_shard_map, check_vma=True),
    functools.partial(run_shard_map, check_vma=False),
  ],
  ids=["pmap", "vmap", "shard_map", "shard_map_unchecked"],
)
def test_four_devices_equal_one(run, masked):
  expected, loss, pair = one_device(masked)
  state, metrics = run(list(batches(masked)))
  actual = arrays(state)
  assert actual.keys() == expected.keys()
  for name, value in expected.items():
    np.testing.assert_allclose(actual[name], value, rtol=2e-5, atol=2e-6, err_msg=name)
  np.testing.assert_allclose(metrics["loss"], loss, rtol=1e-5)
  np.testing.assert_allclose(metrics["pair"], pair, rtol=1e-5)
