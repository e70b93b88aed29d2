"""Reads and verifies a checkpoint on the disk."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import jax

from spherejax.training import _array_file, _manifest
from spherejax.training._manifest import State

if TYPE_CHECKING:
  from spherejax.training._orbax import Series

# Also written into each checkpoint, so that a later version knows the layout. The first
# layout had no seal over the metadata; the second kept arrays in tensorstore's files.
FORMAT, _UNSEALED = 3, 1

# Errors of tensorstore after which another start, with more rights or memory, may
# succeed.
_NO_DAMAGE = ("PERMISSION_DENIED", "RESOURCE_EXHAUSTED")


class Restored(NamedTuple):
  """Result of `Checkpoints.restore`.

  Attributes:
    state: the train state, on the default device.
    record: the record stored with it.
  """

  state: State
  record: dict[str, Any]


class UnreadableError(Exception):
  """Raised for a checkpoint whose files are damaged or missing."""


def read(series: "Series", step: int, state: State) -> Restored:
  """Reads and verifies a checkpoint."""
  manifest = _read_manifest(series, step)
  directory = series.directory / str(step)
  if manifest["format"] > FORMAT:  # it is intact, so it is not put aside
    raise ValueError(
      f"the checkpoint {directory} has layout {manifest['format']}, and this version "
      f"reads those up to {FORMAT}: install a newer one"
    )
  stored = manifest["arrays"]
  _manifest.check_same(directory, stored, _manifest.describe(state))
  with _damage_named():
    if _array_file.exists(directory / "state"):
      arrays = dict(_array_file.read(directory / "state", stored))
    else:
      arrays = series.tensorstore_arrays(step, stored)
  if _manifest.checksum(sorted(arrays.items())) != manifest["checksum"]:
    raise UnreadableError("its checksum differs")
  leaves = [
    _manifest.from_host(arrays[name], leaf, stored[name].get("key"))
    for name, leaf in _manifest.named_leaves(state).items()
  ]
  restored = jax.tree.unflatten(jax.tree.structure(state), leaves)
  return Restored(restored, manifest["record"])


def _read_manifest(series: "Series", step: int) -> dict[str, Any]:
  with _damage_named():
    manifest = series.manifest(step)
    seal = manifest.get("seal")
    if seal is None and manifest["format"] != _UNSEALED:
      raise UnreadableError("its seal is missing")
    if seal is not None and seal != _manifest.seal(manifest):
      raise UnreadableError("its metadata are not what was written")
  return manifest


def read_back(series: "Series", step: int, seal: str):
  """Raises if a checkpoint cannot be opened, or holds something else."""
  manifest = _read_manifest(series, step)
  if manifest["seal"] != seal:
    raise UnreadableError("its metadata are not what was written")
  if jax.process_index() == 0:  # it wrote the arrays; reads them one by one
    state = series.directory / str(step) / "state"
    checksum = _manifest.checksum(_array_file.read(state, manifest["arrays"]))
    if checksum != manifest["checksum"]:
      raise UnreadableError("its checksum differs")


@contextlib.contextmanager
def _damage_named() -> Iterator[None]:
  """Reports any failure inside as damage, except a lack of memory or of rights."""
  try:
    yield
  except (MemoryError, PermissionError, UnreadableError):
    raise
  except Exception as error:
    if any(code in str(error) for code in _NO_DAMAGE):
      raise
    raise UnreadableError(str(error)) from error
