"""One of two processes that rank split references until one of them is gone."""

import pathlib
import sys

import jax
import numpy as np

from spherejax import metrics

if __name__ == "__main__":
  port, number, heartbeat, folder = sys.argv[1:]
  jax.distributed.initialize(
    f"localhost:{port}", 2, int(number), heartbeat_timeout_seconds=int(heartbeat)
  )
  x = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
  mesh = jax.sharding.Mesh(np.array(jax.devices()), ("parts",))
  parts = jax.NamedSharding(mesh, jax.P("parts"))
  half = np.split(x, 2)[int(number)]
  references = jax.make_array_from_process_local_data(parts, half)
  while True:
    metrics.retrieval(references, np.arange(64) % 9)
    pathlib.Path(folder, number).touch()
