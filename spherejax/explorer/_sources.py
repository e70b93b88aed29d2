"""Sources of a page's images: a file, a folder or a prepared image set."""

import concurrent.futures
import dataclasses
import functools
import os
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from spherejax import data
from spherejax.data import _files

PREPARED = "tfds:"


@dataclasses.dataclass(frozen=True, eq=False)
class Source:
  """Source of images, in the same order in every run."""

  title: str
  """Name of the folder or the set."""
  names: tuple[str, ...]
  """Names, different for each image."""
  labels: tuple[str, ...]
  """Names of the images' classes, "" where the class is not known."""
  stamps: tuple[str, ...]
  """Stamps, which change with an image's content."""
  read: Callable[[int], np.ndarray]
  """Image i, uint8 [height, width, channels]."""
  root: pathlib.Path | None = None
  """The folder that names are relative to."""

  def __len__(self) -> int:
    return len(self.names)

  def identity(self, row: int) -> str:
    """File of the image or its place in a prepared set, the same in every source."""
    return self.names[row] if self.root is None else str(self.root / self.names[row])


def find(text: str) -> Source:
  """Finds the images of a file, a folder or `tfds:NAME/SPLIT`, without decoding."""
  if text.startswith(PREPARED):
    return _prepared(text)
  path = pathlib.Path(text).resolve()
  if path.is_file():
    return _listed(path.parent, [pathlib.PurePosixPath(path.name)], path.name)
  if not path.is_dir():
    raise FileNotFoundError(f"no image file or folder at {text}")
  files = _files.in_folder(path)
  if not files:
    raise ValueError(f"the folder {text} holds no image ({', '.join(_files.SUFFIXES)})")
  return _listed(path, files, path.name)


def _listed(
  root: pathlib.Path, files: list[pathlib.PurePosixPath], title: str
) -> Source:
  # The class is the sub-folder, at any depth above the image. In a single sub-folder,
  # the classes are the first folders that differ.
  folders = [file.parts[:-1] for file in files]
  levels = enumerate(zip(*folders, strict=False))
  depth = next((depth for depth, names in levels if len(set(names)) > 1), 0)
  return Source(
    title,
    tuple(_shown(str(file)) for file in files),
    tuple(_shown(names[depth]) if names else "" for names in folders),
    tuple(_stamp(root / file) for file in files),
    functools.partial(_read_file, root, tuple(map(str, files))),
    root,
  )


def _shown(name: str) -> str:
  """Name that tables and pages can hold, also if it is not in UTF-8."""
  return os.fsencode(name).decode("utf-8", "backslashreplace")


def _stamp(file: pathlib.Path) -> str:
  try:
    stat = file.stat()
  except OSError:  # a broken link
    return ""
  return f"{stat.st_size} {stat.st_mtime_ns}"


def _read_file(root: pathlib.Path, names: Sequence[str], row: int) -> np.ndarray:
  return _files.decode(root / names[row], name=names[row], channels=None, size=None)


def _prepared(text: str) -> Source:
  name, _, split = text.removeprefix(PREPARED).rpartition("/")
  if not name:
    raise ValueError(f"a prepared image set is named tfds:NAME/SPLIT, got {text}")
  try:
    images = data.load_tfds(name, split, lazy=True)
  except (FileNotFoundError, ValueError, TypeError) as error:
    raise ValueError(f"{text} cannot be read: {error}") from error
  classes = (*images.label_names, "")  # the last name is for the label -1
  labels = tuple(classes[label] for label in images.labels)
  return Source(
    name,
    tuple(f"{text}/{row}" for row in range(len(images))),
    labels,
    # A prepared set does not change; another version may have other images.
    tuple(f"{len(images)} {label}" for label in labels),
    functools.partial(_read_prepared, images.images),
  )


def _read_prepared(images: Any, row: int) -> np.ndarray:
  return images[row]


def reason(error: BaseException) -> str:
  """Reason why an image cannot be read, without the name of its file."""
  said = (
    error.__cause__ or error if isinstance(error, _files.UnreadableError) else error
  )
  return " ".join(str(said).split()) or type(said).__name__


def check_headers(source: Source, rows: Iterable[int]) -> dict[int, str]:
  """Finds files that are not images, with reasons, without decoding them."""
  root = source.root
  if root is None:
    return {}

  def check(row: int) -> str:
    try:
      _files.check_header(root / source.names[row])
    except Exception:  # whatever a decoder raises
      try:
        source.read(row)  # the decoder has the last word
      except Exception as error:  # whatever a decoder raises
        return reason(error)
    return ""

  rows = list(rows)
  with concurrent.futures.ThreadPoolExecutor() as pool:
    results = zip(rows, pool.map(check, rows), strict=True)
    return {row: why for row, why in results if why}
