"""Training that `benchmarks.drill` damages: digits, BatchNorm, all devices.

python -m benchmarks._drill_training FOLDER STEPS [--poison STEP]
  [--port PORT --number NUMBER]
"""

import argparse
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.frame import ending
from spherejax import data, distances, losses, training

PROCESSES, ROWS, PAUSE = 2, 32, 0.02


class Network(nn.Module):
  """Network with every kind of state: two layers, batch statistics and dropout."""

  axis_name: str | None = None

  @nn.compact
  def __call__(self, x: jax.Array, train: bool) -> jax.Array:
    x = nn.Dense(64)(x)
    x = nn.BatchNorm(use_running_average=not train, axis_name=self.axis_name)(x)
    x = nn.Dropout(0.2, deterministic=not train)(nn.relu(x))
    return nn.Dense(32)(x)


def objective(
  params: Any, batch_stats: Any, batch: Any, *, key: jax.Array, axis_name: str | None
) -> training.Outcome:
  """Softmax loss of the cosines with ten proxies."""
  embeddings, updates = Network(axis_name).apply(
    {"params": params["network"], "batch_stats": batch_stats["network"]},
    batch["x"],
    train=True,
    mutable=["batch_stats"],
    rngs={"dropout": key},
  )
  cosines = distances.pairwise_cosine(embeddings, params["loss"]["proxies"])
  values = losses.normface(cosines, batch["label"])
  mean = training.global_mean(values, axis_name=axis_name)
  return training.Outcome(mean, {"network": updates["batch_stats"]})


def main() -> None:
  """Trains, and writes the parameters unless a step was poisoned."""
  parser = argparse.ArgumentParser()
  parser.add_argument("folder", type=pathlib.Path)
  parser.add_argument("steps", type=int)
  parser.add_argument("--poison", type=int, default=-1)
  parser.add_argument("--port", type=int, default=0)
  parser.add_argument("--number", type=int, default=0)
  options = parser.parse_args()
  ending.in_one_line(options.folder)
  if options.port:
    training.start_processes(f"localhost:{options.port}", PROCESSES, options.number)
  digits = data.load_digits()
  pixels = np.asarray(digits.images).reshape(len(digits), -1).astype(np.float32) / 16

  def batches(first: int) -> Iterator[dict[str, np.ndarray]]:
    for number in range(first, options.steps):
      rows = np.random.default_rng([7, number]).integers(len(digits), size=ROWS)
      x = pixels[rows] * (np.nan if number == options.poison else 1)
      time.sleep(PAUSE)  # long enough for a kill to hit
      yield training.process_rows({"x": x, "label": digits.labels[rows]})

  optimizer = training.optimizer({"network": optax.adam(1e-3), "loss": optax.sgd(0.1)})
  key = jax.random.key(0)
  variables = Network().init(key, jnp.zeros((2, 64)), train=False)
  proxies = {"proxies": jax.random.normal(key, (10, 32))}
  state = training.create_state(key, optimizer, variables, {"params": proxies})
  step = training.make_step(objective, optimizer)
  with training.Checkpoints(options.folder / "checkpoints") as checkpoints:
    done = training.fit(
      state,
      step,
      batches,
      steps=options.steps,
      checkpoints=checkpoints,
      checkpoint_every=10,
      report_every=5,
      progress=False,
    )
  leaves = jax.tree.leaves((done.state.params, done.state.batch_stats))
  arrays = {f"{number:02}": np.asarray(leaf) for number, leaf in enumerate(leaves)}
  file = options.folder / f"state-{options.number}.npz"
  np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]


if __name__ == "__main__":
  main()
