"""Figures that the papers print."""

import functools
import pathlib
import re
import tomllib
from typing import Any

Tables = dict[str, Any]
"""A table, or tables by their headings."""


@functools.cache
def figures(name: str) -> Tables:
  """The tables of ``<name>.toml`` beside this file, by their headings.

  `columns` in a table names the columns of its rows and of those of the tables in it.
  It becomes one table per column; NaN is what the paper does not print.
  """
  file = pathlib.Path(__file__).parent / f"{name}.toml"
  return _by_columns(tomllib.loads(file.read_text()))


def _by_columns(table: Tables) -> Tables:
  if "columns" in table:
    columns = table.pop("columns")
    return {column: _column(table, columns, column) for column in columns}
  return {x: _by_columns(y) if isinstance(y, dict) else y for x, y in table.items()}


def _column(rows: Tables, columns: list[str], column: str) -> Tables:
  numbers = {
    name: _column(row, columns, column)
    if isinstance(row, dict)
    else dict(zip(columns, row, strict=True))[column]
    for name, row in rows.items()
  }
  return {name: number for name, number in numbers.items() if number == number}


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
