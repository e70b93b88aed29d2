"""Files that lie beside a prepared image set: its class tree, readable names."""

import os
import pathlib


def newest_file(name: str, file: str) -> pathlib.Path:
  """Path of a file in the newest version of an image set; exits if it is missing."""
  root = pathlib.Path(os.environ.get("TFDS_DATA_DIR", ""), name)
  path = max(root.glob(f"*/{file}"), key=_version, default=None)
  if path is None:
    raise SystemExit(
      f"{root}/*/{file} is missing, which lists the classes of {name}; docs/data.md"
      " says how to prepare it"
    )
  return path


def _version(path: pathlib.Path) -> list[int]:
  """Version numbers of a folder, so that 1.10.0 sorts after 1.9.0; words become -1."""
  parts = path.parent.name.split(".")
  return [int(part) if part.isdecimal() else -1 for part in parts]
