"""Rows block by block, trainings a few at a time."""

import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.frame import at_once


@pytest.mark.parametrize("count", [1, 3, 4, 7, 13])
def test_blocks_give_what_all_rows_at_once_give(count):
  rows = jnp.asarray(np.random.default_rng(0).normal(size=(count, 2, 3)), jnp.float32)
  sizes = []

  def fn(x):
    sizes.append(len(x))
    return {"square": x**2, "sum": x.sum((1, 2))}

  found, expected = at_once.mapped(fn, rows, size=4), fn(rows)
  for name, values in expected.items():
    np.testing.assert_array_equal(found[name], values)
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
    [sys.executable, "-c", source],
    env=surroundings,
    cwd=pathlib.Path(__file__).parents[2],
    capture_output=True,
    text=True,
    check=True,
    timeout=60,
  )
  assert {*map(int, told.stdout.split())} == {threads}
