"""Where the pictures of `embed` come from: a file, a folder, a prepared image set."""

import concurrent.futures
import contextlib
import dataclasses
import functools
import os
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from experiments.frame import ending
from spherejax import data
from spherejax.data import _files

PREPARED = "tfds:"


@dataclasses.dataclass(frozen=True, eq=False)
class Source:
  """Pictures in an order that is the same in every run."""

  text: str
  """Where they are, without the working directory's part in it."""
  names: tuple[str, ...]
  """Of the pictures, each another."""
  labels: tuple[str, ...]
  """Names of their classes, "" where that is not known."""
  stamps: tuple[str, ...]
  """What changes with a picture's content."""
  read: Callable[[int], np.ndarray]
  """Picture i, uint8 [height, width, channels]."""
  root: pathlib.Path | None = None
  """The folder that names are relative to."""

  def __len__(self) -> int:
    return len(self.names)


def find(text: str) -> Source:
  """The pictures of a file, a folder or `tfds:NAME/SPLIT`; none is decoded yet."""
  if text.startswith(PREPARED):
    return _prepared(text)
  path = pathlib.Path(text).resolve()
  if path.is_file():
    return _listed(path, path.parent, [pathlib.PurePosixPath(path.name)])
  if not path.is_dir():
    raise SystemExit(f"no image file or folder at {text}")
  files = _files.in_folder(path)
  if not files:
    raise SystemExit(f"the folder {text} holds no image ({', '.join(_files.SUFFIXES)})")
  return _listed(path, path, files)


def _listed(
  text: pathlib.Path, root: pathlib.Path, files: list[pathlib.PurePosixPath]
) -> Source:
  return Source(
    str(text),
    tuple(_shown(str(file)) for file in files),
    # The class is the sub-folder, at whatever depth below it the image lies.
    tuple(_shown(file.parts[0]) if len(file.parts) > 1 else "" for file in files),
    tuple(_stamp(root / file) for file in files),
    functools.partial(_read_file, root, tuple(map(str, files))),
    root,
  )


def _shown(name: str) -> str:
  """A name that tables and figures can hold, also of one that is not in UTF-8."""
  return os.fsencode(name).decode("utf-8", "backslashreplace")


def _stamp(file: pathlib.Path) -> str:
  try:
    stat = file.stat()
  except OSError:  # a link that leads nowhere
    return ""
  return f"{stat.st_size} {stat.st_mtime_ns}"


def _read_file(root: pathlib.Path, names: Sequence[str], row: int) -> np.ndarray:
  return _files.decode(root / names[row], name=names[row], channels=None, size=None)


def _prepared(text: str) -> Source:
  name, _, split = text.removeprefix(PREPARED).rpartition("/")
  if not name:
    raise SystemExit(f"a prepared image set is named tfds:NAME/SPLIT, got {text}")
  try:
    images = data.load_tfds(name, split, lazy=True)
  except (FileNotFoundError, ValueError, TypeError) as error:
    raise SystemExit(f"{text} cannot be read: {error}") from error
  classes = (*images.label_names, "")  # the last one for the label -1
  labels = tuple(classes[label] for label in images.labels)
  return Source(
    text,
    tuple(f"{text}/{row}" for row in range(len(images))),
    labels,
    # What is prepared stays as it is; another version may have other pictures.
    tuple(f"{len(images)} {label}" for label in labels),
    functools.partial(_read_prepared, images.images),
  )


def _read_prepared(images: Any, row: int) -> np.ndarray:
  return images[row]


@dataclasses.dataclass(frozen=True, eq=False)
class Prepared(Sequence):
  """Pictures as the network takes them, below a row that says whether they are one.

  A picture that cannot be read is a zero one whose first row is 0 instead of 255, so
  that a whole batch, read in another process maybe, does not fail for it; `reason`
  says why.
  """

  read: Callable[[int], np.ndarray]
  prepare: Callable[[np.ndarray], np.ndarray]
  shape: tuple[int, int, int]
  number: int

  def __len__(self) -> int:
    return self.number

  def __getitem__(self, row: Any) -> Any:
    if not 0 <= row < self.number:  # which ends a loop over the pictures
      raise IndexError(f"there are {self.number} pictures, none has number {row}")
    height, width, channels = self.shape
    framed = np.zeros((1 + height, width, channels), np.uint8)
    with contextlib.suppress(Exception):  # whatever a decoder raises
      framed[1:] = self.prepare(self.read(int(row)))
      framed[0] = 255
    return framed

  def reason(self, row: int) -> str:
    """Why a picture cannot be read; "" if it can, this time."""
    return _reason(lambda row: self.prepare(self.read(row)), row)


def _reason(read: Callable[[int], Any], row: int) -> str:
  """Why it raises, without the name of the file; "" if it does not."""
  try:
    read(row)
  except Exception as error:  # whatever a decoder raises
    named = isinstance(error, _files.UnreadableError)
    return ending.one_line(error.__cause__ or error if named else error)
  return ""


def check_headers(source: Source, rows: Iterable[int]) -> dict[int, str]:
  """Why which of the files are no pictures, by what is found without decoding them."""
  root = source.root
  if root is None:
    return {}

  def check(row: int) -> str:
    try:
      _files.check_header(root / source.names[row])
    except Exception:  # whatever a decoder raises
      return _reason(source.read, row)  # the decoder has the last word
    return ""

  rows = list(rows)
  with concurrent.futures.ThreadPoolExecutor() as pool:
    found = zip(rows, pool.map(check, rows), strict=True)
    return {row: why for row, why in found if why}
