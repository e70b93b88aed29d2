"""The class trees of DIST, article IV, without that of NABirds, which it brings itself.

`a{b, c}` are children, `a/b` is a single child, `a*` a class with children. The
plankton trees are read off the article's pictures and its released class lists, with
their spelling. CIFAR-100 has its 20 superclasses of five classes under two levels.
"""

import re

from experiments.published import figures

_NOTATIONS = figures("trees")
MICRO_S: str = _NOTATIONS["MICRO_S"]
MICRO_L: str = _NOTATIONS["MICRO_L"]
MESO_Z: str = _NOTATIONS["MESO_Z"]
CIFAR_100: str = _NOTATIONS["CIFAR_100"]


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
