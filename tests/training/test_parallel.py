"""Spreading rows over devices, and over processes."""

from unittest import mock

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
  assert (back["w"].tolist(), float(back["n"])) == ([0, 1], 1.5)


@pytest.mark.parametrize("size", [1, 3, 4, 5])
def test_padding_is_marked(size):
  batch = {"x": np.arange(10, 10 + size), "y": np.ones((size, 2))}
  padded, where = training.pad_rows(batch, 4)
  rows = 8 if size == 5 else 4
  assert where.tolist() == [row < size for row in range(rows)]
  assert padded["y"].shape == (rows, 2)
  expected = np.append(batch["x"], [10] * (rows - size))
  np.testing.assert_array_equal(padded["x"], expected)


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
  pad = mock.Mock(wraps=training.pad_rows)
  monkeypatch.setattr(_parallel, "pad_rows", pad)
  apply = training.parallel_map(lambda _, rows: rows + 1, batch_size=4)
  np.testing.assert_array_equal(apply((), np.arange(10)), np.arange(1, 11))
  assert [len(call.args[0]) for call in pad.call_args_list] == [4, 4, 2]
  with pytest.raises(ValueError, match="at least one row, got 0"):
    apply((), np.arange(0))


def test_copies_are_one_to_a_device_and_their_own():
  one = jnp.arange(3.0)
  copies = training.replicate({"w": one, "key": jax.random.key(3)})
  shards = copies["w"].addressable_shards
  assert [shard.device for shard in shards] == jax.devices()
  pointers = {shard.data.unsafe_buffer_pointer() for shard in shards}
  assert len(pointers | {one.unsafe_buffer_pointer()}) == 5
  assert copies["key"].shape == (4,)
  assert (copies["key"] == jax.random.key(3)).all()


def test_rows_of_the_only_process_and_of_one_of_two(monkeypatch):
  assert training.process_rows({"x": np.arange(3)})["x"].tolist() == [0, 1, 2]
  monkeypatch.setattr(jax, "process_count", lambda: 2)
  monkeypatch.setattr(jax, "process_index", lambda: 1)
  assert training.process_rows(np.arange(6)).tolist() == [3, 4, 5]
  with pytest.raises(ValueError, match="3 rows cannot be split evenly over 2 proc"):
    training.process_rows(np.arange(3))
