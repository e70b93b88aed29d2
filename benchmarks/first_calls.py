"""Times tracing and compilation of losses and networks, up to the first result.

The program is the value and gradient on a batch of 256. The losses that
pytorch-metric-learning also has are set up as in `benchmarks.losses`. All others,
including the miners, take the arguments of their documented example, with a larger
batch. Functions without a gradient are compiled alone. So are the networks for
photographs, on one image of the size that they were trained on; the networks have no
target. JAX's caches are cleared before each measurement, and no cache of compiled
programs is used.

    python -m benchmarks.first_calls             # three minutes on 2 cores
    python -m benchmarks.first_calls --smoke
    python -m benchmarks.first_calls --only triplet --json FILE
"""

import importlib.util
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks import _measure, _peers, calls, losses
from spherejax import models

BATCH = 256
MOST_SECONDS = 1.5
"""Processor seconds, which other processes change little."""
REPETITIONS = 2
SMOKE = "contrastive", "mine_batch_hard", "softmax", "models.EfficientNetLite"
NETWORKS = {
  "models.EfficientNetLite": (models.EfficientNetLite(), 224),
  "models.ResNet50": (models.ResNet50(), 224),
  "models.InceptionV3": (models.InceptionV3(), 299),
}
"""Networks of `models.pretrained`, and the side of their images."""


def program(name: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
  """Function to compile for a loss or a network, and its arguments."""
  if name in NETWORKS:
    network, side = NETWORKS[name]
    images = jax.ShapeDtypeStruct((1, side, side, 3), jnp.float32)
    return network.apply, (
      jax.eval_shape(network.init, jax.random.key(0), images),
      images,
    )
  peer = _peers.PEERS.get(name)
  if peer and (has_peer() or not peer.weights):
    x, labels = _peers.inputs(BATCH, losses.DIM, peer.per_class)
    weights = None
    if peer.weights:  # the peer draws them
      _, weights = _peers.torch_loss(peer, int(labels.max()) + 1, losses.DIM)
    return losses.ours(peer), (jnp.asarray(x, jnp.float32), labels, weights)
  call = calls.documented(f"losses.{name}")
  call = calls.larger(call) or call
  differentiated = calls.differentiable(call)
  if differentiated:
    return jax.value_and_grad(differentiated[0]), (differentiated[1],)
  function, data = calls.of_data(call, calls.is_data)
  return function, (data,)


def operations(name: str) -> int:
  """Number of operations in the program before it is compiled."""
  function, arguments = program(name)
  return jax.jit(function).lower(*arguments).as_text().count(" = ")


def has_peer() -> bool:
  """True if the peer is installed."""
  return importlib.util.find_spec("pytorch_metric_learning") is not None


def measured(name: str, repetitions: int) -> dict[str, Any]:
  """Row of the table: the quickest of several first calls."""
  function, arguments = program(name)
  rows = []
  for _ in range(repetitions):
    jax.clear_caches()
    clocks = [(time.perf_counter(), time.process_time())]
    lowered = jax.jit(function).lower(*arguments)
    clocks.append((time.perf_counter(), time.process_time()))
    compiled = lowered.compile()
    clocks.append((time.perf_counter(), time.process_time()))
    (start, used), (_, traced), (end, all_used) = clocks
    row: dict[str, Any] = {"function": name, "seconds": end - start}
    row |= {"of processors": all_used - used, "of which tracing": traced - used}
    row["instructions"] = (compiled.as_text() or "").count(" = ")
    met = "" if name in NETWORKS else row["of processors"] <= MOST_SECONDS
    rows.append(row | {"met": met})
  return min(rows, key=lambda row: row["of processors"])


def main() -> None:
  """Runs the command line."""
  options = _measure.parse(__doc__, timed=False)
  jax.config.update("jax_enable_compilation_cache", False)
  names = [n.split(".")[1] for n in calls.functions() if n.startswith("losses.")]
  names = [name for name in (*names, *NETWORKS) if options.only in name]
  if options.smoke:
    names = [name for name in names if name in SMOKE]
  jax.jit(jnp.tanh).lower(jnp.zeros(3)).compile()  # extra time of the very first call
  missing = [] if has_peer() else [losses.PEER]
  rows: list[dict[str, Any]] = []
  for name in names:
    with warnings.catch_warnings():
      warnings.simplefilter("ignore")
      rows.append(measured(name, 1 if options.smoke else REPETITIONS))
    rows.sort(key=lambda row: -row["of processors"])
    _measure.save("first_calls", rows, missing, options)
  _measure.require(rows, options)
  _measure.show(f"first calls, batches of {BATCH}", rows)


if __name__ == "__main__":
  main()
