"""Checkpoints: every bit comes back, damage is noticed, nothing good is lost.

Whatever tree of arrays is saved comes back as it was, or is refused at once.
"""

import contextlib
import functools
import json
import logging
import pathlib
import resource
import shutil
from unittest import mock

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from spherejax import training
from spherejax.training import _array_file, _manifest
from tests import refusals
from tests.training.trees import assert_same, bits

OPTIMIZER = optax.adam(1e-2)


def state_at(step, *, width=3, names=("kernel", "bias"), impl="threefry2x32"):
  rng = np.random.default_rng(step)
  kernel, bias = rng.normal(size=(40, width)), rng.normal(size=width)
  params = {names[0]: jnp.float32(kernel), names[1]: jnp.bfloat16(bias)}
  network = {"params": params, "batch_stats": {"mean": jnp.asarray(rng.normal(size=4))}}
  loss = {"params": {"proxies": jnp.asarray(rng.normal(size=(5, width)))}}
  key = jax.random.key(step, impl=impl)
  state = training.create_state(key, OPTIMIZER, network, loss)
  return state.replace(step=jnp.int32(step))


def save_steps(folder, *steps):
  with training.Checkpoints(folder, keep=2) as checkpoints:
    for step in steps:
      checkpoints.save(state_at(step), {"loss": 0.25})


def assert_restored(checkpoints, step):
  assert bits(checkpoints.restore(state_at(0)).state) == bits(state_at(step))


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
@pytest.mark.parametrize("abstract", [False, True])
def test_every_bit_comes_back(tmp_path, impl, abstract):
  saved = state_at(7, impl=impl)
  record = {"curve": [{"step": 5, "loss": 0.1 + 0.2}], "none": None, "best": -np.inf}
  with training.Checkpoints(tmp_path) as checkpoints:
    assert checkpoints.restore(saved) is None
    assert checkpoints.latest_step() is None
    checkpoints.save(saved, record)
  like = state_at(0, impl=impl)
  like = jax.eval_shape(lambda: like) if abstract else like
  with training.Checkpoints(tmp_path) as checkpoints:
    restored = checkpoints.restore(like)
  assert restored.record == record
  assert_same(restored.state, saved)
  jax.random.normal(restored.state.key)  # a typed key of the same kind


def test_newest_ones_and_the_best_are_kept(tmp_path):
  with training.Checkpoints(tmp_path, keep=2) as checkpoints:
    for step in (1, 2, 3):
      checkpoints.save(state_at(step))
    checkpoints.save_best(state_at(2), {"score": 0.5})
    checkpoints.save_best(state_at(1), {"score": 0.7})  # a run that went back
    assert checkpoints.latest_step() == 3
    assert int(checkpoints.restore(state_at(0)).state.step) == 3
    best = checkpoints.restore_best(state_at(0))
  assert int(best.state.step) == 1
  assert best.record == {"score": 0.7}
  assert sorted(path.name for path in (tmp_path / "last").iterdir()) == ["2", "3"]
  assert [path.name for path in (tmp_path / "best").iterdir()] == ["1"]


def test_what_was_just_saved_stays_in_a_run_that_went_back(tmp_path):
  save_steps(tmp_path, 10, 20, 3)
  assert sorted(int(path.name) for path in (tmp_path / "last").iterdir()) == [3, 10, 20]


def test_checkpoint_of_another_model(tmp_path):
  proxies = r"params\.loss\.proxies is float32\[5, 3\] there and float32\[5, 4\] here"
  kernel = r"params\.network\.kernel is float32\[40, 3\] there and absent here"
  with training.Checkpoints(tmp_path) as checkpoints:
    checkpoints.save(state_at(3))
    for changed, message in (
      ({"width": 4}, proxies),
      ({"names": ("weight", "bias")}, rf"{kernel}.*; and \d+ m"),
      ({"impl": "rbg"}, r"key is uint32\[2\] there and uint32\[4\] here"),
    ):
      with pytest.raises(ValueError, match=r"belongs to another model.*" + message):
        checkpoints.restore(state_at(0, **changed))
      assert checkpoints.latest_step() == 3  # it is not damaged, and stays


def files_of(folder):
  return [path for path in sorted(folder.rglob("*")) if path.is_file()]


def damage_truncate(folder):
  """Halves every file, as a full disk or a crash may leave them."""
  for path in files_of(folder):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def damage_one_bit(folder):
  """Flips a bit in the largest file, which holds the largest arrays."""
  path = max(files_of(folder / "state"), key=lambda path: path.stat().st_size)
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 1
  path.write_bytes(bytes(content))


def damage_remove_manifest(folder):
  for path in files_of(folder / "manifest"):
    path.unlink()


def damage_mix(folder):
  """Puts another step's arrays, whole in themselves, into the checkpoint."""
  shutil.rmtree(folder / "state")
  shutil.copytree(folder.with_name("10") / "state", folder / "state")


def damage_words(old, new, folder):
  """Damages a manifest that is still JSON."""
  path = folder / "manifest" / "metadata"
  text = path.read_text()
  assert old in text
  path.write_text(text.replace(old, new, 1))


DAMAGES = [damage_truncate, damage_one_bit, damage_remove_manifest, damage_mix]
# Another number, another type, no seal.
WORDS = ("0.25", "0.75"), ('"float32"', '"float64"'), ('"seal"', '"soal"')
DAMAGES += [functools.partial(damage_words, *words) for words in WORDS]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_checkpoint_falls_back_to_the_one_before(tmp_path, caplog, damage):
  save_steps(tmp_path, 10, 20)
  damage(tmp_path / "last" / "20")
  with training.Checkpoints(tmp_path) as checkpoints:
    assert_restored(checkpoints, 10)
    assert "of step 20 is unreadable" in caplog.text
    assert "trying step 10" in caplog.text
    assert (tmp_path / "unreadable" / "last-20").is_dir()
    checkpoints.save(state_at(15))
    checkpoints.save(state_at(20))
    assert_restored(checkpoints, 20)


def test_no_readable_checkpoint(tmp_path):
  save_steps(tmp_path, 10, 20)
  for step in ("10", "20"):
    damage_truncate(tmp_path / "last" / step)
  message = r"none of the checkpoints .*last-10, last-20"
  refused = pytest.raises(RuntimeError, match=message)
  with training.Checkpoints(tmp_path) as checkpoints, refused:
    checkpoints.restore(state_at(0))
  # Nor does the next start take the empty folder for that of a new run.
  with training.Checkpoints(tmp_path) as checkpoints:
    with pytest.raises(RuntimeError, match="remove them to begin anew"):
      checkpoints.restore(state_at(0))
    assert checkpoints.restore_best(state_at(0)) is None
    shutil.rmtree(tmp_path / "unreadable")
    assert checkpoints.restore(state_at(0)) is None


ERRORS = [MemoryError("out of memory"), PermissionError(13, "denied")]
ERRORS += [ValueError("PERMISSION_DENIED: Error opening zarr array")]


@pytest.mark.parametrize("error", ERRORS)
def test_what_is_no_damage_is_left_in_its_place(tmp_path, monkeypatch, error):
  fail = mock.Mock(side_effect=error)
  with training.Checkpoints(tmp_path) as checkpoints:
    checkpoints.save(state_at(10))
    with monkeypatch.context() as patched:
      patched.setattr(checkpoints._series["last"], "restore", fail)
      with pytest.raises(type(error), match=str(error.args[-1])):
        checkpoints.restore(state_at(0))
    assert_restored(checkpoints, 10)


def test_names_that_are_numbers_become_text(tmp_path):
  with training.Checkpoints(tmp_path) as checkpoints:
    checkpoints.save(state_at(10), {"by step": {10: 1.5, 9: (-np.inf, None)}})
    record = checkpoints.restore(state_at(0)).record
    assert list(record["by step"]) == ["10", "9"]
    assert record["by step"]["9"] == [-np.inf, None]


def test_the_first_layout_is_read_and_a_later_layout_stays_where_it_is(tmp_path):
  save_steps(tmp_path, 10)
  path = tmp_path / "last" / "10" / "manifest" / "metadata"
  manifest = json.loads(path.read_text())
  del manifest["seal"]
  path.write_text(json.dumps(manifest | {"format": 1}))
  with training.Checkpoints(tmp_path) as checkpoints:
    assert checkpoints.restore(state_at(0)).record == {"loss": 0.25}
    assert_restored(checkpoints, 10)
  manifest["format"] = 99
  path.write_text(json.dumps(manifest | {"seal": _manifest.seal(manifest)}))
  with training.Checkpoints(tmp_path) as checkpoints:
    with pytest.raises(ValueError, match=r"has layout 99.*install a newer one"):
      checkpoints.restore(state_at(0))
    assert checkpoints.latest_step() == 10


@contextlib.contextmanager
def files_limited_to(size):
  """Every write beyond this many bytes of a file fails, as when the disk fills up."""
  before = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
  try:
    yield
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


# Threads of the failed save outlive it and complain on their own.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_failing_write_leaves_the_earlier_checkpoint(tmp_path):
  with training.Checkpoints(tmp_path) as checkpoints:
    checkpoints.save(state_at(10))
    message = r"step 20 could not be written .*step 10 is intact"
    with files_limited_to(300), pytest.raises(OSError, match=message):
      checkpoints.save(state_at(20))
    assert checkpoints.latest_step() == 10
    assert_restored(checkpoints, 10)
  with training.Checkpoints(tmp_path) as checkpoints:  # there is space again
    assert checkpoints.latest_step() == 10
    checkpoints.save(state_at(20))
    assert_restored(checkpoints, 20)


@pytest.mark.parametrize("series", ["last", "best"])
def test_a_step_is_replaced_only_by_one_that_is_whole(tmp_path, monkeypatch, series):
  other = state_at(4).replace(learning_rate_scale=jnp.float32(0.5))
  kind = {"last": "", "best": "_best"}[series]
  killed = mock.Mock(side_effect=KeyboardInterrupt)
  with training.Checkpoints(tmp_path) as checkpoints:
    save, restore = (getattr(checkpoints, f"{x}{kind}") for x in ("save", "restore"))
    save(state_at(4))
    usage = shutil.disk_usage(tmp_path)
    with monkeypatch.context() as patched:
      patched.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100))
      with pytest.raises(OSError, match="that of step 4 is intact"):
        save(other)
    assert bits(restore(state_at(0)).state) == bits(state_at(4))
    monkeypatch.setattr(checkpoints._series[series], "save", killed)
    with pytest.raises(KeyboardInterrupt):
      save(other)
  with training.Checkpoints(tmp_path) as checkpoints:  # the next start
    save, restore = (getattr(checkpoints, f"{x}{kind}") for x in ("save", "restore"))
    assert bits(restore(state_at(0)).state) == bits(state_at(4))
    save(other)
    assert bits(restore(state_at(0)).state) == bits(other)
  assert sorted(path.name for path in tmp_path.iterdir()) == ["best", "last"]


def test_full_disk_is_noticed_before_writing(tmp_path, monkeypatch):
  with training.Checkpoints(tmp_path) as checkpoints:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100))
    with pytest.raises(OSError, match=r"\(no earlier one\): no space left .* 100 free"):
      checkpoints.save(state_at(1))
    assert list((tmp_path / "last").iterdir()) == []
    with monkeypatch.context() as patched:
      patched.setattr(shutil, "disk_usage", lambda _: usage)
      checkpoints.save(state_at(1))
    for save in (checkpoints.save, checkpoints.save_best):
      with pytest.raises(OSError, match=r"step 2 could .*that of step 1 is intact"):
        save(state_at(2))


def test_a_failed_save_is_said_once(tmp_path, monkeypatch, caplog):
  log = logging.getLogger("absl")

  def fail(*_, **__):
    log.error("[thread=write] _SignalingThread.run() raised an exception: disk is full")
    log.error("something else")
    raise ValueError("disk is full")

  with training.Checkpoints(tmp_path) as checkpoints:
    with monkeypatch.context() as patched:
      patched.setattr(ocp.CheckpointManager, "save", fail)
      with pytest.raises(OSError, match=r"step 1 could not be .* disk is full"):
        checkpoints.save(state_at(1))
    checkpoints.save(state_at(1))
  assert "something else" in caplog.text
  assert "_SignalingThread" not in caplog.text
  log.error("_SignalingThread of somebody else")
  assert "_SignalingThread" in caplog.text


def test_leftovers_of_a_killed_save_are_removed(tmp_path):
  save_steps(tmp_path, 10)
  leftover = tmp_path / "last" / "20.orbax-checkpoint-tmp"
  (leftover / "state").mkdir(parents=True)
  with training.Checkpoints(tmp_path) as checkpoints:
    assert checkpoints.latest_step() == 10
    assert not leftover.exists()


# --- Any tree of arrays ---

ONE, TWO, THREE = (np.float32(number) for number in (1, 2, 3))

TREES = {
  "a point in a name": {"a": {"b": ONE}, "a.b": TWO},
  "points below": {"a": {"b": {"c": ONE}, "b.c": TWO}, "a.b": {"c": THREE}},
  "empty names": {"": ONE, " ": TWO, "a": {"": THREE}, "a.": ONE},
  "slashes": {"a": {"b": ONE}, "a/b": TWO, "/": THREE},
  "places and names": {"a": [ONE, TWO], "a.0": THREE},
  "numbers as names": {"a": {1: ONE, 2: TWO}, "a.1": THREE},
  "two ways to write one letter": {"\xe9": ONE, "e\u0301": TWO},
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
SAME = "two names that JSON writes as "
# Trees and records.
REFUSED = [
  (TWICE, {}, r"a name of its own for each array, got .* twice"),
  ({"x": 2**40}, {}, "TypeError: 1099511627776 as x; np.asarray"),
  ({"x": 0.1}, {}, "TypeError: got 0.1 as x"),
  ({"x": True}, {}, "TypeError: got True as x"),
  ({"x": "text"}, {}, "TypeError: got 'text' as x"),
  ({"x": np.array("text")}, {}, "TypeError: arrays of numbers, got <U4 as x"),
  ({"x": np.array([None])}, {}, "TypeError: arrays of numbers, got object as x"),
  ({"x": np.datetime64("2020-01-01")}, {}, r"TypeError: got datetime64\[D\] as x"),
  ({"x": np.timedelta64(1, "s")}, {}, r"TypeError: got timedelta64\[s\] as x"),
  ({"x": np.longdouble(1)}, {}, "TypeError: arrays of numbers, got .* as x"),
  ({"x": np.zeros(2, [("a", "f4")])}, {}, "TypeError: arrays of numbers, got .* as x"),
  ({"step": np.int32(-1)}, {}, "at least 0, got -1"),
  ({"step": np.zeros(1, np.int32)}, {}, "an integer named step"),
  ({"step": np.float32(1)}, {}, "an integer named step"),
  ({}, {"state": np.zeros(3)}, "TypeError: not JSON serializable"),
  ({}, {"a": {1: 2, "1": 3}}, SAME + "'1'"),
  ({}, {"cells": [{"a": {None: 1, "null": 2}}]}, SAME + "'null'"),
  ({}, {"a": {1.0: 1, "1.0": 2}}, SAME + "'1.0'"),
  ({}, {"a": {True: 1, "true": 2}}, SAME + "'true'"),
]


@pytest.mark.parametrize(("tree", "record", "message"), REFUSED)
def test_what_is_refused_at_save(tree, record, message, tmp_path):
  state = {"step": jnp.int32(3)} | tree
  with training.Checkpoints(tmp_path) as checkpoints:
    refusals.check(lambda: checkpoints.save(state, record), message)
    assert checkpoints.latest_step() is None


def test_a_step_of_64_bits(tmp_path):
  state = {"step": np.int64(2**40)}
  with training.Checkpoints(tmp_path) as checkpoints:
    checkpoints.save(state)
    assert checkpoints.latest_step() == 2**40
    assert checkpoints.restore(state).state == state


SPOILED = {
  "one bit": ("state/arrays", lambda content: content[:-1] + bytes([content[-1] ^ 1])),
  "cut": ("state/arrays", lambda content: content[:-1]),
  "more": ("state/arrays", lambda content: content + b"0"),
  "removed": ("state/arrays", None),
  "manifest": (
    "manifest/metadata",
    lambda content: json.dumps(json.loads(content) | {"record": {"a": 2}}).encode(),
  ),
}


@pytest.mark.parametrize("damage", SPOILED)
@pytest.mark.parametrize("step", [1, 2])
def test_a_save_that_cannot_be_read_back_is_none(tmp_path, monkeypatch, damage, step):
  """Even with one checkpoint to keep, the one before stays until that is known."""
  save = ocp.CheckpointManager.save

  def damaged(manager, number, **options):
    saved = save(manager, number, **options)
    name, change = SPOILED[damage]
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
