"""Two processes with two devices each train like one process with four."""

import importlib.util
import os
import pathlib
import socket
import subprocess
import sys

import jax
import numpy as np

from spherejax import training

_folder = pathlib.Path(__file__).parent
_spec = importlib.util.spec_from_file_location(
  "resumable_run", _folder / "resumable_run.py"
)
resumable_run = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(resumable_run)


def free_port():
  with socket.socket() as probe:
    probe.bind(("localhost", 0))
    return probe.getsockname()[1]


def run_two(directory):
  """Both processes' exit codes and what they wrote to stderr."""
  port = free_port()
  environment = os.environ | {
    "PYTHONPATH": str(pathlib.Path(training.__file__).parents[2]),
    "JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir,
  }
  processes = [
    subprocess.Popen(
      [
        sys.executable,
        str(_folder / "process_of_two.py"),
        str(port),
        str(number),
        str(directory),
      ],
      env=environment,
      stdout=subprocess.DEVNULL,
      stderr=subprocess.PIPE,
      text=True,
    )
    for number in range(2)
  ]
  try:
    errors = [process.communicate(timeout=180)[1] for process in processes]
  finally:
    for process in processes:
      process.kill()
  return [process.returncode for process in processes], "\n".join(errors)


def test_two_processes_equal_one(tmp_path):
  # Another program may take the port between its choice and its use: once more then.
  for attempt in range(3):
    directory = tmp_path / str(attempt)
    directory.mkdir()
    codes, errors = run_two(directory)
    if codes == [0, 0] or "address already in use" not in errors.lower():
      break
  assert codes == [0, 0], errors[-3000:]
  with training.Checkpoints(tmp_path / "alone") as checkpoints:
    alone = resumable_run.run(checkpoints, steps=15, checkpoint_every=5)
  expected = resumable_run.arrays(alone.state)
  for number in range(2):
    with np.load(directory / f"process{number}.npz") as actual:
      assert set(actual) == set(expected)
      for name, value in expected.items():
        # The sums over devices are taken in another order in each of 15 steps.
        np.testing.assert_allclose(actual[name], value, rtol=1e-4, atol=1e-6)
