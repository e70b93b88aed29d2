"""Reads both formats of torch.save: zip files, and the pickles before torch 1.6."""

import os
import reprlib
import zipfile
from collections.abc import Callable, Mapping
from typing import IO, Any

import numpy as np

from spherejax.models import _weight_pickle
from spherejax.models._weight_tensors import GLOBALS, STORAGES, TENSORS, Storage

_ORDERS = {b"little": "<", b"big": ">"}  # byte orders, as files name them


def load(file: IO[bytes]) -> Any:
  """Reads a file of `torch.save`; raises any exception where it is damaged."""
  size = os.fstat(file.fileno()).st_size
  if file.read(2) != b"PK":
    file.seek(0)
    return Stream(file, size).load()
  with zipfile.ZipFile(file) as archive:
    return Archive(archive, size).load()


class Archive:
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
    self._left = size  # entries with more bytes in total would overlap
    self._folder = names[0].removesuffix("data.pkl")
    self._storages: dict[str, tuple[str, Storage, int]] = {}
    marked = f"{self._folder}byteorder" in archive.namelist()
    order = self._entry("byteorder") if marked else b"little"
    if order not in _ORDERS:
      raise ValueError(f"its order of bytes is {reprlib.repr(order)}")
    self._order = _ORDERS[order]

  def load(self) -> Any:
    return _weight_pickle.Reader(GLOBALS, self._stored).load(self._entry("data.pkl"))

  def _entry(self, name: str) -> bytes:
    entry = self._archive.getinfo(self._folder + name)
    if entry.compress_type != zipfile.ZIP_STORED:
      raise ValueError(f"{name} is compressed, which torch does not do")
    self._left -= max(entry.file_size, entry.compress_size)
    if self._left < 0:
      raise ValueError(f"{name} and what was read before are larger than the file")
    return self._archive.read(entry)

  def _stored(self, pid: Any) -> Storage:
    *address, count = pid
    kind, key = _address(address)
    if key not in self._storages:
      content = self._entry(f"data/{key}")
      dtype = STORAGES[kind]
      self._storages[key] = kind, Storage(content, self._order, dtype), len(content)
    known, storage, size = self._storages[key]
    if known != kind:
      raise ValueError(f"storage {key} has two types, {known} and {kind}")
    size //= _item_size(kind)
    if size < count:
      raise ValueError(f"storage {key} has {size} of {count} numbers")
    return storage


_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
# Start of a file of the format before torch 1.6, after pickle's own first bytes.
MAGIC_BYTES = _MAGIC.to_bytes(10, "little")
# The first reading only lists the storages, so it builds no tensors.
_NAMES_ALONE = {
  name: known._replace(call=lambda *_: None) if known.name in TENSORS else known
  for name, known in GLOBALS.items()
}


class Stream:
  """Tensors of a file in the format before torch 1.6.

  Five pickles follow one another: a magic number, the protocol, facts about the system,
  the tensors, and the order of the storages. Then come the storages, each preceded by
  the number of its entries. Only the tensors' pickle says how large an entry is, so it
  is read twice. Numbers are little-endian on every system.
  """

  def __init__(self, file: IO[bytes], size: int):
    self._file, self._size = file, size
    self._kinds: dict[str, tuple[str, int]] = {}
    self._storages: dict[str, Storage] = {}

  def load(self) -> Any:
    if (self._pickle(), self._pickle()) != (_MAGIC, _PROTOCOL):
      raise ValueError("it does not begin as torch's files of protocol 1001 do")
    self._pickle()  # facts about the system, which torch does not use either
    start = self._file.tell()
    self._pickle(_NAMES_ALONE, self._announced)
    keys = self._pickle()
    if type(keys) is not list or any(type(key) is not str for key in keys):
      raise ValueError(f"its list of storages is {reprlib.repr(keys)}")
    if len(keys) != len(self._kinds) or set(keys) != set(self._kinds):
      raise ValueError("it lists other storages than its tensors name")
    for key in keys:
      kind, count = self._kinds[key]
      there = int.from_bytes(self._exactly(8), "little")
      if there != count:
        raise ValueError(f"storage {key} has {there} of {count} numbers")
      content = self._exactly(count * _item_size(kind))
      self._storages[key] = Storage(content, "<", STORAGES[kind])
    self._file.seek(start)
    return self._pickle(GLOBALS, lambda pid: self._storages[pid[2]])

  def _pickle(
    self,
    known: Mapping[str, _weight_pickle.Global] = GLOBALS,
    stored: Callable[[Any], Any] = lambda _: None,
  ) -> Any:
    return _weight_pickle.Reader(known, stored).load(self)

  def _announced(self, pid: Any) -> None:
    *address, count, view = pid
    kind, key = _address(address)
    if view is not None:
      raise _weight_pickle.RefusedError("it has views of storages, of torch before 0.4")
    if type(count) is not int or self._kinds.setdefault(key, (kind, count)) != (
      kind,
      count,
    ):
      raise ValueError(f"storage {key} has two types or sizes")

  def _exactly(self, size: int) -> bytes:
    content = self.read(size) if size >= 0 else b""
    if len(content) != size:
      raise ValueError(f"it ends within a storage, {len(content)} of {size} bytes")
    return content

  # Called by pickletools.

  def read(self, size: int) -> bytes:
    """Reads at most what is left: an announced size reserves no memory."""
    return self._file.read(min(size, self._size - self._file.tell()))

  def readline(self) -> bytes:
    return self._file.readline()

  def tell(self) -> int:
    return self._file.tell()


def _address(address: list[Any]) -> tuple[str, str]:
  """Type and key of a storage that a pickle names."""
  tag, kind, key, _ = address
  if tag != "storage" or type(key) is not str or kind.name not in STORAGES:
    raise ValueError(f"unknown storage {reprlib.repr(address)}")
  return kind.name, key


def _item_size(kind: str) -> int:
  dtype = STORAGES[kind]
  return 1 if dtype is None else np.dtype(dtype).itemsize
