"""Figures that the papers print."""

import functools
import pathlib
import tomllib
from typing import Any


@functools.cache
def figures(name: str) -> dict[str, Any]:
  """The tables of ``<name>.toml`` beside this file, by their headings."""
  return tomllib.loads((pathlib.Path(__file__).parent / f"{name}.toml").read_text())
