"""The loop: what it reports, keeps, stops for, and survives."""

import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import time

import jax
import pytest

from spherejax import training

_path = pathlib.Path(__file__).with_name("resumable_run.py")
_spec = importlib.util.spec_from_file_location("resumable_run", _path)
resumable_run = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(resumable_run)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
  with training.Checkpoints(tmp_path_factory.mktemp("uninterrupted")) as checkpoints:
    return resumable_run.run(checkpoints)


def assert_same_bits(result, expected):
  for part in ("state", "best"):
    actual = resumable_run.arrays(getattr(result, part))
    wanted = resumable_run.arrays(getattr(expected, part))
    assert actual.keys() == wanted.keys()
    for name, value in wanted.items():
      assert actual[name].tobytes() == value.tobytes(), (part, name)
  assert result.curve == expected.curve
  assert result.evaluations == expected.evaluations


def finished_steps(directory):
  folder = directory / "last"
  if not folder.is_dir():
    return []
  return sorted(int(entry.name) for entry in folder.iterdir() if entry.name.isdigit())


def kill_when(directory, condition):
  """Starts the run in another process, and kills it as soon as the condition holds."""
  process = subprocess.Popen(
    [sys.executable, str(_path), str(directory)],
    env=os.environ
    | {
      "PYTHONPATH": str(pathlib.Path(training.__file__).parents[2]),
      "JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir,
    },
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
  )
  deadline = time.monotonic() + 120
  while not condition():
    assert process.poll() is None, "the run ended before it could be killed"
    assert time.monotonic() < deadline, "the run made no progress"
    time.sleep(0.001)
  process.send_signal(signal.SIGKILL)
  process.wait()


def test_killed_run_resumes_to_identical_bits(tmp_path, uninterrupted):
  # Killed between two checkpoints, then in the middle of writing one, then resumed.
  kill_when(tmp_path, lambda: finished_steps(tmp_path)[-1:] >= [6])
  before = finished_steps(tmp_path)[-1]

  def writing():
    return finished_steps(tmp_path)[-1:] > [before + 3] and any(
      "tmp" in name for name in os.listdir(tmp_path / "last")
    )

  kill_when(tmp_path, writing)
  assert before < finished_steps(tmp_path)[-1] < 30
  with training.Checkpoints(tmp_path) as checkpoints:
    result = resumable_run.run(checkpoints)
  assert_same_bits(result, uninterrupted)


def test_run_of_many_parts_equals_one(tmp_path, uninterrupted):
  for steps in (5, 20, 30, 30):  # the last time there is nothing left to do
    with training.Checkpoints(tmp_path) as checkpoints:
      result = resumable_run.run(checkpoints, steps=steps)
  assert_same_bits(result, uninterrupted)
