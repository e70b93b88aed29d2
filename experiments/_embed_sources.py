"""Where the pictures of `embed` come from: a file, a folder, a prepared image set."""

import concurrent.futures
import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from PIL import Image

from experiments import _ending
from spherejax import data
from spherejax.data._images import FORMATS as FORMATS

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
PREPARED = "tfds:"
_NAMED = 5  # files that a message names


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
    return _files(path, path.parent, [path])
  if not path.is_dir():
    raise SystemExit(f"no image file or folder at {text}")
  found = sorted(
    (
      file
      for file in path.rglob("*")
      if file.suffix.lower() in SUFFIXES
      and not any(part.startswith(".") for part in file.relative_to(path).parts)
      and file.is_file()
    ),
    key=lambda file: file.relative_to(path).parts,
  )
  if not found:
    raise SystemExit(f"the folder {text} holds no image ({', '.join(SUFFIXES)})")
  return _files(path, path, found)


def _files(text: pathlib.Path, root: pathlib.Path, files: list[pathlib.Path]) -> Source:
  names = tuple(file.relative_to(root).as_posix() for file in files)
  # The class is the sub-folder, "." for none.
  labels = (pathlib.PurePosixPath(name).parent.as_posix() for name in names)
  stats = [file.stat() for file in files]
  return Source(
    str(text),
    names,
    tuple("" if label == "." else label for label in labels),
    tuple(f"{stat.st_size} {stat.st_mtime_ns}" for stat in stats),
    functools.partial(_read_file, root, names),
    root,
  )


def _read_file(root: pathlib.Path, names: Sequence[str], row: int) -> np.ndarray:
  with Image.open(root / names[row], formats=FORMATS) as image:
    check_mode(image)
    pixels = np.asarray(image.convert("L" if image.mode in ("1", "L") else "RGB"))
  return pixels if pixels.ndim == 3 else pixels[..., None]


def check_mode(image: Image.Image) -> None:
  """Raises for what 8 bits a channel cannot hold: a conversion would clip it."""
  if image.mode[0] in "IF":
    raise ValueError(f"mode {image.mode} has more than 8 bits a channel")


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
    try:
      self.prepare(self.read(row))
    except Exception as error:
      return _ending.one_line(error)
    return ""


def check_headers(source: Source, rows: Iterable[int]) -> dict[int, str]:
  """Why which of the files are no pictures, by what is found without decoding them."""
  root = source.root
  if root is None:
    return {}

  def check(row: int) -> str:
    try:
      with Image.open(root / source.names[row], formats=FORMATS) as image:
        check_mode(image)
        image.verify()
    except Exception as error:
      return _ending.one_line(error)
    return ""

  rows = list(rows)
  with concurrent.futures.ThreadPoolExecutor() as pool:
    found = zip(rows, pool.map(check, rows), strict=True)
    return {row: why for row, why in found if why}


def listed(names: Iterable[str]) -> str:
  """The first names, and how many there are besides."""
  names = list(names)
  more = len(names) - _NAMED
  return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
