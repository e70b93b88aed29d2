"""Cost that generalized sum pooling and a pair loss add to a training step.

Ours is a step of `experiments.retrieval`: random crops, network, generalized sum
pooling, contrastive loss, update. The other step has the same network, crops and
optimiser, but average pooling and a cross-entropy. Before the timing, some of our steps
are repeated on four simulated devices and by two processes, which must give the same
losses.

    python -m benchmarks.step            # minutes on 2 cores
    python -m benchmarks.step --smoke    # less than a minute, on one device
    python -m benchmarks.step --json FILE
"""

import dataclasses
import functools
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from benchmarks import _measure
from experiments.frame import networks
from experiments.frame import training as frame_training
from experiments.metric_learning import methods
from experiments.metric_learning import objective as retrieval_objective
from experiments.metric_learning.methods import Method
from experiments.metric_learning.settings import Settings
from spherejax import data, losses, training

OVERHEAD = 0.1
STEPS, SAME = 3, 1e-4
CLASSES = 100
PLAIN = "average, cross-entropy"
PAIRS = Method("c2")
CLASSIFIER = Method("c2", "proxy", 1)  # its proxies are the weights of a classifier


class Work(NamedTuple):
  """A network and its batch."""

  name: str
  settings: Settings


CHARACTERS = Work("characters, 4 convolutions", Settings(pooling="gsp", batch=32))
PHOTOGRAPHS = Work(
  "photographs, BN-Inception",
  Settings(
    pooling="gsp",
    backbone="bn_inception",
    frozen_norm=True,
    image_size=227,
    channels=3,
    dim=128,
    shift=8,
  ),
)


def batch(settings: Settings) -> dict[str, np.ndarray]:
  """Images of some classes, and the numbers that decide their crops."""
  random = np.random.default_rng(0)
  shape = (settings.batch, settings.image_size, settings.image_size, settings.channels)
  return {
    "image": random.integers(0, 256, shape, np.uint8),
    "label": np.repeat(
      np.arange(settings.batch // settings.per_class, dtype=np.int32),
      settings.per_class,
    ),
    "crop": np.arange(settings.batch, dtype=np.uint32),
  }


def objective(
  params: Any,
  batch_stats: Any,
  batch: Mapping[str, Array],
  *,
  key: Array,
  axis_name: str | None,
  settings: Settings,
  pairs: bool,
) -> training.Outcome:
  """Crops the images, runs the network and computes the loss."""
  del key  # each image has its own crop, on any device

  def shown(number: Array, image: Array) -> Array:
    batch_key = jax.random.fold_in(jax.random.key(0), number)
    return data.random_crop(batch_key, image[None], padding=settings.shift)[0]

  output, after = frame_training.forward(
    networks.Network(settings.architecture, axis_name),
    params["network"],
    batch_stats.get("network", {}),
    jax.vmap(shown)(batch["crop"], batch["image"]),
  )
  mean = functools.partial(training.global_mean, axis_name=axis_name)
  x, labels = output.embeddings, batch["label"]
  if pairs:
    value = methods.value(
      PAIRS,
      x,
      labels,
      {},
      None,
      losses.memory_references(losses.memory_init(1, settings.dim)),
      remembers=jnp.zeros((), bool),
      axis_name=axis_name,
      average=mean,
    )
  else:
    logits = x @ params["loss"]["proxies"].T
    value = mean(optax.softmax_cross_entropy_with_integer_labels(logits, labels))
  return training.Outcome(value, {"network": after} if after else {})


def prepared(
  settings: Settings, *, pairs: bool
) -> tuple[training.TrainState, Callable[..., Any]]:
  """Sets up the state before the first step, and the step."""
  method = PAIRS if pairs else CLASSIFIER
  key = jax.random.key(0)
  variables = networks.initial_variables(key, settings)
  stats = variables.get("batch_stats", {})
  chain = retrieval_objective.optimizer(settings, method, stats)
  weights = {} if pairs else {"proxies": jnp.zeros((CLASSES, settings.dim))}
  state = training.create_state(key, chain, variables, {"params": weights})
  bound = functools.partial(objective, settings=settings, pairs=pairs)
  return state, training.make_step(bound, chain)


def steps(settings: Settings) -> np.ndarray:
  """Runs some steps of ours on all devices of all processes; returns the losses."""
  state, step = prepared(settings, pairs=True)
  mapped = training.parallel_step(step)
  rows = training.shard(training.process_rows(batch(settings)))
  state, losses = training.replicate(state), []
  for _ in range(STEPS):
    state, metrics = mapped(state, rows)
    losses.append(float(training.unreplicate(metrics)["loss"]))
  return np.array(losses)


def elsewhere(processes: int, devices: int) -> np.ndarray:
  """Repeats the steps in new processes with `devices` devices each."""
  with socket.socket() as probe, tempfile.TemporaryDirectory() as folder:
    probe.bind(("localhost", 0))
    port = probe.getsockname()[1]
    probe.close()
    flags = os.environ.get("XLA_FLAGS", "")
    flags = f"{flags} --xla_force_host_platform_device_count={devices}"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    paths = [pathlib.Path(folder) / f"{number}.npy" for number in range(processes)]
    command = sys.executable, "-m", "benchmarks._step_process"
    running = [
      subprocess.Popen(
        [*command, str(port), str(processes), str(number), str(path)], env=environment
      )
      for number, path in enumerate(paths)
    ]
    codes = [process.wait() for process in running]
    if any(codes):
      raise SystemExit(f"{processes} processes of {devices} devices did not end well")
    return np.stack([np.load(path) for path in paths])


def check_devices() -> float:
  """Largest relative difference of losses; raises if rounding cannot explain it."""
  alone = elsewhere(1, 1)
  far = np.max(
    [
      _measure.relative_difference(losses, np.broadcast_to(alone, losses.shape))
      for losses in (elsewhere(1, 4), elsewhere(2, 2))
    ]
  )
  if not far <= SAME:
    raise AssertionError(f"losses differ by {far:.1e} between devices and processes")
  return far


def compare(work: Work, repetitions: int) -> dict[str, Any]:
  """Compares the times of both steps."""
  plain = dataclasses.replace(work.settings, pooling="gap")
  settings = {_measure.OURS: work.settings, PLAIN: plain}
  contenders, states = {}, {}
  for name, settings_here in settings.items():
    states[name], step = prepared(settings_here, pairs=name == _measure.OURS)

    def call(states: Any, batch: Any, name: str = name, step: Any = step) -> Any:
      return step(states[name], batch)

    contenders[name] = _measure.Contender(call)
  return _measure.compare(
    work.name,
    (states, batch(work.settings)),
    contenders,
    (_measure.Target(PLAIN, 1 / (1 + OVERHEAD)),),
    repetitions=repetitions,
  )


def main() -> None:
  """Runs the command line."""
  options = _measure.parse(__doc__)
  if not options.smoke:
    print(f"devices and processes differ by {check_devices():.0e}")
  works = [CHARACTERS] if options.smoke else [CHARACTERS, PHOTOGRAPHS]
  cases = {x.name: functools.partial(compare, x, options.repetitions) for x in works}
  _measure.run("step", cases, [], options)


if __name__ == "__main__":
  main()
