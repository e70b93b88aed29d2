"""A small run with all that moves, for tests that start it in other processes."""

import os
import pathlib
import sys

if __name__ == "__main__":
  # Inherited from the tests: the same bits need the same compiler settings.
  os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from spherejax import losses, training

# Of processes that tests start: this package, and programs that are compiled already.
ENVIRONMENT = os.environ | {
  "PYTHONPATH": str(pathlib.Path(training.__file__).parents[2]),
  "JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir or "",
}


class Network(nn.Module):
  """Dense layers with BatchNorm and dropout."""

  axis_name: str | None = None
  dropout: float = 0.2

  @nn.compact
  def __call__(self, x, train):
    x = nn.Dense(8)(x)
    x = nn.BatchNorm(use_running_average=not train, axis_name=self.axis_name)(x)
    x = nn.Dropout(self.dropout, deterministic=not train)(nn.relu(x))
    return nn.Dense(3)(x)


def objective(params, batch_stats, batch, *, key, axis_name):
  variables = {"params": params["network"], "batch_stats": batch_stats["network"]}
  options = {"train": True, "mutable": ["batch_stats"], "rngs": {"dropout": key}}
  outputs, updates = Network(axis_name).apply(variables, batch["x"], **options)
  centres = params["loss"]["centres"][batch["label"]]
  errors = jnp.sum((outputs - centres) ** 2, axis=1)
  # Pairs over all devices. The unit ball does not enlarge the rounding of short rows,
  # and at a margin of 1 rounding would decide: as far are long rows from dropped ones.
  options = {"negative_margin": 0.7, "normalize": "unit_ball", "axis_name": axis_name}
  pairs = losses.contrastive(outputs, batch["label"], **options)
  mean = training.global_mean(errors + pairs, axis_name=axis_name)
  return training.Outcome(mean, {"network": updates["batch_stats"]})


def batches(first):
  for number in range(first, 10_000):
    rng = np.random.default_rng([7, number])
    x = rng.normal(size=(8, 5)).astype(np.float32)
    yield {"x": x, "label": rng.integers(4, size=8)}


def evaluate(state):
  x = np.random.default_rng(1).normal(size=(6, 5)).astype(np.float32)
  outputs = Network().apply(state.variables(), x, train=False)
  return {"spread": np.asarray(outputs).std()}


def run(checkpoints, **options):
  groups = {"network": optax.sgd(1e-2, 0.9), "loss": optax.sgd(1e-1, 0.9)}
  optimizer = training.optimizer(groups, max_norm=1.0)
  init = jax.jit(Network().init, static_argnames="train")
  network = init(jax.random.key(0), jnp.zeros((2, 5)), train=False)
  loss = {"params": {"centres": jax.random.normal(jax.random.key(1), (4, 3))}}
  state = training.create_state(jax.random.key(3), optimizer, network, loss)
  plateau = optax.contrib.reduce_on_plateau(0.5, patience=2, cooldown=1)
  monitor = training.Monitor("spread", mode="min", plateau=plateau)
  options = {"steps": 45, "checkpoint_every": 3, "report_every": 4} | options
  step = training.make_step(objective, optimizer)
  return training.fit(
    state, step, batches, evaluate=evaluate, evaluate_every=5, monitor=monitor,
    checkpoints=checkpoints, progress=False, **options,
  )  # fmt: skip


def arrays(state):
  """Bits of every array of a state, by path."""
  return {
    jax.tree_util.keystr(path): np.asarray(
      jax.random.key_data(leaf)
      if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
      else leaf
    )
    for path, leaf in jax.tree_util.tree_leaves_with_path(state)
  }


if __name__ == "__main__":
  with training.Checkpoints(sys.argv[1]) as saved:
    run(saved)
