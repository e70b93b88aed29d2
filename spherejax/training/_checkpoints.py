"""Checkpoints of a run, atomic and verified: the newest ones and the best."""

import contextlib
import logging
import os
import pathlib
import shutil
import threading
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from spherejax import _checks
from spherejax.training import _checkpoint_files, _manifest
from spherejax.training._checkpoint_files import Restored, UnreadableError
from spherejax.training._manifest import State

_logger = logging.getLogger(__name__)


_SERIES = "last", "best"
_REPLACED = ".replaced"
# Bytes written besides the arrays themselves: for each array, and in a dozen files.
_ARRAY, _FILES = 512, 2**16


class Checkpoints:
  """Checkpoints of one run in one folder; a context manager.

  A checkpoint is written under a temporary name and renamed when it is complete, so a
  process killed while writing leaves the earlier ones as they were. Checksums over all
  arrays and over the metadata are stored with it. They are compared on reading, and
  also right after writing: an earlier checkpoint is removed only when the new one has
  been read back. The folder `last` holds the newest `keep` checkpoints, and the one
  that was saved last, also if its step is lower. The folder `best` holds the best
  checkpoint, and those that were the best when each of the newest was written.

  Args:
    directory: folder of the run, of any name; made if missing.
    keep: static. Number of newest checkpoints to keep; with at least 2 a damaged one
      has a predecessor.

  Raises:
    ValueError: keep below 1, a name that is not UTF-8.
    TypeError: directory is not a path, keep not an integer.
    OSError: directory is a file, or cannot be made.

  Cost: a copy of the state on the host, writing it, and reading it back. Saving waits
  until the checkpoint is complete.

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
    from spherejax.training import _orbax

    _checks.path("directory", directory)
    _checks.count("keep", keep)
    self.directory = pathlib.Path(directory).absolute()
    self._keep = keep
    _make(self.directory)
    _put_back(self.directory)
    for series in _SERIES:
      _make(self.directory / series)
      _remove_partial(self.directory / series)
    self._series = {name: _orbax.Series(self.directory / name) for name in _SERIES}

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
    """Releases the managers' resources; all writing is done."""
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
      state: the state, not replicated; states and modules of flax.nnx work, too.
      record: further information for a resumed run, as JSON values.

    Raises:
      OSError: the checkpoint could not be written or read back (as on a full disk). The
        message names the newest checkpoint that exists; it and the others are
        untouched.
      TypeError: the state is not a tree of arrays of numbers, or the record is not a
        mapping of what JSON can hold.
      ValueError: the state has no integer named step at its top, or one below 0; two
        of its arrays, or two entries of a mapping in the record, share a name.
    """
    self._forget(saved=self._save("last", state, record))

  def save_best(self, state: State, record: Mapping[str, Any] | None = None):
    """Saves like `save`, in place of the best checkpoint so far."""
    step = self._save("best", state, record)
    self._forget(after=step)

  def restore(self, state: State) -> Restored | None:
    """Restores the newest checkpoint that is intact.

    A damaged checkpoint is moved to the folder `unreadable`, with a warning in the log,
    and the one before it is read.

    Args:
      state: a state of the shapes and types to restore, or its `jax.eval_shape`.

    Returns:
      `Restored`; None when the run has no checkpoint yet. 64-bit arrays are NumPy
      arrays unless x64 is enabled, because jax would cut them to 32 bits.

    Raises:
      TypeError: the state is not a tree of arrays.
      ValueError: the checkpoint belongs to another network, loss or optimiser; the
        message names arrays that differ.
      RuntimeError: there are checkpoints and none of them can be read, or all were
        put aside before.
      MemoryError, PermissionError: the checkpoint could not be read for lack of
        memory or rights; it is left where it is.
    """
    return self._restore("last", state)

  def restore_best(self, state: State, *, step: int | None = None) -> Restored | None:
    """Restores the best checkpoint, like `restore`.

    Args:
      state: as for `restore`.
      step: step of the best checkpoint, if the run knows it; None takes the newest one.

    Returns:
      `Restored`; None when there is no best checkpoint. With `step`, also None when
      that checkpoint can be read neither among the best nor among the newest ones.
    """
    if step is None:
      return self._restore("best", state)
    _manifest.check(state)
    _checks.count("step", step, 0)
    for series in ("best", "last"):
      if step in self._series[series].all_steps():
        try:
          return _checkpoint_files.read(self._series[series], step, state)
        except UnreadableError as error:
          self._put_aside(series, step, error)
    return None

  def _forget(self, after: int | None = None, saved: int | None = None):
    """Removes old checkpoints, and best checkpoints that no run can need.

    With `after`, also removes all best checkpoints after that step. The one that was
    just saved stays, also if the run went back.
    """
    last = self._series["last"]
    for step in set(sorted(last.all_steps())[: -self._keep]) - {saved}:
      last.delete(step)
    manager = self._series["best"]
    best = manager.all_steps()
    candidates = [step for step in best if after is None or step <= after]
    needed = {max(candidates, default=None)}
    for end in self._series["last"].all_steps():
      needed.add(max((step for step in candidates if step <= end), default=None))
    for step in set(best) - needed:
      manager.delete(step)

  def _save(self, series: str, state: State, record: Mapping[str, Any] | None) -> int:
    _manifest.check(state, record)
    manager = self._series[series]
    arrays = _manifest.to_host(state)
    step = int(arrays["step"])
    if step < 0:
      raise ValueError(f"the step of state must be at least 0, got {step}")
    manifest = {
      "format": _checkpoint_files.FORMAT,
      "arrays": _manifest.describe(state),
      "checksum": _manifest.checksum(sorted(arrays.items())),
      "record": dict(record or {}),
    }
    manifest["seal"] = _manifest.seal(manifest)
    if step in manager.all_steps():  # the same step again, from a run that went back
      _rename(self.directory / series / str(step), self._replaced(series, step))
      manager.reload()
    others, written = set(threading.enumerate()), False
    try:
      self._check_space(arrays)
      with _said_once():
        manager.write(step, arrays, manifest)
      written = True
      _checkpoint_files.read_back(manager, step, manifest["seal"])
    except Exception as error:
      _await_threads(others)
      _remove_partial(self.directory / series)
      if written and jax.process_index() == 0:  # but not read back
        shutil.rmtree(self.directory / series / str(step), ignore_errors=True)
      _put_back(self.directory)
      manager.reload()
      steps = [step for saved in self._series.values() for step in saved.all_steps()]
      before = max(steps, default=None)
      rest = "no earlier one" if before is None else f"that of step {before} is intact"
      reason = str(error).split(" [", 1)[0]  # without tensorstore's specification
      raise OSError(
        f"the checkpoint of step {step} could not be written to "
        f"{self.directory / series} ({rest}): {reason}"
      ) from error
    _put_back(self.directory)  # remove the replaced checkpoint
    return step

  def _replaced(self, series: str, step: int) -> pathlib.Path:
    return self.directory / f"{series}-{step}{_REPLACED}"

  def _check_space(self, arrays: Mapping[str, np.ndarray]):
    """Raises early for a full disk, before dozens of files are started."""
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
        return _checkpoint_files.read(manager, step, state)
      except UnreadableError as error:
        rest = steps[number + 1 :]
        following = f"trying step {rest[0]}" if rest else "none is left"
        self._put_aside(series, step, error, f"; {following}")
    damaged = self.directory / "unreadable"
    aside = sorted(path.name for path in damaged.glob(f"{series}-*"))
    if steps or aside:  # also at the next start, which would begin from scratch
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
  """Renames a file, in the first process; the other processes wait."""
  if jax.process_index() == 0:
    source.rename(target)
  if jax.process_count() > 1:
    multihost_utils.sync_global_devices(f"renamed {source}")


def _put_back(directory: pathlib.Path):
  """Moves checkpoints back that were to be replaced and were not."""
  if jax.process_index() != 0:
    return
  for replaced in directory.glob(f"*-*{_REPLACED}"):
    series, _, step = replaced.name.removesuffix(_REPLACED).partition("-")
    target = directory / series / step
    if target.exists():
      shutil.rmtree(replaced, ignore_errors=True)
    else:
      replaced.rename(target)


def _remove_partial(directory: pathlib.Path):
  """Removes the remains of a killed or failed save."""
  if jax.process_index() == 0:
    for partial in directory.glob("*.orbax-checkpoint-tmp*"):
      shutil.rmtree(partial, ignore_errors=True)


def _await_threads(others: set[threading.Thread]):
  """Waits for the threads of a failed save, which may still be writing."""
  for thread in set(threading.enumerate()) - others:
    with contextlib.suppress(Exception):  # orbax's threads raise what they caught
      thread.join(timeout=10)


def _make(directory: pathlib.Path):
  """Makes the folder, so that an error appears before the training."""
  shown = repr(os.fspath(directory))
  try:
    os.fspath(directory).encode()
  except UnicodeEncodeError as error:  # orbax keeps paths as text
    raise ValueError(f"directory must have a name in UTF-8, got {shown}") from error
  try:
    directory.mkdir(parents=True, exist_ok=True)
  except OSError as error:
    reason = f"directory {shown} cannot be made: {error.strerror or error}"
    raise type(error)(error.errno, reason) from error


@contextlib.contextmanager
def _said_once() -> Iterator[None]:
  """Drops orbax's log of an error in one of its threads, which it raises too."""

  def is_ours(record: logging.LogRecord) -> bool:
    return "_SignalingThread" not in record.getMessage()

  log = logging.getLogger("absl")
  log.addFilter(is_ours)
  try:
    yield
  finally:
    log.removeFilter(is_ours)
