"""Stores finished trainings, so that the same command resumes after a stop."""

import hashlib
import json
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from experiments.frame import ending, results

_REMEDY = "without it, it is made again"


def digest(settings: Any) -> str:
  """A short name for settings: a run with others has another folder."""
  return hashlib.sha256(repr(settings).encode()).hexdigest()[:16]


def fingerprint(arrays: Iterable[Any]) -> str:
  """Digest of the arrays' bytes, shapes and types; other data get another folder."""
  digest_of = hashlib.sha256()
  for x in map(np.ascontiguousarray, arrays):
    digest_of.update(f"{x.dtype}{x.shape}".encode())
    digest_of.update(x.data if x.size else b"")  # no copy
  return digest_of.hexdigest()[:16]


class Finished(NamedTuple):
  """Stored outcome of one training."""

  figures: dict[str, Any]
  """Figures that JSON can hold."""
  arrays: dict[str, np.ndarray]


def restore(
  path: pathlib.Path,
  settings: Mapping[str, Any],
  check: Callable[[Finished], None] | None = None,
) -> Finished | None:
  """Reads an outcome if it was stored with the same settings.

  ValueError names a file that is damaged: whether to lose it is the user's decision.
  `check` raises for contents that are none of those that `keep` was given.
  """
  record, arrays = _files(path)
  if not record.is_file() or not arrays.is_file():
    return None
  contents = read_record(record, "settings", "figures")
  if contents["settings"] != json.loads(json.dumps(settings)):
    return None
  done = Finished(contents["figures"], _whole(arrays, _arrays))
  if check is not None:
    _whole(record, lambda _: check(done))
  return done


def read_record(
  path: pathlib.Path,
  *names: str,
  remedy: str = _REMEDY,
  check: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
  """Reads a record of `results.write_json` and checks that it has these names.

  ValueError names a file that is damaged, and what helps; `check` raises for values
  that were not written.
  """

  def read(path: pathlib.Path) -> dict[str, Any]:
    contents = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(contents, dict) or not set(names) <= contents.keys():
      raise ValueError(f"it must hold {' and '.join(names) or 'names and values'}")
    if check is not None:
      check(contents)
    return contents

  return _whole(path, read, remedy)


def read_array(path: pathlib.Path, remedy: str) -> np.ndarray:
  """Reads an array of `np.save`; ValueError names a damaged file, and what helps."""

  def read(path: pathlib.Path) -> np.ndarray:
    with path.open("rb") as file:
      return np.lib.format.read_array(file, allow_pickle=False)

  path.stat()  # a file that is not there is not damaged
  return _whole(path, read, remedy)


def _whole(
  path: pathlib.Path, read: Callable[[pathlib.Path], Any], remedy: str = _REMEDY
) -> Any:
  try:
    return read(path)
  except Exception as error:  # a damaged file can fail in any way
    said = ending.one_line(error)
    raise ValueError(f"{path} is damaged; {remedy}: {said}") from error


def _arrays(path: pathlib.Path) -> dict[str, np.ndarray]:
  with np.load(path) as archive:
    return dict(archive)


def keep(path: pathlib.Path, settings: Mapping[str, Any], done: Finished) -> None:
  """Writes the arrays, then the file whose presence says that they are complete."""
  path.parent.mkdir(parents=True, exist_ok=True)
  record, arrays = _files(path)
  record.unlink(missing_ok=True)
  np.savez(arrays, allow_pickle=False, **done.arrays)
  results.write_json({"settings": settings, "figures": done.figures}, record)


def once(
  path: pathlib.Path, *, made_with: Mapping[str, Any], make: Callable[[], Finished]
) -> Finished:
  """Reads the outcome under a path if its inputs are the same; otherwise makes it."""
  done = restore(path, made_with)
  if done is None:
    done = make()
    keep(path, made_with, done)
  return done


def _files(path: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
  """Record and arrays: behind the whole name, which a number with a point may end."""
  return path.with_name(f"{path.name}.json"), path.with_name(f"{path.name}.npz")
