"""Spreading rows over devices, and means over unevenly kept rows."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import training
from spherejax.training import _parallel


def test_shard_and_replicate():
  batch = {"x": np.arange(24.0).reshape(8, 3), "y": np.arange(8)}
  parts = training.shard(batch)
  assert parts["x"].shape == (4, 2, 3)
  np.testing.assert_array_equal(parts["x"].reshape(8, 3), batch["x"])
  places = {shard.device: shard.data for shard in parts["y"].addressable_shards}
  assert set(places) == set(jax.devices())
  assert places[jax.devices()[2]].tolist() == [[4, 5]]
  tree = {"key": jax.random.key(3), "w": jnp.arange(2.0), "n": 1.5}
  copies = training.replicate(tree, devices=jax.devices()[:2])
  assert copies["w"].shape == (2, 2)
  back = training.unreplicate(copies)
  assert back["key"] == tree["key"]
  assert back["w"].tolist() == [0, 1]
  assert float(back["n"]) == 1.5


def test_batches_that_do_not_divide():
  with pytest.raises(ValueError, match=r"6 rows does not divide over 4 .*pad_rows"):
    training.shard(np.arange(6))
  with pytest.raises(ValueError, match="0 rows"):
    training.shard(np.zeros((0, 2)))
  with pytest.raises(ValueError, match=r"same length, got shapes \[\(4,\), \(5,\)\]"):
    training.shard((np.zeros(4), np.zeros(5)))
  with pytest.raises(ValueError, match="first axis"):
    training.shard(np.float32(1))


@pytest.mark.parametrize("size", [1, 3, 4, 5])
def test_padding_is_marked(size):
  batch = {"x": np.arange(10, 10 + size), "y": np.ones((size, 2))}
  padded, where = training.pad_rows(batch, 4)
  assert where.tolist() == [row < size for row in range(len(where))]
  assert len(where) == (8 if size == 5 else 4)
  assert padded["y"].shape == (len(where), 2)
  np.testing.assert_array_equal(padded["x"][where], batch["x"])
  assert set(padded["x"][~where]) <= {10}


def test_padding_needs_a_row():
  with pytest.raises(ValueError, match="at least one row, got 0"):
    training.pad_rows(np.zeros((0, 2)), 4)
  with pytest.raises(ValueError, match="multiple must be at least 1, got 0"):
    training.pad_rows(np.zeros(2), 0)


@pytest.mark.parametrize("batch_size", [3, 4, 16])
def test_map_over_a_data_set(batch_size):
  traces = []

  def fn(variables, rows):
    traces.append(rows["x"].shape)
    return {"sum": rows["x"].sum(axis=1) * variables, "x": rows["x"]}

  rows = {"x": np.arange(26, dtype=np.float32).reshape(13, 2)}
  result = training.parallel_map(fn, batch_size=batch_size)(jnp.float32(2), rows)
  np.testing.assert_array_equal(result["sum"], 2 * rows["x"].sum(axis=1))
  np.testing.assert_array_equal(result["x"], rows["x"])
  assert len(traces) == 1
  assert traces[0][0] * 4 >= batch_size  # rounded up to the devices


def test_map_pads_the_last_batch_alone(monkeypatch):
  padded = []

  def noted(batch, multiple):
    padded.append(len(batch))
    return pad_rows(batch, multiple)

  pad_rows = _parallel.pad_rows
  monkeypatch.setattr(_parallel, "pad_rows", noted)
  apply = training.parallel_map(lambda _, rows: rows + 1, batch_size=4)
  np.testing.assert_array_equal(apply((), np.arange(10)), np.arange(1, 11))
  assert padded == [4, 4, 2]
  with pytest.raises(ValueError, match="at least one row, got 0"):
    apply((), np.arange(0))


def test_copies_are_one_to_a_device_and_their_own():
  one = jnp.arange(3.0)
  copies = training.replicate({"w": one, "key": jax.random.key(3)})
  places = [shard.device for shard in copies["w"].addressable_shards]
  assert places == jax.devices()
  pointers = {
    shard.data.unsafe_buffer_pointer() for shard in copies["w"].addressable_shards
  }
  assert len(pointers | {one.unsafe_buffer_pointer()}) == 5
  assert copies["key"].shape == (4,)
  assert (copies["key"] == jax.random.key(3)).all()


VALUES = np.array([1.0, np.nan, 4.0, 2.0, 7.0, np.nan, np.inf, np.nan], np.float32)
KEPT = np.array([1, 0, 1, 1, 1, 0, 0, 0], bool)  # 1, 2, 1 and 0 on the devices


def mean_of_squares(scale, axis_name, values, where):
  """Mean over the kept of (scale v)^2, as a device's share; others are NaN, inf."""
  squares = (scale * jnp.where(where, values, 0)) ** 2
  squares = jnp.where(where, squares, values)
  return training.global_mean(squares, where, axis_name=axis_name)


def test_global_mean_of_unevenly_kept_rows():
  share = jax.value_and_grad(mean_of_squares)

  def mapped(values, where):
    return jax.lax.pmean(share(3.0, "batch", values, where), "batch")

  value, gradient = jax.jit(jax.vmap(mapped, axis_name="batch"))(
    VALUES.reshape(4, 2), KEPT.reshape(4, 2)
  )
  mean = np.mean([v**2 for v in (1.0, 4.0, 2.0, 7.0)])
  np.testing.assert_allclose(value, 9 * mean, rtol=1e-6)
  np.testing.assert_allclose(gradient, 6 * mean, rtol=1e-6)
  one = share(3.0, None, VALUES, KEPT)
  np.testing.assert_allclose(one, (9 * mean, 6 * mean), rtol=1e-6)


def test_global_mean_of_nothing_is_zero():
  values = jnp.full(4, jnp.nan)
  nothing = jnp.zeros(4, bool)
  value, gradient = jax.value_and_grad(training.global_mean)(values, nothing)
  assert float(value) == 0
  assert gradient.tolist() == [0, 0, 0, 0]
  # Half precision is added up in float32: 2049 is no bfloat16 or float16.
  ones = jnp.ones(2049, jnp.float16)
  assert training.global_mean(ones) == 1
  assert training.global_mean(ones).dtype == jnp.float16


def test_global_mean_of_bad_arguments(unchecked):
  with pytest.raises(TypeError, match="values must be floating, got dtype int32"):
    training.global_mean(jnp.arange(3))
  with pytest.raises(ValueError, match=r"values must have 1 axes, got shape \(2, 2\)"):
    training.global_mean(jnp.ones((2, 2)))
  with pytest.raises(ValueError, match=r"where must have shape \(3,\), got \(2,\)"):
    training.global_mean(jnp.ones(3), jnp.ones(2, bool))


def test_gather_sends_gradients_back():
  weights = jnp.arange(1.0, 5.0)

  def local(x):
    everything = training.gather({"x": x}, "batch")["x"]
    mine = jax.lax.axis_index("batch")
    return jnp.sum(everything) * weights[mine]

  rows = jnp.ones((4, 1))
  gradient = jax.vmap(jax.grad(local), axis_name="batch")(rows)
  np.testing.assert_allclose(gradient, np.full((4, 1), 10.0))  # 1 + 2 + 3 + 4
  assert training.gather(rows, None) is rows


def test_device_mean_leaves_integers_alone():
  tree = {"f": jnp.array([1.0, 2, 3, 6]), "i": jnp.array([1, 1, 1, 1])}
  mean = functools.partial(_parallel.device_mean, axis_name="batch")
  result = jax.vmap(mean, axis_name="batch")(tree)
  assert result["f"].tolist() == [3, 3, 3, 3]
  assert result["i"].dtype == jnp.int32
  assert _parallel.device_mean(tree, None) is tree


def test_rows_of_the_only_process():
  batch = {"x": np.arange(3)}
  assert training.process_rows(batch)["x"].tolist() == [0, 1, 2]


def test_processes_that_do_not_divide_the_batch(monkeypatch):
  monkeypatch.setattr(jax, "process_count", lambda: 2)
  monkeypatch.setattr(jax, "process_index", lambda: 1)
  assert training.process_rows(np.arange(6)).tolist() == [3, 4, 5]
  with pytest.raises(ValueError, match="3 rows does not divide over 2 processes"):
    training.process_rows(np.arange(3))
