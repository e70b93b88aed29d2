"""Figures that the papers print."""

import functools
import pathlib
import re
import tomllib
from typing import Any


@functools.cache
def figures(name: str) -> dict[str, Any]:
  """The tables of ``<name>.toml`` beside this file, by their headings."""
  return tomllib.loads((pathlib.Path(__file__).parent / f"{name}.toml").read_text())


def tree_paths(name: str) -> list[tuple[str, ...]]:
  """Paths of all classes of a tree in `trees.toml`, in order of appearance.

  There `a{b, c}` are children, `a/b` is a single child, `a*` a class with children.
  """
  paths, prefix, stack, previous_sign = [], (), [], ""
  notation = " ".join(figures("trees")[name].split())
  for name, sign in re.findall(r"([^{},]*)([{},]|$)", notation):
    parts = tuple(part.strip() for part in name.split("/") if part.strip())
    if parts and previous_sign != "}":
      path = prefix + tuple(part.rstrip("*") for part in parts)
      if sign != "{" or parts[-1].endswith("*"):
        paths.append(path)
      if sign == "{":
        stack.append(prefix)
        prefix = path
    if sign == "}":
      prefix = stack.pop()
    previous_sign = sign
  return paths
