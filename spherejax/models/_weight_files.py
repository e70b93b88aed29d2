"""Reads arrays by name from weight files, without running code in them."""

import json
import os
import pathlib
from collections.abc import Mapping
from typing import IO, Any

import jax.numpy as jnp
import numpy as np

from spherejax import _checks
from spherejax.models import _weight_archives, _weight_names, _weight_pickle

# NumPy types by their names in safetensors.
_SAFE_TYPES = {
  "BOOL": np.bool_,
  "U8": np.uint8,
  "I8": np.int8,
  "U16": np.uint16,
  "I16": np.int16,
  "U32": np.uint32,
  "I32": np.int32,
  "U64": np.uint64,
  "I64": np.int64,
  "F16": np.float16,
  "BF16": jnp.bfloat16,
  "F32": np.float32,
  "F64": np.float64,
  "C64": np.complex64,
  "F8_E4M3": jnp.float8_e4m3fn,
  "F8_E4M3FNUZ": jnp.float8_e4m3fnuz,
  "F8_E5M2": jnp.float8_e5m2,
  "F8_E5M2FNUZ": jnp.float8_e5m2fnuz,
  "F8_E8M0": jnp.float8_e8m0fnu,
}
# Keys under which training scripts store the weights beside epoch and optimizer.
_PLACES = ("state_dict", "model", "model_state_dict")


def read_weights(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
  """Reads the arrays of a weight file, by their names in the file.

  The file may be in safetensors or in the formats of `torch.save` (zip files, and the
  format before torch 1.6), under any name. torch's files hold pickles, which can run
  any program when they are read in the usual way. Here they can only name tensors and
  dictionaries of tensors; a file that names anything else is refused and none of its
  code runs. torch itself is not needed.

  Weights may be within "state_dict", "model" or "model_state_dict". Wrapper prefixes
  that all names share are removed, also when nested: "module." (training on several
  devices), "_orig_mod." (compiled modules), "model.", "backbone." and "encoder.". A
  prefix that only some names have stays.

  Negated and conjugated tensors, which torch stores lazily, are computed. Hooks and
  attributes of parameters are dropped. Quantised, sparse and nested tensors, subclasses
  of tensors and types that NumPy lacks are refused by name.

  Args:
    path: the file. A safetensors file needs the package of that name (extra `weights`).

  Returns:
    Arrays in the order of the file, with its types (bfloat16 and float8, too) and
    shapes. Arrays that share memory in a torch file share it here too, and cannot be
    written to.

  Raises:
    TypeError: path not a path.
    OSError: path names no file that can be read.
    FileNotFoundError: no such file.
    ValueError: another kind of file, a truncated file, a file that asks for anything
      but tensors (the message names it), or a file without weights.
    ImportError: a safetensors file, and the package is not installed.

  Differentiable in: nothing. Cost: one reading of the file; memory of the file's actual
  size, whatever sizes its header claims.

  Source: none; the formats of safetensors and torch.

  Example:
    >>> import pathlib, tempfile
    >>> import numpy as np, safetensors.numpy
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "weights.safetensors"
    >>> safetensors.numpy.save_file({"fc.bias": np.ones(2, np.float32)}, path)
    >>> spherejax.models.read_weights(path)
    {'fc.bias': array([1., 1.], dtype=float32)}
  """
  _checks.path("path", path)
  path = pathlib.Path(path)
  with path.open("rb") as file:
    start = file.read(32)
  if start[8:9] == b"{":  # first: its 8 bytes of length may well be those of a zip file
    weights = _read_safetensors(path)
  elif start.startswith(b"PK") or _weight_archives.MAGIC_BYTES in start:
    weights = _read_torch(path)
  else:
    raise ValueError(
      f"{path} is neither a safetensors file nor one of torch.save, "
      f"it begins with {start[:9]!r}"
    )
  if not weights:
    raise ValueError(f"{path} has no weights in it")
  names = _weight_names.unwrapped(weights)
  return dict(zip(names, weights.values(), strict=True))


def _read_safetensors(path: pathlib.Path) -> dict[str, np.ndarray]:
  try:
    import safetensors
  except ImportError as error:
    raise ImportError(
      f"reading {path} needs the package safetensors: pip install spherejax[weights]"
    ) from error
  try:
    with safetensors.safe_open(path, framework="numpy") as checked:
      names = list(checked.keys())
    with path.open("rb") as file:
      header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
      start = file.tell()
      return {name: _safe_array(file, start, header[name]) for name in names}
  except _weight_pickle.RefusedError as error:
    raise ValueError(f"{path} is refused: {error}") from None
  except Exception as error:  # a damaged header can fail in any way
    raise ValueError(f"{path} is truncated or damaged: {error}") from error


def _safe_array(file: IO[bytes], start: int, entry: dict[str, Any]) -> np.ndarray:
  """Reads an array whose place and size have been checked."""
  dtype = _SAFE_TYPES.get(entry["dtype"])
  if dtype is None:
    raise _weight_pickle.RefusedError(
      f"it has arrays of type {entry['dtype']}, which NumPy lacks"
    )
  first, end = entry["data_offsets"]
  file.seek(start + first)
  content = np.fromfile(file, np.uint8, end - first)
  return content.view(dtype).reshape(entry["shape"])


def _read_torch(path: pathlib.Path) -> dict[str, np.ndarray]:
  try:
    with path.open("rb") as file:
      content = _weight_archives.load(file)
  except _weight_pickle.RefusedError as error:
    raise ValueError(f"{path} is refused: {error}") from None
  except Exception as error:  # a damaged pickle can fail in any way
    raise ValueError(f"{path} is truncated or damaged: {error}") from error
  return _state(path, content)


def _state(path: pathlib.Path, content: object) -> dict[str, np.ndarray]:
  """Finds the dictionary of arrays in the contents of a file."""
  if isinstance(content, Mapping):
    place = next(
      (key for key in _PLACES if isinstance(content.get(key), Mapping)), None
    )
    if place is not None:
      content = content[place]
  if not isinstance(content, Mapping):
    raise ValueError(f"{path} must hold weights by name, got {type(content).__name__}")
  others = [
    name
    for name, value in content.items()
    if not (isinstance(name, str) and isinstance(value, np.ndarray))
  ]
  if others:
    raise ValueError(
      f"{path} must hold arrays by name, alone or at one of {_PLACES}; these are "
      f"none: {', '.join(map(str, others[:8]))}"
    )
  return dict(content)
