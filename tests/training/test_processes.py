"""Two processes with two devices each train like one process with four."""

import ast
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from spherejax import metrics, training
from tests import tutorials
from tests.training import resumable_run

_folder = pathlib.Path(__file__).parent


def free_port():
  with socket.socket() as probe:
    probe.bind(("localhost", 0))
    return probe.getsockname()[1]


def start_two(commands):
  # The last of two equal flags holds; the others are the tests'.
  flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=2"
  environment = resumable_run.ENVIRONMENT | {"XLA_FLAGS": flags}
  pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
  return [
    subprocess.Popen([sys.executable, *map(str, command)], env=environment, **pipes)
    for command in commands
  ]


def run_together(tmp_path, commands):
  """The folder in which both of `commands(port, folder)` ended well."""
  # Another program may take the port between its choice and its use: once more then.
  for attempt in range(3):
    directory = tmp_path / str(attempt)
    directory.mkdir()
    processes = start_two(commands(free_port(), directory))
    try:
      errors = "\n".join(process.communicate(timeout=180)[1] for process in processes)
    finally:
      for process in processes:
        process.kill()
    codes = [process.returncode for process in processes]
    if codes == [0, 0] or "address already in use" not in errors.lower():
      break
  assert codes == [0, 0], errors[-3000:]
  return directory


def test_two_processes_equal_one(tmp_path):
  x = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
  x[40:50] = x[:10]
  labels = np.arange(64) % 9

  def commands(port, directory):
    np.savez(directory / "x.npz", x=x, labels=labels)
    program = _folder / "process_of_two.py"
    return [(program, port, number, directory) for number in range(2)]

  directory = run_together(tmp_path, commands)
  with training.Checkpoints(tmp_path / "alone") as checkpoints:
    alone = resumable_run.run(checkpoints, steps=15, checkpoint_every=5)
  expected = resumable_run.arrays(alone.state)
  ranks = metrics.retrieval(x, labels)
  for number in range(2):
    with np.load(directory / f"ranks{number}.npz") as actual:
      np.testing.assert_array_equal(actual["first_rank"], ranks.first_rank)
      np.testing.assert_allclose(actual["map_at_r"], ranks.map_at_r, rtol=5e-7)
      np.testing.assert_array_equal(actual["nearest"], metrics.nearest(x[:9], x, k=5))
    with np.load(directory / f"process{number}.npz") as actual:
      assert set(actual) == set(expected)
      for name, value in expected.items():
        # The sums over devices are taken in another order in each of 15 steps.
        np.testing.assert_allclose(actual[name], value, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("signals", ["SIGKILL", "SIGSTOP"])
def test_when_a_process_dies_or_hangs_the_other_ends(tmp_path, signals):
  heartbeat = 5
  program = _folder / "process_that_ranks.py"
  port = free_port()
  processes = start_two([(program, port, n, heartbeat, tmp_path) for n in range(2)])
  try:
    while len(list(tmp_path.iterdir())) < 2:  # both are ranking
      assert [process.poll() for process in processes] == [None, None]
      time.sleep(0.1)
    processes[1].send_signal(signal.Signals[signals])
    # Without its own setting it would be a hundred seconds.
    said = processes[0].communicate(timeout=10 * heartbeat)[1]
  finally:
    for process in processes:
      process.kill()
      process.wait()
      process.stderr.close()
  assert processes[0].returncode != 0
  assert "This most likely indicates that another task died" in said


def definitions(programs):
  """Definitions that examples make before anything touches a device, as a program."""
  wanted = (ast.Import, ast.ImportFrom, ast.FunctionDef)
  nodes = [
    node
    for node in ast.parse("\n".join(programs)).body
    if isinstance(node, wanted)
    or ast.unparse(node).startswith(("optimizer = ", "step = "))
  ]
  return ast.unparse(ast.Module(nodes, []))


@pytest.mark.slow
def test_the_tutorials_program_on_two_hosts_trains_as_on_one(tmp_path):
  examples = tutorials.programs("devices_and_hosts.md")
  (block,) = (program for program in examples if "start_processes(" in program)
  defined = definitions(examples[:3])
  counts = "[jax.process_count(), jax.device_count(), jax.local_device_count()]"

  def commands(port, directory):
    program = block
    for there, here in (
      ("10.0.0.1:1234", f"localhost:{port}"),
      ("/shared/run", str(directory / "run")),
      ("10_000", "12"),
    ):
      assert program.count(there) == 1
      program = program.replace(there, here)
    path = directory / "train.py"
    kept = f"np.save(f'{directory}/counts{{process_id}}', {counts})"
    path.write_text(f"import sys\n{defined}\n{program}\n{kept}\n")
    return [(path, number) for number in range(2)]

  directory = run_together(tmp_path, commands)
  for number in range(2):
    assert np.load(directory / f"counts{number}.npy").tolist() == [2, 4, 2]

  names = {}
  exec(compile(defined, "devices_and_hosts.md", "exec"), names)
  start, step, options = names["start"], names["step"], {"steps": 12, "progress": False}
  alone = training.fit(start(), step, names["batches"], **options)
  # A process with four devices reads what two with two have written.
  with training.Checkpoints(directory / "run") as checkpoints:
    assert checkpoints.latest_step() == 12
    options |= {"checkpoints": checkpoints}
    together = training.fit(start(), step, lambda first: iter(()), **options)
  states = start(), together.state, alone.state
  before, actual, expected = (np.asarray(x.params["network"]["w"]) for x in states)
  assert np.abs(expected - before).max() > 0.1
  np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)
