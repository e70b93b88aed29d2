"""Arrays by name from files of weights, without running what is in them."""

import math
import os
import pathlib
import reprlib
import zipfile
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from spherejax import _checks
from spherejax.models import _weight_pickle

# torch's types of storage, and how NumPy calls what lies in them.
_STORAGES = {
  "DoubleStorage": np.float64,
  "FloatStorage": np.float32,
  "HalfStorage": np.float16,
  "BFloat16Storage": jnp.bfloat16,
  "LongStorage": np.int64,
  "IntStorage": np.int32,
  "ShortStorage": np.int16,
  "CharStorage": np.int8,
  "ByteStorage": np.uint8,
  "BoolStorage": np.bool_,
}
# Where training scripts put the weights beside the epoch and the optimizer.
_PLACES = ("state_dict", "model", "model_state_dict")
_MOST_AXES = 64  # of a NumPy array


def read_weights(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
  """The arrays of a weight file by the names they have there.

  Reads safetensors and the zip files of `torch.save` (since torch 1.6), whatever the
  file is called. torch's files hold a pickle, which can run any program when it is
  read in the usual way. Here it can only name tensors, and dictionaries of them; a
  file that names anything else is refused and nothing of it runs. torch itself is not
  needed.

  Weights within "state_dict", "model" or "model_state_dict" are found there; the
  prefix "module.", which torch puts before all names in training on several devices,
  is taken off.

  Args:
    path: the file. safetensors need the package of that name (extra `weights`).

  Returns:
    Arrays in the order of the file, with its types (bfloat16 too) and shapes. Those of
    a torch file that share memory there do so here, and cannot be written to.

  Raises:
    TypeError: path no path.
    OSError: it names no file that can be read.
    FileNotFoundError: no such file.
    ValueError: neither kind of file, a truncated one, one that asks for anything but
      tensors (the message names it), or one without weights.
    ImportError: a safetensors file, and the package is not installed.

  Differentiable in: nothing. Cost: one reading of the file; memory of its size,
  whatever sizes it claims.

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
    start = file.read(9)
  if start[8:] == b"{":  # first: its 8 bytes of length may well be those of a zip file
    weights = _read_safetensors(path)
  elif start.startswith(b"PK"):
    weights = _read_torch(path)
  elif start.startswith((b"\x80\x02\x8a\x0a", b"\x80\x02l\xfc")):
    raise ValueError(
      f"{path} is in torch's format before 1.6, which is not read; in torch, "
      "torch.save(torch.load(path, weights_only=True), path) makes it a zip file"
    )
  else:
    raise ValueError(
      f"{path} is neither a safetensors file nor a zip file of torch.save, "
      f"it begins with {start!r}"
    )
  if weights and all(name.startswith("module.") for name in weights):
    weights = {name.removeprefix("module."): w for name, w in weights.items()}
  if not weights:
    raise ValueError(f"{path} has no weights in it")
  return weights


def _read_safetensors(path: pathlib.Path) -> dict[str, np.ndarray]:
  try:
    import safetensors
    import safetensors.numpy
  except ImportError as error:
    raise ImportError(
      f"reading {path} needs the package safetensors: pip install spherejax[weights]"
    ) from error
  try:
    return safetensors.numpy.load_file(path)
  except Exception as error:  # a type or shape that NumPy lacks fails in any way
    raise ValueError(f"{path} is truncated or damaged: {error}") from error


def _read_torch(path: pathlib.Path) -> dict[str, np.ndarray]:
  try:
    with zipfile.ZipFile(path) as archive:
      content = _Archive(archive, path.stat().st_size).load()
  except _weight_pickle.RefusedError as error:
    raise ValueError(f"{path} is refused: {error}") from None
  except Exception as error:  # a damaged pickle can fail in any way
    raise ValueError(f"{path} is truncated or damaged: {error}") from error
  return _state(path, content)


def _state(path: pathlib.Path, content: object) -> dict[str, np.ndarray]:
  """The dictionary of arrays in what a file holds."""
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


class _Storage(NamedTuple):
  """The memory that tensors of a file are cut from."""

  data: np.ndarray


def _tensor(
  storage: _Storage, offset: int, shape: tuple, strides: tuple, *_: object
) -> np.ndarray:
  axes = len(shape)
  if (
    len(strides) != axes
    or axes > _MOST_AXES
    or not all(map(_is_size, (offset, *shape, *strides)))
  ):
    found = ", ".join(
      f"{name} {reprlib.repr(value)}"
      for name, value in (("shape", shape), ("strides", strides), ("offset", offset))
    )
    raise ValueError(f"tensor of {found}")
  # Nothing but a storage, whose memory is known: views of views could leave it.
  if type(storage) is not _Storage:
    raise _weight_pickle.RefusedError(
      f"it makes a tensor of a {type(storage).__name__}"
    )
  data = storage.data
  if 0 in shape:
    return np.zeros(shape, data.dtype)
  last = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
  # Copies of one entry, as torch's expand makes them, are no weights, but can be huge.
  if last >= data.size or math.prod(shape) > data.size:
    raise ValueError(f"a tensor of shape {shape} exceeds its storage of {data.size}")
  return np.lib.stride_tricks.as_strided(
    data[offset:], shape, [s * data.itemsize for s in strides], writeable=False
  )


def _is_size(number: object) -> bool:
  return type(number) is int and 0 <= number < 1 << 62


def _ordered() -> dict[str, Any]:
  """Takes no items: those of the same list, time and again, would fill any memory."""
  return {}


_GLOBALS = {
  f"{module} {name}": _weight_pickle.Global(name, call)
  for module, name, call in (
    ("collections", "OrderedDict", _ordered),
    ("torch._utils", "_rebuild_tensor_v2", _tensor),
    ("torch._utils", "_rebuild_parameter", lambda tensor, *_: tensor),
    *(("torch", name, None) for name in _STORAGES),
  )
}


class _Archive:
  """Tensors of a zip file: their pickle, and the storages beside it."""

  def __init__(self, archive: zipfile.ZipFile, size: int):
    names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
    if len(names) != 1:
      raise ValueError(f"it has {len(names)} entries data.pkl instead of one")
    self._archive = archive
    self._left = size  # bytes that entries can have before some overlap
    self._folder = names[0].removesuffix("data.pkl")
    self._storages: dict[str, np.ndarray] = {}
    marked = f"{self._folder}byteorder" in archive.namelist()
    big = marked and self._entry("byteorder") == b"big"
    self._order = ">" if big else "<"

  def load(self) -> Any:
    return _weight_pickle.Reader(_GLOBALS, self._stored).load(self._entry("data.pkl"))

  def _entry(self, name: str) -> bytes:
    entry = self._archive.getinfo(self._folder + name)
    if entry.compress_type != zipfile.ZIP_STORED:
      raise ValueError(f"{name} is compressed, which torch does not do")
    self._left -= max(entry.file_size, entry.compress_size)
    if self._left < 0:
      raise ValueError(f"{name} and what was read before are larger than the file")
    return self._archive.read(entry)

  def _stored(self, pid: Any) -> _Storage:
    tag, kind, key, _, count = pid
    if tag != "storage" or type(key) is not str or kind.name not in _STORAGES:
      raise ValueError(f"unknown storage {reprlib.repr(pid)}")
    if key not in self._storages:
      dtype = np.dtype(_STORAGES[kind.name])
      bits = f"u{dtype.itemsize}"  # bfloat16 knows no order of bytes
      data = np.frombuffer(self._entry(f"data/{key}"), self._order + bits)
      self._storages[key] = data.astype(bits, copy=False).view(dtype)
    data = self._storages[key]
    if data.size < count:
      raise ValueError(f"storage {key} has {data.size} of {count} numbers")
    return _Storage(data)
