"""Stores the arrays of a checkpoint in one file: their bytes, in the order of names.

Names, shapes and types are in the manifest beside the file. Unlike tensorstore, a plain
file allows any folder name, any type, and arrays without entries.
"""

import io
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

_NAME = "arrays"


async def write(directory: os.PathLike[str], arrays: Mapping[str, np.ndarray]):
  """Writes the arrays, in the first process, which holds all of them."""
  if jax.process_index() != 0:
    return
  with (pathlib.Path(directory) / _NAME).open("xb") as file:
    for name in sorted(arrays):
      file.write(raw(arrays[name]).data)
    file.flush()
    os.fsync(file.fileno())


def exists(directory: os.PathLike[str]) -> bool:
  """True if a checkpoint's arrays are in this form; older ones are tensorstore's."""
  return (pathlib.Path(directory) / _NAME).exists()


def read(
  directory: os.PathLike[str], entries: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[str, np.ndarray]]:
  """Yields names and arrays, with the shapes and types of the manifest's entries.

  Raises ValueError if the file is longer or shorter than that.
  """
  with (pathlib.Path(directory) / _NAME).open("rb") as file:
    for name in sorted(entries):
      yield name, _next(file, name, entries[name])
    if file.read(1):
      raise ValueError("the file of its arrays is too long")


def _next(file: io.BufferedReader, name: str, entry: Mapping[str, Any]) -> np.ndarray:
  array = np.empty(entry["shape"], np.dtype(entry["dtype"]))
  if file.readinto(raw(array).data) != array.nbytes:
    raise ValueError(f"the file of its arrays ends within {name}")
  return array


def raw(array: np.ndarray) -> np.ndarray:
  """Views an array as bytes; a contiguous array shares its memory."""
  return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
