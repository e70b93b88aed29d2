"""Checkpoints of a run: atomic, verified, the newest ones and the best."""

import contextlib
import logging
import os
import pathlib
import shutil
import threading
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

from spherejax import _checks
from spherejax.training import _manifest
from spherejax.training._manifest import State

_logger = logging.getLogger(__name__)


# Also written into each checkpoint: a later layout can tell which one it reads. The
# first one had no seal over what stands beside the arrays.
_FORMAT, _UNSEALED = 2, 1

_REPLACED = ".replaced"
# Bytes that are written beside those of arrays: for each, and in a dozen files.
_ARRAY, _FILES = 512, 2**16
# What tensorstore says where another start, with more rights or memory, may succeed.
_NO_DAMAGE = ("PERMISSION_DENIED", "RESOURCE_EXHAUSTED")


class Restored(NamedTuple):
  """What `Checkpoints.restore` found.

  Attributes:
    state: the train state, on the default device.
    record: what was stored beside it.
  """

  state: State
  record: dict[str, Any]


class _UnreadableError(Exception):
  """A checkpoint whose files are damaged or missing."""


class Checkpoints:
  """The checkpoints of one run, in one folder; a context manager.

  A checkpoint is written under a temporary name and renamed when it is complete, so
  a process killed while writing leaves the earlier ones as they were. Checksums over
  all arrays and over what stands beside them are stored with it and compared on
  reading. The folder `last` holds the newest `keep` checkpoints, `best` the best one
  and what was the best when each of those was written.

  Args:
    directory: folder of the run; made if missing.
    keep: static. Number of newest checkpoints to keep, at least 2 if a damaged one
      is to have one before it.

  Raises:
    ValueError: keep below 1.
    TypeError: directory is no path, keep no integer.

  Cost: a copy of the state on the host, and writing it. Saving waits until the
  checkpoint is complete.

  Source: `orbax.checkpoint.CheckpointManager`.

  Example:
    >>> import optax
    >>> import tempfile
    >>> optimizer = optax.sgd(0.1)
    >>> variables = {"params": {"kernel": jnp.ones((2, 2))}}
    >>> state = spherejax.training.create_state(
    ...     jax.random.key(0), optimizer, variables
    ... )
    >>> with spherejax.training.Checkpoints(tempfile.mkdtemp()) as checkpoints:
    ...   checkpoints.save(state, {"note": "start"})
    ...   checkpoints.restore(state).record
    {'note': 'start'}
  """

  def __init__(self, directory: str | os.PathLike[str], *, keep: int = 2):
    _checks.path("directory", directory)
    _checks.count("keep", keep)
    self.directory = pathlib.Path(directory).absolute()
    _put_back(self.directory)
    self._series = {
      "last": _manager(self.directory / "last", keep),
      "best": _manager(self.directory / "best", None),
    }

  def __enter__(self) -> "Checkpoints":
    return self

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
  ):
    self.close()

  def close(self):
    """Releases what the managers hold; nothing is left to be written."""
    for manager in self._series.values():
      manager.close()

  def latest_step(self) -> int | None:
    """The newest checkpoint's step; None when there is none."""
    return self._series["last"].latest_step()

  def best_step(self) -> int | None:
    """The best checkpoint's step; None when there is none."""
    return self._series["best"].latest_step()

  def save(self, state: State, record: Mapping[str, Any] | None = None):
    """Writes a checkpoint of this state, named after its step.

    Args:
      state: not replicated.
      record: what else a resumed run must know, as JSON values.

    Raises:
      OSError: it could not be written (a full disk, say). The message names the
        newest checkpoint that exists; it and the others are untouched.
      TypeError: the state is no tree of arrays, or the record no mapping of what
        JSON can hold.
      ValueError: the state has no integer named step at its top.
    """
    self._save("last", state, record)
    self._forget()

  def save_best(self, state: State, record: Mapping[str, Any] | None = None):
    """Like `save`, in place of the best checkpoint so far."""
    step = self._save("best", state, record)
    self._forget(after=step)

  def restore(self, state: State) -> Restored | None:
    """The newest checkpoint that is whole.

    A damaged one is put aside into the folder `unreadable`, with a warning in the
    log, and the one before it is read.

    Args:
      state: of the shapes to be restored; arrays, or `jax.eval_shape` of them.

    Returns:
      `Restored`; None when the run has no checkpoint yet.

    Raises:
      TypeError: the state is no tree of arrays.
      ValueError: the checkpoint belongs to another network, loss or optimiser; the
        message names arrays that differ.
      RuntimeError: there are checkpoints and none of them can be read, or all were
        put aside before.
      MemoryError, PermissionError: the checkpoint could not be read for lack of
        memory or rights; it is left where it is.
    """
    return self._restore("last", state)

  def restore_best(self, state: State, *, step: int | None = None) -> Restored | None:
    """Like `restore`, for the best checkpoint.

    Args:
      state: as for `restore`.
      step: of the best checkpoint, as the run knows it; None takes the newest one.

    Returns:
      `Restored`; None when there is none, with a step also when it can be read
      neither among the best nor among the newest checkpoints.
    """
    if step is None:
      return self._restore("best", state)
    _manifest.check(state)
    _checks.count("step", step, 0)
    for series in ("best", "last"):
      if step in self._series[series].all_steps():
        try:
          return _read(self._series[series], step, state)
        except _UnreadableError as error:
          self._put_aside(series, step, error)
    return None

  def _forget(self, after: int | None = None):
    """Removes best checkpoints that no run goes back to, and all after a step."""
    manager = self._series["best"]
    best = manager.all_steps()
    kept = [step for step in best if after is None or step <= after]
    needed = {max(kept, default=None)}
    for end in self._series["last"].all_steps():
      needed.add(max((step for step in kept if step <= end), default=None))
    for step in set(best) - needed:
      manager.delete(step)

  def _save(self, series: str, state: State, record: Mapping[str, Any] | None) -> int:
    _manifest.check(state, record)
    manager = self._series[series]
    arrays = _manifest.to_host(state)
    step = int(arrays["step"])
    manifest = {
      "format": _FORMAT,
      "arrays": _manifest.describe(state),
      "checksum": _manifest.checksum(arrays),
      "record": dict(record or {}),
    }
    manifest["seal"] = _manifest.seal(manifest)
    if step in manager.all_steps():  # the same step again, by a run that went back
      _rename(self.directory / series / str(step), self._replaced(series, step))
      manager.reload()
    others = set(threading.enumerate())
    try:
      self._check_space(arrays)
      state_and_manifest = ocp.args.Composite(
        state=ocp.args.StandardSave(arrays), manifest=ocp.args.JsonSave(manifest)
      )
      with _said_once():
        manager.save(step, args=state_and_manifest, force=True)
    except Exception as error:
      _await_threads(others)
      _remove_partial(self.directory / series)
      _put_back(self.directory)
      manager.reload()
      steps = [step for each in self._series.values() for step in each.all_steps()]
      before = max(steps, default=None)
      rest = "no earlier one" if before is None else f"that of step {before} is intact"
      reason = str(error).split(" [", 1)[0]  # without tensorstore's specification
      raise OSError(
        f"the checkpoint of step {step} could not be written to "
        f"{self.directory / series} ({rest}): {reason}"
      ) from error
    _put_back(self.directory)  # what was replaced goes
    return step

  def _replaced(self, series: str, step: int) -> pathlib.Path:
    return self.directory / f"{series}-{step}{_REPLACED}"

  def _check_space(self, arrays: Mapping[str, np.ndarray]):
    """A full disk is better noticed before dozens of files are begun."""
    needed = sum(array.nbytes + _ARRAY for array in arrays.values()) + _FILES
    free = shutil.disk_usage(self.directory).free
    if free < needed:
      raise OSError(f"no space left on device: {needed} bytes needed, {free} free")

  def _restore(self, series: str, state: State) -> Restored | None:
    _manifest.check(state)
    manager = self._series[series]
    steps = sorted(manager.all_steps(), reverse=True)
    for number, step in enumerate(steps):
      try:
        return _read(manager, step, state)
      except _UnreadableError as error:
        rest = steps[number + 1 :]
        following = f"trying step {rest[0]}" if rest else "none is left"
        self._put_aside(series, step, error, f"; {following}")
    damaged = self.directory / "unreadable"
    aside = sorted(path.name for path in damaged.glob(f"{series}-*"))
    if steps or aside:  # also at the next start, which would else begin anew
      raise RuntimeError(
        f"none of the checkpoints in {self.directory / series} can be read; the "
        f"damaged ones, {', '.join(aside)}, are in {damaged}: remove them to begin anew"
      )
    return None

  def _put_aside(self, series: str, step: int, error: Exception, following: str = ""):
    _logger.warning(
      "checkpoint %s of step %d is unreadable and was put aside (%s)%s",
      self.directory / series,
      step,
      error,
      following,
    )
    if jax.process_index() == 0:
      target = self.directory / "unreadable" / f"{series}-{step}"
      target.parent.mkdir(exist_ok=True)
      shutil.rmtree(target, ignore_errors=True)
      (self.directory / series / str(step)).rename(target)
    self._series[series].reload()


def _rename(source: pathlib.Path, target: pathlib.Path):
  """By the first process; the others wait for it."""
  if jax.process_index() == 0:
    source.rename(target)
  if jax.process_count() > 1:
    multihost_utils.sync_global_devices(f"renamed {source}")


def _put_back(directory: pathlib.Path):
  """Checkpoints that were to be replaced: back in place where nothing replaced them."""
  if jax.process_index() != 0:
    return
  for replaced in directory.glob(f"*{_REPLACED}"):
    series, step = replaced.name.removesuffix(_REPLACED).split("-")
    target = directory / series / step
    if target.exists():
      shutil.rmtree(replaced, ignore_errors=True)
    else:
      replaced.rename(target)


def _remove_partial(directory: pathlib.Path):
  """Removes what a killed or failed save has left."""
  if jax.process_index() == 0:
    for partial in directory.glob("*.orbax-checkpoint-tmp*"):
      shutil.rmtree(partial, ignore_errors=True)


def _await_threads(others: set[threading.Thread]):
  """Waits for the threads that a failed save has left; they may still be writing."""
  for thread in set(threading.enumerate()) - others:
    with contextlib.suppress(Exception):  # orbax's threads raise what they caught
      thread.join(timeout=10)


def _manager(directory: pathlib.Path, keep: int | None) -> ocp.CheckpointManager:
  _remove_partial(directory)
  return ocp.CheckpointManager(
    directory,
    item_names=("state", "manifest"),
    options=ocp.CheckpointManagerOptions(
      max_to_keep=keep,
      enable_async_checkpointing=False,
    ),
  )


def _read(manager: ocp.CheckpointManager, step: int, state: State) -> Restored:
  """One checkpoint, verified."""
  with _damage_named():
    args = ocp.args.Composite(manifest=ocp.args.JsonRestore())
    manifest = dict(manager.restore(step, args=args)["manifest"])
    stored, seal = manifest["arrays"], manifest.pop("seal", None)
    if seal is None and manifest["format"] != _UNSEALED:
      raise _UnreadableError("its seal is missing")
    if seal is not None and seal != _manifest.seal(manifest):
      raise _UnreadableError("what stands beside its arrays is not what was written")
  _manifest.check_same(manager.directory / str(step), stored, _manifest.describe(state))
  target = {
    name: np.empty(entry["shape"], np.dtype(entry["dtype"]))
    for name, entry in stored.items()
  }
  with _damage_named():
    args = ocp.args.Composite(state=ocp.args.StandardRestore(target))
    arrays = manager.restore(step, args=args)["state"]
  if _manifest.checksum(arrays) != manifest["checksum"]:
    raise _UnreadableError("its checksum differs")
  leaves = [
    jax.random.wrap_key_data(arrays[name], impl=stored[name]["key"])
    if _manifest.is_key(leaf)
    else jnp.asarray(arrays[name])
    for name, leaf in _manifest.named_leaves(state).items()
  ]
  restored = jax.tree.unflatten(jax.tree.structure(state), leaves)
  return Restored(restored, manifest["record"])


@contextlib.contextmanager
def _said_once() -> Iterator[None]:
  """Leaves out orbax's log of an error of one of its threads, which it raises too."""

  def is_ours(record: logging.LogRecord) -> bool:
    return "_SignalingThread" not in record.getMessage()

  log = logging.getLogger("absl")
  log.addFilter(is_ours)
  try:
    yield
  finally:
    log.removeFilter(is_ours)


@contextlib.contextmanager
def _damage_named() -> Iterator[None]:
  """Whatever fails in here is damage, but for a lack of memory or of rights."""
  try:
    yield
  except (MemoryError, PermissionError, _UnreadableError):
    raise
  except Exception as error:
    if any(code in str(error) for code in _NO_DAMAGE):
      raise
    raise _UnreadableError(str(error)) from error
