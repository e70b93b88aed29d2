"""One of two processes that train together, for a test that starts both."""

import pathlib
import sys

import jax
import numpy as np
import pytest

from spherejax import metrics, training


def ranked(path, number):
  """Ranks among references of which each process made its half, and what differs."""
  with np.load(path) as given:
    x, labels = given["x"], given["labels"]
  mesh = jax.sharding.Mesh(np.array(jax.devices()), ("parts",))
  parts = jax.NamedSharding(mesh, jax.P("parts"))
  half = np.split(x, 2)[number]
  split = jax.make_array_from_process_local_data(parts, half)
  found = metrics.retrieval(split, labels)
  near = metrics.nearest(x[:9], split, k=5)
  with pytest.raises(ValueError, match="must be the same on all processes"):
    metrics.retrieval(split, labels + number)
  return {"first_rank": found.first_rank, "map_at_r": found.map_at_r, "nearest": near}


if __name__ == "__main__":
  port, number, directory = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3])
  assert training.start_processes(f"localhost:{port}", 2, number) == number
  assert len(jax.devices()) == 4
  assert len(jax.local_devices()) == 2

  import resumable_run  # beside this file

  every_batch = resumable_run.batches
  resumable_run.batches = lambda first: map(training.process_rows, every_batch(first))
  for steps in (10, 15):
    with training.Checkpoints(directory / "checkpoints") as checkpoints:
      result = resumable_run.run(checkpoints, steps=steps, checkpoint_every=5)
  np.savez(directory / f"ranks{number}.npz", **ranked(directory / "x.npz", number))
  np.savez(directory / f"process{number}.npz", **resumable_run.arrays(result.state))
