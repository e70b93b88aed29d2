"""Rows block by block, trainings a few at a time."""

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
