"""Readers of class trees from mappings, paths, rows and CSV files."""

import csv
import os
import pathlib
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from spherejax import _checks
from spherejax.hierarchy import _tree

ROOT = "root"

Branch = Mapping[str, Any] | Sequence[str] | None


def from_mapping(
  tree: Branch, *, classes: Sequence[str] | None = None
) -> _tree.ClassTree:
  """Builds a tree from nested mappings; the outermost keys are children of the root.

  Args:
    tree: maps each name to its children: another mapping, a sequence of names, or None
      for a leaf.
    classes: names of the classes in the order of their labels. A name stands for the
      leaf of that name, or else for the inner node. None: the leaves in order of
      appearance.

  Returns:
    ClassTree; its root is called "root".

  Raises:
    TypeError: classes not a sequence of names.
    ValueError: no name, one that is not text, a leaf of empty name, a mapping within
      itself, a value other than mappings, sequences and None; a class that is no node,
      names two nodes or occurs twice, a leaf that is no class.

  Source: none.

  Example:
    >>> tree = spherejax.hierarchy.from_mapping(
    ...   {"animal": ["cat", "dog"], "car": None}, classes=["car", "cat", "dog"])
    >>> tree.class_names
    ('car', 'cat', 'dog')
  """
  names, parents = [ROOT], [-1]
  # A stack of branches from the root, as a tree may be deeper than Python's call stack.
  way, above = [(0, tree, _items(ROOT, tree))], {id(tree)}
  while way:
    node, branch, items = way[-1]
    for name, below in items:
      if id(below) in above:
        raise ValueError(f"a tree must have no cycle, got {name!r} below itself")
      names.append(name)
      parents.append(node)
      way.append((len(names) - 1, below, _items(name, below)))
      above.add(id(below))
      break
    else:
      above.remove(id(branch))
      way.pop()
  if len(names) == 1:
    raise ValueError(f"tree must hold a name, got {tree!r}")
  return _tree.build(names, parents, classes)


def _items(name: str, branch: Any) -> Iterator[tuple[str, Any]]:
  """Names below a node, with their own children."""
  text = isinstance(branch, (str, bytes))
  if text or not isinstance(branch, (Mapping, Sequence, type(None))):
    raise ValueError(
      f"tree below {name!r} must be a sequence of names, a mapping or None, got "
      + (repr(branch) if text else type(branch).__name__)
    )
  for child in branch or ():
    if not isinstance(child, str):
      raise ValueError(
        f"names of the tree below {name!r} must be text, got {type(child).__name__}"
      )
  below = branch if isinstance(branch, Mapping) else dict.fromkeys(branch or ())
  if len(below) < len(branch or ()):
    raise ValueError(f"names below {name!r} must differ, got {branch!r}")
  return iter(below.items())


def from_paths(
  paths: Iterable[str | Sequence[str]], *, separator: str = "/"
) -> _tree.ClassTree:
  """Builds a tree from a path for each class, from below the root to the class.

  A node is identified by its whole path, so a name may occur twice. A path that is a
  prefix of another belongs to a class above the other.

  Args:
    paths: one for each class, in the order of the labels: names joined by the
      separator, or a sequence of names.
    separator: between names. Static.

  Returns:
    ClassTree; its root is called "root", even if all paths begin with the same name.

  Raises:
    TypeError: paths not a sequence of names.
    ValueError: no path, the same path twice, or an empty name in a path.

  Source: none.

  Example:
    >>> tree = spherejax.hierarchy.from_paths(["animal/cat", "car", "animal/dog"])
    >>> tree.class_names
    ('cat', 'car', 'dog')
  """
  _several("paths", paths)
  _checks.text("separator", separator)
  if not separator:
    raise ValueError("the separator of a path must have a letter, got ''")
  names, parents = [ROOT], [-1]
  nodes: dict[tuple[int, str], int] = {}
  classes: dict[int, None] = {}
  for entry in paths:
    if not isinstance(entry, str):
      _checks.texts("an entry of paths", entry)
    path = tuple(entry.split(separator) if isinstance(entry, str) else entry)
    if not path or not all(path):
      raise ValueError(f"a path must have no empty name, got {entry!r}")
    node = 0
    for name in path:
      above, node = node, nodes.setdefault((node, name), len(names))
      if node == len(names):
        names.append(name)
        parents.append(above)
    if node in classes:
      raise ValueError(f"class {entry!r} occurs twice")
    classes[node] = None
  if not classes:
    raise ValueError("paths must hold a path, got none")
  return _tree.arrange(names, parents, list(classes), None)


def _several(name: str, values: object) -> None:
  """Raises TypeError unless the value is an iterable of entries other than text."""
  if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
    raise TypeError(f"{name} must be an iterable, got {reprlib.repr(values)}")


def from_edges(
  edges: Iterable[tuple[str, str]], *, classes: Sequence[str] | None = None
) -> _tree.ClassTree:
  """Builds a tree from rows of a node and its parent, in any order.

  Args:
    edges: (child, parent); the parent of the root is the empty string.
    classes: names of the classes in the order of their labels. None: the leaves in the
      order of the rows.

  Returns:
    ClassTree.

  Raises:
    TypeError: edges not pairs of names.
    ValueError: no row; none or several roots, a node with two parents or two rows, a
      parent that is no node, a cycle; a class that is no node or occurs twice, a leaf
      that is no class.

  Source: none.

  Example:
    >>> tree = spherejax.hierarchy.from_edges([("life", ""), ("cat", "life")])
    >>> tree.names
    ('life', 'cat')
  """
  _several("edges", edges)
  above: dict[str, str] = {}
  for edge in edges:
    child, parent = _checks.pair("an entry of edges", edge)
    _checks.texts("an entry of edges", [child, parent])
    if not child:
      raise ValueError(f"a node must have a name, got an empty one below {parent!r}")
    if child in above and above[child] != parent:
      raise ValueError(
        f"node {child!r} must have one parent, got {above[child]!r} and {parent!r}"
      )
    if child in above:
      raise ValueError(f"node {child!r} occurs twice")
    above[child] = parent
  if not above:
    raise ValueError("edges must have a node, got none")
  number = {name: node for node, name in enumerate(above)}
  for child, parent in above.items():
    if parent and parent not in number:
      raise ValueError(f"parent {parent!r} of {child!r} is no node")
  parents = [number[parent] if parent else -1 for parent in above.values()]
  return _tree.build(list(above), parents, classes)


def from_csv(
  path: str | os.PathLike[str], *, classes: Sequence[str] | None = None
) -> _tree.ClassTree:
  r"""Reads a tree from a CSV file with the header `child,parent` and a row per node.

  Args:
    path: the file, in UTF-8. The parent of the root is empty; empty lines are skipped.
    classes: names of the classes in the order of their labels. None: the leaves in the
      order of the rows.

  Returns:
    ClassTree.

  Raises:
    TypeError: path not a path.
    OSError: the file cannot be read.
    ValueError: no text in UTF-8, another header, or a row without exactly two fields;
      a quote that is not closed or is followed by text; a name with a line break or of
      more than 131,072 characters; and whatever `from_edges` refuses.

  Source: none.

  Example:
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "hierarchy.csv"
    >>> path.write_text("child,parent\nlife,\ncat,life\ndog,life\n")
    37
    >>> spherejax.hierarchy.from_csv(path).class_names
    ('cat', 'dog')
  """
  _checks.path("path", path)
  rows = list(_rows(path))
  if not rows or rows[0] != ["child", "parent"]:
    raise ValueError(
      f"{path} must begin with child,parent, got {','.join(rows[0]) if rows else ''!r}"
    )
  edges = []
  for line, row in enumerate(rows[1:], start=2):
    if not row:
      continue
    if len(row) != 2:
      raise ValueError(f"{path}, line {line} must have two fields, got {row}")
    edges.append((row[0], row[1]))
  return from_edges(edges, classes=classes)


def _rows(path: str | os.PathLike[str]) -> Iterator[list[str]]:
  """Fields of each line of a CSV file; an empty line has none."""
  line = 1  # where the row begins: a stray quote is there, not where the row ends
  # Spreadsheets begin a file with a byte order mark.
  with pathlib.Path(path).open(newline="", encoding="utf-8-sig") as file:
    try:
      for row in csv.reader(file, strict=True):
        for field in row:
          if "\n" in field or "\r" in field:
            raise ValueError(
              f"{path}, line {line} must hold names without a line break, got"
              f" {reprlib.repr(field)}; close its quotes"
            )
        yield row
        line += 1
    except csv.Error as error:
      raise ValueError(
        f"{path}, line {line} cannot be read as CSV: {error}; check its quotes"
      ) from error
    except UnicodeDecodeError as error:
      raise ValueError(
        f"{path} cannot be read as CSV in UTF-8: {error}; save it as such"
      ) from error
