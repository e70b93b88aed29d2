"""The train state, the optimiser's groups, and the step.

On four devices, mapped in three ways, the step is that on one device.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from spherejax import losses, training
from tests.training import resumable_run
from tests.training.resumable_run import arrays

DIM, CLASSES, BATCH, STEPS = 3, 4, 16, 4
P = jax.sharding.PartitionSpec
Network = functools.partial(resumable_run.Network, dropout=0.0)


def objective(params, batch_stats, batch, *, key, axis_name):
  """Masked global means of a pair loss (counts) and a proxy loss (columns)."""
  del key
  variables = {"params": params["network"], "batch_stats": batch_stats["network"]}
  options = {"train": True, "mutable": ["batch_stats"]}
  embeddings, updates = Network(axis_name).apply(variables, batch["x"], **options)
  args = {"where": batch["where"], "axis_name": axis_name}
  mean = functools.partial(training.global_mean, **args)
  pair = mean(losses.contrastive(embeddings, batch["label"], **args))
  proxies = params["loss"]["proxies"]
  proxy = mean(losses.proxy_anchor(embeddings, batch["label"], proxies, **args))
  stats = {"network": updates["batch_stats"]}
  return training.Outcome(pair + proxy, stats, {"pair": pair})


# Not Adam: it would blow the rounding of gradients that are zero (a bias before
# BatchNorm) up to full steps.
OPTIMIZER = training.optimizer(
  {"network": optax.sgd(0.1, 0.9), "loss": optax.sgd(1.0, 0.9)}, max_norm=1.0
)
STEP = training.make_step(objective, OPTIMIZER)


def start_state():
  network = Network().init(jax.random.key(0), jnp.zeros((2, 5)), train=False)
  loss = {"params": {"proxies": jax.random.normal(jax.random.key(1), (CLASSES, DIM))}}
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


@functools.cache
def steps_of(kind, function=STEP):
  """A function of a state and a batch, both for one device, mapped in this way."""
  if kind == "one":
    return jax.jit(function)
  if kind == "pmap":
    step = training.parallel_step(function)
    return lambda state, batch: training.unreplicate(
      step(training.replicate(state), training.shard(batch))
    )
  mapped = functools.partial(function, axis_name="batch")
  if kind == "vmap":
    axes = {"in_axes": (None, 0), "out_axes": (None, None)}
    step = jax.jit(jax.vmap(mapped, axis_name="batch", **axes))
    return lambda state, batch: step(
      state, jax.tree.map(lambda x: x.reshape(4, -1, *x.shape[1:]), batch)
    )
  mesh = jax.sharding.Mesh(np.array(jax.devices()), ("batch",))
  specs = {"in_specs": (P(), P("batch")), "out_specs": (P(), P())}
  checked = kind == "shard_map"
  return jax.jit(jax.shard_map(mapped, mesh=mesh, check_vma=checked, **specs))


def train(kind, masked):
  step, state = steps_of(kind), start_state()
  for batch in batches(masked):
    state, metrics = step(state, batch)
  return arrays(state), metrics


QUICK = ("pmap", True), ("shard_map", False)
KINDS = ("pmap", "shard_map", "shard_map_unchecked", "vmap")


@pytest.mark.parametrize(
  ("kind", "masked"),
  [
    pytest.param(*case, marks=[pytest.mark.slow] * (case not in QUICK))
    for case in itertools.product(KINDS, (False, True))
  ],
)
def test_four_devices_equal_one(kind, masked):
  assert len(jax.devices()) == 4
  expected, metrics_of_one = train("one", masked)
  state, metrics = train(kind, masked)
  assert state.keys() == expected.keys()
  for name, value in expected.items():
    np.testing.assert_allclose(state[name], value, rtol=2e-5, atol=2e-6, err_msg=name)
  assert metrics.keys() == {"loss", "pair", "gradient_norm"}
  for name, value in metrics_of_one.items():
    np.testing.assert_allclose(metrics[name], value, rtol=1e-5)


def begun(objective, optimizer=None, **changed):
  """A small state, and its step."""
  network = {"params": {"w": jnp.ones(2)}, "batch_stats": {"n": jnp.zeros(())}}
  optimizer = optimizer or optax.sgd(1.0)
  state = training.create_state(jax.random.key(4), optimizer, network | changed)
  return state, training.make_step(objective, optimizer)


@pytest.mark.parametrize("kind", ["pmap", "vmap", "shard_map"])
def test_statistics_of_every_type(kind):
  """Half precision is averaged in float32, and integers may change or stay."""

  def objective(params, batch_stats, batch, *, key, axis_name):
    stats = batch_stats["network"]
    memory, _ = losses.memory_update(
      stats["memory"], batch[:, None], jnp.arange(len(batch)), axis_name=axis_name
    )
    mean = training.global_mean(batch, axis_name=axis_name)
    stats |= {"half": jnp.mean(batch), "count": stats["count"] + 1}
    stats |= {"begun": jnp.array(True), "memory": memory}
    return training.Outcome(params["network"]["w"] * mean, {"network": stats})

  stats = {
    "half": jnp.float16(0), "count": jnp.int32(0), "begun": jnp.array(False),
    "rest": jnp.uint8([3, 255]), "memory": losses.memory_init(32, 1, dtype=jnp.float16),
  }  # fmt: skip
  state, step = begun(objective, params={"w": jnp.float16(1)}, batch_stats=stats)
  batch = np.full(16, 20_000, np.float16)
  after, metrics = steps_of(kind, step)(state, batch)
  alone = steps_of("one", step)(state, batch)[0].batch_stats["network"]
  stats = after.batch_stats["network"]
  assert (stats["half"], stats["count"], stats["begun"]) == (20_000, 1, True)
  np.testing.assert_array_equal(stats["rest"], [3, 255])
  assert after.params["network"]["w"] == np.float16(-19_999)
  assert metrics["gradient_norm"] == 20_000
  np.testing.assert_array_equal(*(x["memory"].embeddings for x in (stats, alone)))


def test_mapped_step_is_compiled_once():
  traces = []

  def counted(state, batch, *, axis_name):
    traces.append(axis_name)
    return STEP(state, batch, axis_name=axis_name)

  step = training.parallel_step(counted)
  state = training.replicate(start_state())
  for batch in batches(masked=False):
    state, _ = step(state, training.shard(batch))
  # The oldest traces once more for the state that a step returned.
  assert traces == ["batch"] * (1 + (jax.__version_info__ < (0, 8)))


def drawn(params, batch_stats, batch, *, key, axis_name):
  """Reports a number drawn from the step's key."""
  del batch_stats, axis_name
  loss = jnp.sum(params["network"]["w"]) * jnp.mean(batch)
  return training.Outcome(loss, metrics={"drawn": jax.random.uniform(key)})


def test_key_differs_by_step_and_device_and_never_moves():
  first, step = begun(drawn)
  state, numbers = first, []
  for _ in range(3):
    new, metrics = step(state, jnp.ones(2))
    assert new.key == state.key
    assert step(state, jnp.ones(2))[1]["drawn"] == metrics["drawn"]
    numbers.append(float(metrics["drawn"]))
    state = new
  assert len(set(numbers)) == 3
  # On devices the report is the mean over different draws.
  _, metrics = steps_of("vmap", step)(first, jnp.ones(8))
  key = jax.random.fold_in(first.key, 0)
  draws = [jax.random.uniform(jax.random.fold_in(key, i)) for i in range(4)]
  np.testing.assert_allclose(metrics["drawn"], np.mean(draws), rtol=1e-6)
  assert len({float(draw) for draw in draws}) == 4


def test_counts_and_booleans_are_averaged_over_the_devices():
  def counted(params, batch_stats, batch, *, key, axis_name):
    loss = jnp.sum(params["network"]["w"]) * jnp.mean(batch)
    metrics = {"count": jnp.sum(batch > 1), "any": jnp.any(batch > 1)}
    return training.Outcome(loss, metrics=metrics)

  state, step = begun(counted)
  batch = np.float32([0, 2, 2, 2, 0, 0, 0, 0])  # 1, 2, 0 and 0 on the four devices
  copies = training.replicate(state)
  _, metrics = training.parallel_step(step)(copies, training.shard(batch))
  np.testing.assert_array_equal(metrics["count"], [0.75] * 4)
  np.testing.assert_array_equal(metrics["any"], [0.5] * 4)
  alone = jax.jit(step)(state, batch)[1]
  assert (float(alone["count"]), float(alone["any"])) == (3, 1)


def test_rate_scale_and_statistics_that_stay():
  state, step = begun(drawn)
  state = state.replace(learning_rate_scale=jnp.float32(0.25))
  new, metrics = step(state, jnp.full(2, 2.0))
  np.testing.assert_allclose(new.params["network"]["w"], 1 - 0.25 * 2)
  np.testing.assert_allclose(metrics["gradient_norm"], np.sqrt(8), rtol=1e-6)
  assert new.batch_stats == state.batch_stats
  assert int(new.step) == 1


def test_optimizer_is_given_the_loss():
  # The rule sees 2, 2, 2: its second value without improvement halves the rate.
  rule = optax.contrib.reduce_on_plateau(0.5, patience=2)
  state, step = begun(drawn, optimizer=optax.chain(optax.sgd(0.0), rule))
  for _ in range(3):
    state, _ = step(state, jnp.ones(2))
  assert float(state.opt_state[1].scale) == 0.5


@pytest.mark.parametrize(
  "change", [lambda mean: mean.astype(jnp.bfloat16), lambda mean: jnp.ones(5)]
)
def test_statistics_keep_their_shapes_and_types(change):
  def objective(params, batch_stats, batch, *, key, axis_name):
    stats = {"network": {"mean": change(batch_stats["network"]["mean"])}}
    return training.Outcome(jnp.sum(params["network"]["w"]), batch_stats=stats)

  state, step = begun(objective, batch_stats={"mean": jnp.ones(2)})
  with pytest.raises(TypeError, match=r"batch_stats\['network'\]\['mean'\] is float32"):
    step(state, jnp.ones(2))


# --- The state and the groups of the optimiser ---

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
  groups = dict.fromkeys(("network", "loss", "los"), optax.sgd(1.0))
  for chosen, options, message in (
    ({"network": optax.sgd(1.0)}, {}, r"'loss/other' belongs to no group.*'network'"),
    (groups, {}, r"groups \['los'\] .* match no parameter"),
    ({}, {}, "at least one"),
    (groups, {"max_norm": 0.0}, "max_norm must be in"),
    (groups, {"max_value": -1.0}, "max_value must be in"),
  ):
    with pytest.raises(ValueError, match=message):
      training.optimizer(chosen, **options).init(PARAMS)


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
  optimizer, other = training.optimizer({"network": optax.sgd(1.0)}), jnp.zeros(1)
  with pytest.raises(ValueError, match="'loss/other' belongs to no group"):
    training.create_state(KEY, optimizer, network, {"params": {"other": other}})


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


def test_tiny_gradients_are_clipped_to_a_tinier_norm():
  gradients = {"network": jnp.array([3e-25, 4e-25])}
  optimizer = training.optimizer({"network": optax.sgd(1.0)}, max_norm=1e-25)
  update = updates_of(optimizer, gradients)["network"]
  np.testing.assert_allclose(update, [-6e-26, -8e-26], rtol=1e-6)


def test_clipping_of_usual_gradients_is_that_of_optax():
  gradients = {"network": jnp.array([0.3, -7.0, 1e4]), "loss": jnp.array([[1e-5, 2.0]])}
  groups = {"network": optax.identity(), "loss": optax.identity()}
  updates = updates_of(training.optimizer(groups, max_norm=0.7), gradients)
  expected = updates_of(optax.clip_by_global_norm(0.7), gradients)
  jax.tree.map(np.testing.assert_array_equal, updates, expected)
