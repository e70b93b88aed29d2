"""Orbax's part of a checkpoint: the series in a folder, its files, the manifest.

Imported when the first `Checkpoints` is opened: orbax takes longer to import than the
rest of this sub-package.
"""

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint import future

from spherejax.training import _array_file


@dataclasses.dataclass
class _Save(ocp.args.CheckpointArgs):
  """Argument that orbax hands to the handler."""

  arrays: Mapping[str, np.ndarray]


class _Handler(ocp.AsyncCheckpointHandler):
  """Writes the file of arrays as a part of one of orbax's checkpoints."""

  async def async_save(
    self, directory: os.PathLike[str], args: _Save
  ) -> list[future.Future]:
    """Starts writing, as orbax's own handlers do: an error reaches all of them."""
    writing = _array_file.write(directory, args.arrays)
    return [future.CommitFutureAwaitingContractedSignals(writing, name="arrays")]

  def save(self, directory: os.PathLike[str], args: _Save):
    """Raises RuntimeError: the manager calls `async_save`, and waits."""
    raise RuntimeError("the arrays of a checkpoint are written by async_save")

  def restore(self, directory: os.PathLike[str], args: Any = None):
    """Raises RuntimeError: use `read`, which needs the manifest instead of orbax."""
    raise RuntimeError("the arrays of a checkpoint are read by read")


class Series(ocp.CheckpointManager):
  """Writes, lists and reads a series of checkpoints in one folder."""

  def __init__(self, directory: pathlib.Path):
    registry = ocp.handlers.DefaultCheckpointHandlerRegistry()
    registry.add("state", _Save, _Handler())
    registry.add("state", ocp.args.StandardRestore, ocp.StandardCheckpointHandler())
    for kind in (ocp.args.JsonSave, ocp.args.JsonRestore):
      registry.add("manifest", kind, ocp.JsonCheckpointHandler())
    # The checkpoints to keep are chosen by `Checkpoints`, once the new one has been
    # read back.
    options = ocp.CheckpointManagerOptions(
      max_to_keep=None, enable_async_checkpointing=False
    )
    super().__init__(directory, handler_registry=registry, options=options)

  def write(
    self, step: int, arrays: Mapping[str, np.ndarray], manifest: dict[str, Any]
  ):
    """Writes a checkpoint, and waits until it is complete."""
    args = ocp.args.Composite(state=_Save(arrays), manifest=ocp.args.JsonSave(manifest))
    self.save(step, args=args, force=True)

  def manifest(self, step: int) -> dict[str, Any]:
    """Reads what describes the arrays of a checkpoint."""
    args = ocp.args.Composite(manifest=ocp.args.JsonRestore())
    return dict(self.restore(step, args=args)["manifest"])

  def tensorstore_arrays(
    self, step: int, stored: Mapping[str, Any]
  ) -> dict[str, np.ndarray]:
    """Reads the arrays of the first two layouts."""
    target = {
      name: np.empty(entry["shape"], np.dtype(entry["dtype"]))
      for name, entry in stored.items()
    }
    args = ocp.args.Composite(state=ocp.args.StandardRestore(target))
    return self.restore(step, args=args)["state"]
