"""The class trees of DIST, article IV, without that of NABirds, which it brings itself.

`trees.toml` has them and says how they are written.
"""

import pathlib
import re
import tomllib

_TREES: dict[str, str] = tomllib.loads(
  pathlib.Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
MICRO_S = _TREES["MICRO_S"]
MICRO_L = _TREES["MICRO_L"]
MESO_Z = _TREES["MESO_Z"]
CIFAR_100 = _TREES["CIFAR_100"]


def paths(notation: str) -> list[tuple[str, ...]]:
  """One path for each class, in order of appearance."""
  found, prefix, stack, before = [], (), [], ""
  for name, sign in re.findall(r"([^{},]*)([{},]|$)", " ".join(notation.split())):
    parts = tuple(part.strip() for part in name.split("/") if part.strip())
    if parts and before != "}":
      path = prefix + tuple(part.rstrip("*") for part in parts)
      if sign != "{" or parts[-1].endswith("*"):
        found.append(path)
      if sign == "{":
        stack.append(prefix)
        prefix = path
    if sign == "}":
      prefix = stack.pop()
    before = sign
  return found
