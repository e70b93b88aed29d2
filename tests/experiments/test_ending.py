"""Runs that end early and defects; rows by blocks, trainings a few at a time."""

import _thread
import asyncio
import os
import pathlib
import queue
import signal
import subprocess
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.frame import at_once, ending
from spherejax import training

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def kept(tmp_path):
  (tmp_path / "kept").mkdir()


@pytest.fixture
def hook(tmp_path, monkeypatch, capsys):
  """Text printed for an error that nobody caught; puts all back afterwards."""
  for name in ("excepthook", "unraisablehook"):
    monkeypatch.setattr(sys, name, getattr(sys, name))
  monkeypatch.setattr(ending, "_leave", lambda _: None)
  before = signal.getsignal(signal.SIGTERM)
  ending.in_one_line(tmp_path)

  def said(error):
    sys.excepthook(type(error), error, error.__traceback__)
    return capsys.readouterr().err

  yield said
  signal.signal(signal.SIGTERM, before)


def caught(call):
  try:
    call()
  except BaseException as error:
    return error
  raise AssertionError("nothing was raised")


def test_what_the_user_can_mend_is_one_line_and_a_defect_is_not(hook, tmp_path):
  said = hook(caught(lambda: training.grid({"mass\nof": []})))
  assert said.count("\n") == 2  # the first ends a progress bar
  assert "ValueError: " in said
  assert "mass" in said
  said = hook(caught(lambda: (tmp_path / "none").read_text()))
  assert "FileNotFoundError: " in said
  assert f"goes on from what is kept in {tmp_path}" in said
  assert "Traceback" not in said
  said = f"\nstopped; the same command goes on from what is kept in {tmp_path}\n"
  assert hook(KeyboardInterrupt()) == said
  assert ending.one_line(ValueError("a  b:\n\n  c\r\n")) == "a  b: c"
  assert ending.one_line(EOFError()) == "EOFError"
  # A defect shows where it is.
  assert "Traceback" in hook(caught(lambda: np.zeros(2).reshape(3)))


def test_nothing_is_promised_where_nothing_is_kept(hook, tmp_path):
  (tmp_path / "kept").rmdir()
  (tmp_path / "results.json").write_text("{}")  # of an earlier run
  said = "\nstopped; nothing is kept yet; the same command begins anew\n"
  assert hook(KeyboardInterrupt()) == said


@pytest.mark.usefixtures("hook")
def test_errors_that_nobody_can_catch(monkeypatch):
  loop, told = asyncio.new_event_loop(), []
  loop.close()
  monkeypatch.setattr(sys, "__unraisablehook__", told.append)

  def is_told(error, trace=None):
    args = types.SimpleNamespace(
      exc_type=type(error), exc_value=error, exc_traceback=trace
    )
    sys.unraisablehook(args)
    return args in told

  error = caught(lambda: loop.call_soon_threadsafe(print))
  trace = error.__traceback__
  assert is_told(error, trace)  # a defect of ours
  while trace.tb_frame.f_code.co_name != "call_soon_threadsafe":
    trace = trace.tb_next
  assert not is_told(error, trace)
  assert is_told(RuntimeError("another one"), trace)
  given_again = queue.Queue()
  monkeypatch.setattr(_thread, "interrupt_main", given_again.put)
  for number, error in (
    (signal.SIGINT, KeyboardInterrupt()),
    (signal.SIGTERM, caught(lambda: signal.raise_signal(signal.SIGTERM))),
  ):
    assert not is_told(error)
    assert given_again.get(timeout=10) == number


@pytest.mark.parametrize(
  ("name", "said"), [("SIGTERM", "ended by SIGTERM"), ("SIGINT", "stopped")]
)
def test_a_signal_does_not_wait_for_trainings(name, said, tmp_path):
  number = getattr(signal, name)
  source = f"""
import os, pathlib, signal, time
from experiments.frame import at_once, ending

def train(seed):
  if seed == 0:
    os.kill(os.getpid(), {number:d})
  time.sleep(600)

signal.signal(signal.SIGINT, signal.default_int_handler)
ending.in_one_line(pathlib.Path({str(tmp_path)!r}))
at_once.threaded(train, range(8))
"""
  ended = subprocess.run(
    [sys.executable, "-c", source], cwd=ROOT, timeout=60, capture_output=True, text=True
  )
  advice = f"the same command goes on from what is kept in {tmp_path}"
  assert ended.stderr.endswith(f"\n{said}; {advice}\n")
  assert ended.returncode == -number


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_run_that_ends_while_it_loads_says_so(name, tmp_path):
  """Before jax is there: here the signal comes from what stands in its place."""
  number = getattr(signal, name)
  # Where a shell began the tests in the background, Ctrl-C is ignored.
  heed = "signal.signal(signal.SIGINT, signal.default_int_handler)"
  source = f"import os, signal\n{heed}\nos.kill(os.getpid(), {number:d})\n"
  (tmp_path / "jax.py").write_text(source)
  ended = subprocess.run(
    [sys.executable, "-m", "experiments.quickstart"], cwd=tmp_path, timeout=60,
    env=os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))},
    capture_output=True, text=True,
  )  # fmt: skip
  said = {"SIGTERM": "ended by SIGTERM", "SIGINT": "stopped"}[name]
  assert ended.stderr == f"\n{said}; nothing is lost; the same command starts again\n"
  assert ended.returncode == -number


@pytest.mark.parametrize("count", [1, 3, 4, 7, 13])
def test_blocks_give_what_all_rows_at_once_give(count):
  x = jnp.asarray(np.random.default_rng(0).normal(size=(count, 2, 3)), jnp.float32)
  sizes = []

  def fn(x):
    sizes.append(len(x))
    return {"square": x**2, "sum": x.sum((1, 2))}

  jax.tree.map(np.testing.assert_array_equal, at_once.mapped(fn, x, size=4), fn(x))
  assert 1 <= sizes[0] <= 4
  assert sizes[0] * -(-count // 4) - count < -(-count // 4)  # hardly any is filled up


def test_programs_are_dropped_after_every_few():
  traced = []

  @jax.jit
  def fn(x):
    traced.append(x)
    return x + 1

  assert at_once.in_turns(lambda x: int(fn(x)), range(17)) == [*range(1, 18)]
  assert len(traced) >= 3  # once in each turn

  def fails(x):
    assert x < 3
    done.append(x)

  done = []
  with pytest.raises(AssertionError):
    at_once.in_turns(fails, range(100))
  assert len(done) <= 3


@pytest.mark.parametrize(("given", "threads"), [(None, 1), ("2", 2)])
def test_decompositions_do_not_wait_for_threads(given, threads):
  """Entry points choose one thread before a BLAS is loaded, unless the user chose."""
  source = (
    "import sys; sys.argv = ['-m']; import experiments, scipy.linalg, threadpoolctl;"
    "print(*(x['num_threads'] for x in threadpoolctl.threadpool_info()"
    "  if x['internal_api'] == 'openblas'))"
  )
  surroundings = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
  if given:
    surroundings["OPENBLAS_NUM_THREADS"] = given
  told = subprocess.run(
    [sys.executable, "-c", source], env=surroundings, cwd=ROOT, capture_output=True,
    text=True, check=True, timeout=60,
  )  # fmt: skip
  assert {*map(int, told.stdout.split())} == {threads}
