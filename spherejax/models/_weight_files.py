"""Arrays by name from files of weights, without running what is in them."""

import json
import math
import os
import pathlib
import reprlib
import zipfile
from collections.abc import Mapping
from typing import IO, Any

import jax.numpy as jnp
import numpy as np

from spherejax import _checks
from spherejax.models import _weight_names, _weight_pickle

# torch's types of storage, and how NumPy calls what lies in them. Without a type are
# those of tensors that name their own type, one of `_TYPES`.
_STORAGES = {
  "DoubleStorage": np.float64,
  "FloatStorage": np.float32,
  "HalfStorage": np.float16,
  "BFloat16Storage": jnp.bfloat16,
  "ComplexDoubleStorage": np.complex128,
  "ComplexFloatStorage": np.complex64,
  "LongStorage": np.int64,
  "IntStorage": np.int32,
  "ShortStorage": np.int16,
  "CharStorage": np.int8,
  "ByteStorage": np.uint8,
  "BoolStorage": np.bool_,
  "UntypedStorage": None,
}
_TYPES = {
  "uint16": np.uint16,
  "uint32": np.uint32,
  "uint64": np.uint64,
  "float8_e4m3fn": jnp.float8_e4m3fn,
  "float8_e4m3fnuz": jnp.float8_e4m3fnuz,
  "float8_e5m2": jnp.float8_e5m2,
  "float8_e5m2fnuz": jnp.float8_e5m2fnuz,
  "float8_e8m0fnu": jnp.float8_e8m0fnu,
}
# The same by the names of safetensors.
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
# Where training scripts put the weights beside the epoch and the optimizer.
_PLACES = ("state_dict", "model", "model_state_dict")
_ORDERS = {b"little": "<", b"big": ">"}  # of bytes, as files call them
_MOST_AXES = 64  # of a NumPy array


def read_weights(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
  """The arrays of a weight file by the names they have there.

  Reads safetensors and the zip files of `torch.save` (since torch 1.6), whatever the
  file is called. torch's files hold a pickle, which can run any program when it is
  read in the usual way. Here it can only name tensors, and dictionaries of them; a
  file that names anything else is refused and nothing of it runs. torch itself is not
  needed.

  Weights within "state_dict", "model" or "model_state_dict" are found there. Prefixes
  that wrappers put before all names are taken off, also one within another: "module."
  of training on several devices, "_orig_mod." of compiled modules, and "model.",
  "backbone." and "encoder.". A prefix that only some names have stays.

  What torch put off is done: negated and conjugated tensors have their numbers. Of
  parameters, hooks and attributes are dropped. Quantised, sparse and nested tensors,
  subclasses of tensors and types that NumPy lacks are refused by name.

  Args:
    path: the file. safetensors need the package of that name (extra `weights`).

  Returns:
    Arrays in the order of the file, with its types (bfloat16 and float8, too) and
    shapes. Those of a torch file that share memory there do so here, and cannot be
    written to.

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
  """One array; by now its place and size are known to be right."""
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


class _Storage:
  """The memory that tensors of a file are cut from.

  Args:
    content: the bytes.
    order: of the bytes within a number, ">" or "<".
    dtype: of the numbers; None where each tensor says it.
  """

  def __init__(self, content: bytes, order: str, dtype: Any):
    self.dtype = dtype
    self._content, self._order = content, order
    self._numbers: dict[tuple[str, bool, bool], np.ndarray] = {}

  def numbers(self, dtype: Any, conj: bool, neg: bool) -> np.ndarray:
    """All numbers; once for each use, as a file may name it time and again."""
    dtype = np.dtype(dtype)
    key = dtype.name, conj, neg
    if key not in self._numbers:
      parts = 2 if dtype.kind == "c" else 1
      bits = f"u{dtype.itemsize // parts}"  # bfloat16 knows no order of bytes
      count = len(self._content) // dtype.itemsize * parts
      data = np.frombuffer(self._content, self._order + bits, count)
      data = data.astype(bits, copy=False).view(dtype)
      data = np.conjugate(data) if conj and parts == 2 else data
      self._numbers[key] = np.negative(data) if neg else data
    return self._numbers[key]


def _tensor(
  storage: _Storage,
  offset: int,
  shape: tuple,
  strides: tuple,
  _needs_gradient: object,
  _hooks: object,
  metadata: object = None,
  *,
  dtype: Any = None,
) -> np.ndarray:
  # Nothing but a storage, whose memory is known: views of views could leave it.
  if type(storage) is not _Storage:
    raise _weight_pickle.RefusedError(
      f"it makes a tensor of a {type(storage).__name__}"
    )
  dtype = storage.dtype if dtype is None else dtype
  if dtype is None:
    raise ValueError("it has a tensor without a type")
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
  data = storage.numbers(dtype, *_still_to_do(metadata))
  if 0 in shape:
    return np.zeros(shape, data.dtype)
  last = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
  # Copies of one entry, as torch's expand makes them, are no weights, but can be huge.
  if last >= data.size or math.prod(shape) > data.size:
    raise ValueError(f"a tensor of shape {shape} exceeds its storage of {data.size}")
  size = data.itemsize
  array = np.ndarray(
    shape, data.dtype, data.view(np.uint8), offset * size, [s * size for s in strides]
  )
  array.flags.writeable = False
  return array


def _typed_tensor(
  storage: _Storage,
  offset: int,
  shape: tuple,
  strides: tuple,
  gradient: object,
  hooks: object,
  kind: object,
  metadata: object = None,
) -> np.ndarray:
  """A tensor of one of the types that have no storage of their own."""
  name = kind.name if type(kind) is _weight_pickle.Global else reprlib.repr(kind)
  if name not in _TYPES:
    raise ValueError(f"it has a tensor of the type {name}")
  dtype = _TYPES[name]
  return _tensor(
    storage, offset, shape, strides, gradient, hooks, metadata, dtype=dtype
  )


def _still_to_do(metadata: object) -> tuple[bool, bool]:
  """Whether the numbers have yet to be conjugated and negated: torch puts that off."""
  if metadata is None:
    return False, False
  if type(metadata) is not dict or not all(
    name in ("conj", "neg") and type(value) is bool for name, value in metadata.items()
  ):
    raise _weight_pickle.RefusedError(
      f"it has a tensor with unknown metadata, {reprlib.repr(metadata)}"
    )
  return metadata.get("conj", False), metadata.get("neg", False)


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
    ("torch._utils", "_rebuild_tensor_v3", _typed_tensor),
    # Their attributes and hooks are not of the numbers.
    ("torch._utils", "_rebuild_parameter", lambda tensor, *_: tensor),
    ("torch._utils", "_rebuild_parameter_with_state", lambda tensor, *_: tensor),
    *(("torch", name, None) for name in (*_TYPES, *_STORAGES)),
    ("torch.storage", "UntypedStorage", None),
  )
}


class _Archive:
  """Tensors of a zip file: their pickle, and the storages beside it."""

  def __init__(self, archive: zipfile.ZipFile, size: int):
    if len(set(archive.namelist())) < len(archive.namelist()):
      raise ValueError("it has several entries of one name")  # readers differ then
    names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
    if len(names) != 1:
      raise ValueError(
        f"it has {len(names)} entries data.pkl instead of one, by torch.save"
      )
    self._archive = archive
    self._left = size  # bytes that entries can have before some overlap
    self._folder = names[0].removesuffix("data.pkl")
    self._storages: dict[str, tuple[str, _Storage, int]] = {}
    marked = f"{self._folder}byteorder" in archive.namelist()
    order = self._entry("byteorder") if marked else b"little"
    if order not in _ORDERS:
      raise ValueError(f"its order of bytes is {reprlib.repr(order)}")
    self._order = _ORDERS[order]

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
    dtype = _STORAGES[kind.name]
    if key not in self._storages:
      content = self._entry(f"data/{key}")
      self._storages[key] = (
        kind.name,
        _Storage(content, self._order, dtype),
        len(content),
      )
    known, storage, size = self._storages[key]
    if known != kind.name:
      raise ValueError(f"storage {key} has two types, {known} and {kind.name}")
    size //= 1 if dtype is None else np.dtype(dtype).itemsize
    if size < count:
      raise ValueError(f"storage {key} has {size} of {count} numbers")
    return storage
