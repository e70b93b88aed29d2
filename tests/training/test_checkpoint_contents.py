"""Whatever tree of arrays is saved comes back as it was, or is refused at once."""

import json
import pathlib

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest

from spherejax import training
from spherejax.training import _array_file, _manifest
from tests.training.trees import assert_same

ONE, TWO, THREE = (np.float32(number) for number in (1, 2, 3))

TREES = {
  "a point in a name": {"a": {"b": ONE}, "a.b": TWO},
  "points below": {"a": {"b": {"c": ONE}, "b.c": TWO}, "a.b": {"c": THREE}},
  "empty names": {"": ONE, " ": TWO, "a": {"": THREE}, "a.": ONE},
  "slashes": {"a": {"b": ONE}, "a/b": TWO, "/": THREE},
  "places and names": {"a": [ONE, TWO], "a.0": THREE},
  "numbers as names": {"a": {1: ONE, 2: TWO}, "a.1": THREE},
  "two ways to write one letter": {
    "\N{LATIN SMALL LETTER E WITH ACUTE}": ONE,
    "e\N{COMBINING ACUTE ACCENT}": TWO,
  },
  "no letter": {"\udcff": ONE, "\n": TWO, "\0": THREE},
  "a long name": {"x" * 5000: ONE},
  "nothing": {"a": None, "b": ONE, "c": {}, "d": ()},
}

LEAVES = {
  "int64": np.array([2**40, -(2**62)]),
  "int64 scalar": np.int64(2**40),
  "uint64": np.uint64(2**63 + 1),
  "float64": np.array([0.1, 1e300]),
  "complex128": np.complex128(0.1 + 2j),
  "complex64": jnp.array([1 + 2j]),
  "bfloat16": ml_dtypes.bfloat16(1.5),
  "float16": np.array([np.inf, np.nan, -0.0], np.float16),
  "float8": jnp.array([1, 2, 3], jnp.float8_e4m3fn),
  "int4": jnp.array([1, -2], jnp.int4),
  "uint8": np.array([0, 255], np.uint8),
  "bool": np.array([True, False]),
  "scalar": jnp.float32(2),
  "no entry": np.zeros((0, 3), np.float32),
  "no column": jnp.zeros((3, 0)),
  "no int64": np.zeros(0, np.int64),
  "no key": jax.random.split(jax.random.key(0), 3)[:0],
  "keys": jax.random.split(jax.random.key(1, impl="rbg"), 2),
  "columns first": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
  "every second": np.arange(10)[::-2],
}
TREES |= {name: {"x": leaf} for name, leaf in LEAVES.items()}


def saved_and_restored(folder, tree):
  state = {"step": jnp.int32(3)} | tree
  with training.Checkpoints(folder) as checkpoints:
    checkpoints.save(state)
  with training.Checkpoints(folder) as checkpoints:
    restored = checkpoints.restore(state).state
  restored.pop("step")
  return restored


@pytest.mark.parametrize("name", TREES)
def test_trees(name, tmp_path):
  assert_same(saved_and_restored(tmp_path, TREES[name]), TREES[name])


def test_the_order_of_bytes_is_no_part_of_a_value(tmp_path):
  tree = {"x": np.array([1, 2**40], ">i8"), "y": np.array([1.5], ">f4")}
  restored = saved_and_restored(tmp_path, tree)
  jax.tree.map(np.testing.assert_array_equal, restored, tree)


TWICE = {"a": {"b": ONE}, "a.b": TWO, "['a']['b']": THREE}


@pytest.mark.parametrize(
  ("tree", "kind", "message"),
  [
    (TWICE, ValueError, r"a name of its own for each array, got .* twice"),
    ({"x": 2**40}, TypeError, "1099511627776 as x; np.asarray"),
    ({"x": 0.1}, TypeError, "got 0.1 as x"),
    ({"x": True}, TypeError, "got True as x"),
    ({"x": "text"}, TypeError, "got 'text' as x"),
    ({"x": np.array("text")}, TypeError, "arrays of numbers, got <U4 as x"),
    ({"x": np.array([None])}, TypeError, "arrays of numbers, got object as x"),
    ({"x": np.datetime64("2020-01-01")}, TypeError, r"got datetime64\[D\] as x"),
    ({"x": np.timedelta64(1, "s")}, TypeError, r"got timedelta64\[s\] as x"),
    ({"x": np.longdouble(1)}, TypeError, "arrays of numbers, got .* as x"),
    ({"x": np.zeros(2, [("a", "f4")])}, TypeError, "arrays of numbers, got .* as x"),
    ({"step": np.int32(-1)}, ValueError, "at least 0, got -1"),
    ({"step": np.zeros(1, np.int32)}, ValueError, "an integer named step"),
    ({"step": np.float32(1)}, ValueError, "an integer named step"),
  ],
)
def test_what_is_refused_at_save(tree, kind, message, tmp_path):
  with training.Checkpoints(tmp_path) as checkpoints:
    with pytest.raises(kind, match=message):
      checkpoints.save({"step": jnp.int32(3)} | tree)
    assert checkpoints.latest_step() is None


@pytest.mark.parametrize(
  ("record", "name"),
  [
    ({"a": {1: 2, "1": 3}}, "'1'"),
    ({"cells": [{"a": {None: 1, "null": 2}}]}, "'null'"),
    ({"a": {1.0: 1, "1.0": 2}}, "'1.0'"),
    ({"a": {True: 1, "true": 2}}, "'true'"),
  ],
)
def test_names_that_json_makes_the_same(record, name, tmp_path):
  refused = pytest.raises(ValueError, match=f"two names that JSON writes as {name}")
  with training.Checkpoints(tmp_path) as checkpoints, refused:
    checkpoints.save({"step": jnp.int32(3)}, record)


def test_a_step_of_64_bits(tmp_path):
  state = {"step": np.int64(2**40)}
  with training.Checkpoints(tmp_path) as checkpoints:
    checkpoints.save(state)
    assert checkpoints.latest_step() == 2**40
    assert checkpoints.restore(state).state == state


DAMAGES = {
  "one bit": ("state/arrays", lambda content: content[:-1] + bytes([content[-1] ^ 1])),
  "cut": ("state/arrays", lambda content: content[:-1]),
  "more": ("state/arrays", lambda content: content + b"0"),
  "removed": ("state/arrays", None),
  "manifest": (
    "manifest/metadata",
    lambda content: json.dumps(json.loads(content) | {"record": {"a": 2}}).encode(),
  ),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("step", [1, 2])
def test_a_save_that_cannot_be_read_back_is_none(tmp_path, monkeypatch, damage, step):
  """Even with one checkpoint to keep, the one before stays until that is known."""
  save = ocp.CheckpointManager.save

  def damaged(manager, number, **options):
    saved = save(manager, number, **options)
    name, change = DAMAGES[damage]
    path = pathlib.Path(manager.directory, str(number), name)
    content = path.read_bytes()
    path.unlink()
    if change is not None:
      path.write_bytes(change(content))
    return saved

  first = {"step": jnp.int32(1), "x": jnp.arange(3)}
  second = {"step": jnp.int32(step), "x": jnp.arange(3) + 1}
  with training.Checkpoints(tmp_path, keep=1) as checkpoints:
    checkpoints.save(first)
    with monkeypatch.context() as patch:
      patch.setattr(ocp.CheckpointManager, "save", damaged)
      with pytest.raises(OSError, match=rf"step {step} could.*that of step 1 is intac"):
        checkpoints.save(second)
    np.testing.assert_array_equal(checkpoints.restore(first).state["x"], first["x"])
    checkpoints.save(second)
    np.testing.assert_array_equal(checkpoints.restore(first).state["x"], second["x"])
  assert [path.name for path in (tmp_path / "last").iterdir()] == [str(step)]


def test_checkpoints_in_files_of_tensorstore_are_read(tmp_path):
  """The second layout."""
  state = {"step": jnp.int32(3), "x": jnp.arange(3.0), "key": jax.random.key(1)}
  arrays = _manifest.to_host(state)
  manifest = {
    "format": 2,
    "arrays": _manifest.describe(state),
    "checksum": _manifest.checksum(sorted(arrays.items())),
    "record": {"note": "old"},
  }
  manifest["seal"] = _manifest.seal(manifest)
  args = ocp.args
  items = {"state": args.StandardSave(arrays), "manifest": args.JsonSave(manifest)}
  with ocp.CheckpointManager(tmp_path / "last", item_names=tuple(items)) as old:
    old.save(3, args=args.Composite(**items))
  with training.Checkpoints(tmp_path) as checkpoints:
    restored = checkpoints.restore(state)
    assert restored.record == {"note": "old"}
    assert_same(restored.state, state)
    checkpoints.save(state | {"step": jnp.int32(4)})
    assert int(checkpoints.restore(state).state["step"]) == 4


def test_the_bytes_of_an_array_are_those_of_its_entries():
  x = np.arange(6, dtype=np.int16).reshape(2, 3).T
  assert _array_file.raw(x).tobytes() == x.tobytes()


def test_a_layout_of_a_later_version_is_left_where_it_is(tmp_path):
  state = {"step": jnp.int32(3)}
  with training.Checkpoints(tmp_path) as checkpoints:
    checkpoints.save(state)
  path = tmp_path / "last" / "3" / "manifest" / "metadata"
  manifest = json.loads(path.read_text()) | {"format": 99}
  path.write_text(json.dumps(manifest | {"seal": _manifest.seal(manifest)}))
  with training.Checkpoints(tmp_path) as checkpoints:
    with pytest.raises(ValueError, match=r"has layout 99.*install a newer one"):
      checkpoints.restore(state)
    assert checkpoints.latest_step() == 3
