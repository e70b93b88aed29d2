"""What an earlier run of the same command finished, so that a stopped one goes on."""

import hashlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from experiments import _report


def digest(settings: Any) -> str:
  """A short name for settings: a run with others has another folder."""
  return hashlib.sha256(repr(settings).encode()).hexdigest()[:16]


class Finished(NamedTuple):
  """What is kept of one training."""

  figures: dict[str, Any]
  """Whatever JSON holds."""
  arrays: dict[str, np.ndarray]


def restore(path: pathlib.Path, settings: Mapping[str, Any]) -> Finished | None:
  """What was kept under a path, if it was made with the same settings."""
  if not path.with_suffix(".json").is_file() or not path.with_suffix(".npz").is_file():
    return None
  kept = json.loads(path.with_suffix(".json").read_text())
  if kept["settings"] != json.loads(json.dumps(settings)):
    return None
  with np.load(path.with_suffix(".npz")) as arrays:
    return Finished(kept["figures"], dict(arrays))


def keep(path: pathlib.Path, settings: Mapping[str, Any], done: Finished) -> None:
  """Writes the arrays, then the file whose presence says that they are complete."""
  path.parent.mkdir(parents=True, exist_ok=True)
  path.with_suffix(".json").unlink(missing_ok=True)
  np.savez(path.with_suffix(".npz"), allow_pickle=False, **done.arrays)
  content = {"settings": settings, "figures": done.figures}
  _report.write_json(content, path.with_suffix(".json"))
