"""Tensors, and the storages that they are cut from, as files of torch name them."""

import math
import reprlib
from typing import Any

import jax.numpy as jnp
import numpy as np

from spherejax.models import _weight_pickle

# torch's storage types and the NumPy types of their numbers. Storages without a type
# belong to tensors that name their own type, one of `_TYPES`.
STORAGES = {
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
_MOST_AXES = 64  # limit of NumPy arrays


class Storage:
  """Memory that tensors of a file are cut from.

  Args:
    content: the bytes.
    order: of the bytes within a number, ">" or "<".
    dtype: of the numbers; None where each tensor names it.
  """

  def __init__(self, content: bytes, order: str, dtype: Any):
    self.dtype = dtype
    self._content, self._order = content, order
    self._numbers: dict[tuple[str, bool, bool], np.ndarray] = {}

  def numbers(self, dtype: Any, conj: bool, neg: bool) -> np.ndarray:
    """Reads all numbers; once per use, as a file may name a storage many times."""
    dtype = np.dtype(dtype)
    key = dtype.name, conj, neg
    if key not in self._numbers:
      parts = 2 if dtype.kind == "c" else 1
      bits = f"u{dtype.itemsize // parts}"  # bfloat16 has no byte order
      count = len(self._content) // dtype.itemsize * parts
      data = np.frombuffer(self._content, self._order + bits, count)
      data = data.astype(bits, copy=False).view(dtype)
      data = np.conjugate(data) if conj and parts == 2 else data
      self._numbers[key] = np.negative(data) if neg else data
    return self._numbers[key]


def _tensor(
  storage: Storage,
  offset: int,
  shape: tuple,
  strides: tuple,
  _needs_gradient: object,
  _hooks: object,
  metadata: object = None,
  *,
  dtype: Any = None,
) -> np.ndarray:
  # Only a storage, whose memory is known: views of views could leave it.
  if type(storage) is not Storage:
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
    kinds = ", ".join(
      f"{name} {reprlib.repr(value)}"
      for name, value in (("shape", shape), ("strides", strides), ("offset", offset))
    )
    raise ValueError(f"tensor of {kinds}")
  data = storage.numbers(dtype, *_still_to_do(metadata))
  if 0 in shape:
    return np.zeros(shape, data.dtype)
  last = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
  # Expanded copies of one entry are no weights, but can be huge.
  if last >= data.size or math.prod(shape) > data.size:
    raise ValueError(f"a tensor of shape {shape} exceeds its storage of {data.size}")
  size = data.itemsize
  array = np.ndarray(
    shape, data.dtype, data.view(np.uint8), offset * size, [s * size for s in strides]
  )
  array.flags.writeable = False
  return array


def _typed_tensor(
  storage: Storage,
  offset: int,
  shape: tuple,
  strides: tuple,
  gradient: object,
  hooks: object,
  kind: object,
  metadata: object = None,
) -> np.ndarray:
  """Builds a tensor of a type that has no storage type of its own."""
  name = kind.name if type(kind) is _weight_pickle.Global else reprlib.repr(kind)
  if name not in _TYPES:
    raise ValueError(f"it has a tensor of the type {name}")
  dtype = _TYPES[name]
  return _tensor(
    storage, offset, shape, strides, gradient, hooks, metadata, dtype=dtype
  )


def _still_to_do(metadata: object) -> tuple[bool, bool]:
  """Flags: conjugation and negation that torch has deferred."""
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
  """Takes no items: a pickle that repeats a list could fill any memory."""
  return {}


TENSORS = ("_rebuild_tensor_v2", "_rebuild_tensor_v3")
GLOBALS = {
  f"{module} {name}": _weight_pickle.Global(name, call)
  for module, name, call in (
    ("collections", "OrderedDict", _ordered),
    ("torch._utils", "_rebuild_tensor_v2", _tensor),
    ("torch._utils", "_rebuild_tensor_v3", _typed_tensor),
    # Their attributes and hooks do not belong to the numbers.
    ("torch._utils", "_rebuild_parameter", lambda tensor, *_: tensor),
    ("torch._utils", "_rebuild_parameter_with_state", lambda tensor, *_: tensor),
    *(("torch", name, None) for name in (*_TYPES, *STORAGES)),
    ("torch.storage", "UntypedStorage", None),
  )
}
