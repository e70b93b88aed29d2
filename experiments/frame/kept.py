"""Stores finished trainings, so that the same command resumes after a stop."""

import hashlib
import io
import json
import pathlib
import zipfile
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from experiments.frame import ending, results

_T = TypeVar("_T")
_REMEDY = "without it, it is made again"


def digest(settings: object) -> str:
  """Short name of settings, so that runs with other settings get other folders."""
  return hashlib.sha256(repr(settings).encode()).hexdigest()[:16]


def fingerprint(arrays: Iterable[ArrayLike]) -> str:
  """Digest of arrays' bytes, shapes and types: other data get another folder."""
  digest_of = hashlib.sha256()
  for x in map(np.ascontiguousarray, arrays):
    digest_of.update(f"{x.dtype}{x.shape}".encode())
    digest_of.update(x.data if x.size else b"")  # no copy
  return digest_of.hexdigest()[:16]


class Finished(NamedTuple):
  """Stored outcome of one training."""

  figures: results.Entry  # figures that JSON can hold
  arrays: dict[str, np.ndarray]

  def part(self, prefix: str) -> dict[str, np.ndarray]:
    """Arrays whose names start with a prefix, by the rest of their names."""
    return {
      name.removeprefix(prefix): x
      for name, x in self.arrays.items()
      if name.startswith(prefix)
    }


def restore(path: pathlib.Path, settings: results.Entry) -> Finished | None:
  """Reads an outcome if it was stored with the same settings.

  A damaged file raises a ValueError that names it: the user decides whether to lose it.
  """
  record, arrays = _files(path)
  if not record.is_file() or not arrays.is_file():
    return None
  contents = read_record(record, "settings", "figures")
  if contents["settings"] != json.loads(json.dumps(settings)):
    return None
  return Finished(contents["figures"], _read_intact(arrays, _arrays))


def read_record(
  path: pathlib.Path, *names: str, remedy: str = _REMEDY
) -> results.Entry:
  """Reads a record of `results.write_json` and checks that it has these names.

  A damaged file raises a ValueError that names it and the remedy.
  """

  def read(path: pathlib.Path) -> results.Entry:
    contents = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(contents, dict) or not set(names) <= contents.keys():
      raise ValueError(f"it must hold {' and '.join(names) or 'names and values'}")
    return contents

  return _read_intact(path, read, remedy)


def read_array(path: pathlib.Path, remedy: str) -> np.ndarray:
  """Reads an array of `np.save`; rejects arrays of objects.

  A damaged file raises a ValueError that names it and the remedy.
  """
  content = path.read_bytes()  # outside `_read_intact`: a missing file is not damaged
  return _read_intact(path, lambda _: _array(content), remedy)


def _read_intact(
  path: pathlib.Path, read: Callable[[pathlib.Path], _T], remedy: str = _REMEDY
) -> _T:
  try:
    return read(path)
  except Exception as error:  # a damaged file can fail in any way
    message = ending.one_line(error)
    raise ValueError(f"{path} is damaged; {remedy}: {message}") from error


def _arrays(path: pathlib.Path) -> dict[str, np.ndarray]:
  """Reads uncompressed arrays as `keep` writes them, never larger than the file."""
  arrays: dict[str, np.ndarray] = {}
  left = path.stat().st_size
  with zipfile.ZipFile(path) as archive:
    for entry in archive.infolist():
      left -= max(entry.file_size, entry.compress_size)
      if entry.compress_type != zipfile.ZIP_STORED or left < 0:
        raise ValueError(f"{entry.filename} is larger than the file, or compressed")
      name = entry.filename.removesuffix(".npy")
      if name in arrays:
        raise ValueError(f"{entry.filename} occurs twice")
      arrays[name] = _array(archive.read(entry))
  return arrays


def _array(content: bytes) -> np.ndarray:
  """Reads an array like `np.load`, but allocates no more than the file holds."""
  file = io.BytesIO(content)
  if np.lib.format.read_magic(file) != (1, 0):
    raise ValueError("it holds an array that is not in NumPy's format 1.0")
  shape, by_columns, dtype = np.lib.format.read_array_header_1_0(file)
  flat = np.frombuffer(content, dtype, offset=file.tell())  # refuses objects
  if min(shape, default=0) < 0:
    raise ValueError(f"it has an array of shape {shape}")
  return flat.reshape(shape, order="F" if by_columns else "C").copy()


def keep(path: pathlib.Path, settings: results.Entry, outcome: Finished) -> None:
  """Writes the arrays, then the file whose presence says that they are complete."""
  path.parent.mkdir(parents=True, exist_ok=True)
  record, arrays = _files(path)
  record.unlink(missing_ok=True)
  # Without `allow_pickle`, which numpy 2.1 would store as an array.
  np.savez(arrays, **outcome.arrays)  # pyright: ignore[reportArgumentType]
  results.write_json({"settings": settings, "figures": outcome.figures}, record)


def once(
  path: pathlib.Path,
  *,
  made_with: results.Entry,
  make: Callable[[], Finished],
  restored: Callable[[], object] = lambda: None,
) -> Finished:
  """Reads the outcome under a path if its inputs are the same; otherwise makes it.

  `restored` is called if the outcome was read.
  """
  if (outcome := restore(path, made_with)) is None:
    outcome = make()
    keep(path, made_with, outcome)
  else:
    restored()
  return outcome


def _files(path: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
  """Files of record and arrays; appends, since a name may end in a decimal number."""
  return path.with_name(f"{path.name}.json"), path.with_name(f"{path.name}.npz")
