"""Reads and writes trees in the Newick format of phylogenetic programs."""

import math
import re
from collections.abc import Sequence

from spherejax import _checks
from spherejax.hierarchy import _tree

_TOKEN = re.compile(r"\s*(?:\[[^\]]*\]\s*)*([(),:;]|'(?:[^']|'')*'|[^\s(),:;\[\]']+|$)")
_SKIPPED = re.compile(r"\s*(?:\[[^\]]*\]\s*)*")
_PLAIN = re.compile(r"[A-Za-z0-9.+_-]+")


def from_newick(text: str, *, classes: Sequence[str] | None = None) -> _tree.ClassTree:
  """Reads a tree from text in the Newick format: `((cat,dog)animal,car)root;`.

  Names with characters other than letters, digits and `._+-` stand in single quotes,
  within which two quotes mean one. Comments in square brackets are skipped; underscores
  stay.

  Args:
    text: one tree, ending with a semicolon.
    classes: names of the classes in the order of their labels. A name stands for the
      leaf of that name, or else for the inner node. None: the leaves, in their order.

  Returns:
    ClassTree. Lengths are 1 where the text gives none, names of inner nodes "".

  Raises:
    TypeError: text is not a string.
    ValueError: text that is no tree, lengths of some edges only, a length that is no
      finite number, a leaf without a name; a class that is no node, names two nodes or
      occurs twice, a leaf that is no class.

  Source: Olsen 1990, "Newick's 8:45 tree format standard".

  Example:
    >>> tree = spherejax.hierarchy.from_newick("((cat:1,dog:2)animal:0.5,car:3);")
    >>> tree.class_names, tree.lengths
    (('cat', 'dog', 'car'), array([0. , 0.5, 3. , 1. , 2. ]))
  """
  _checks.instance("text", text, str)
  names, parents, length_texts = [""], [-1], [""]
  node, last = 0, "("
  for token, place in _tokens(text):
    here = f"at {place} of {text[:60]!r}"
    if last == ":" and token in "(),:;":
      raise ValueError(f"newick has no number after :, {here}")
    if token == "(":
      if last not in "(,":
        raise ValueError(f"newick has ( after {last!r}, {here}")
      node = _add(names, parents, length_texts, node)
    elif token in "),;" and (parents[node] < 0) != (token == ";"):
      wrong = {
        ")": "one ) is too many",
        ",": "this comma must stand within a pair of them",
        ";": f"the text must close {_open(parents, node)} more by ) before the ;",
      }[token]
      raise ValueError(f"newick has unbalanced parentheses, {here}: {wrong}")
    elif token == ",":
      node = _add(names, parents, length_texts, parents[node])
    elif token == ")":
      node = parents[node]
    elif last == ":":
      length_texts[node] = token
    elif last in ("length", "name") and (
      token not in ":;" or last + token == "length:"
    ):
      raise ValueError(f"newick has {token!r} after a {last}, {here}")
    elif token not in ":;":
      names[node] = token[1:-1].replace("''", "'") if token[0] == "'" else token
    last = token if token in "(),:;" else "length" if last == ":" else "name"
  inner = set(parents)
  for leaf, name in enumerate(names):
    if leaf not in inner and not name:
      raise ValueError(f"newick must name every leaf, got {text[:60]!r}")
  return _tree.build(names, parents, classes, _lengths(names, length_texts))


def _tokens(text: str) -> list[tuple[str, int]]:
  """Signs, names and lengths with their places; raises unless there is one tree."""
  tokens, place = [], 0
  while True:
    match = _TOKEN.match(text, place)
    if match is None:
      raise ValueError(_unclosed(text, place))
    if not match[1]:
      break
    tokens.append((match[1], match.start(1)))
    place = match.end()
  signs = [token for token, _ in tokens]
  if ";" not in signs or signs.index(";") < len(signs) - 1:
    count = signs.count(";")
    remedy = "add the ; at its end" if not count else "read one tree at a time"
    raise ValueError(
      f"text must be one newick tree that ends with ;, got {count} of them in"
      f" {text[-60:]!r}; {remedy}"
    )
  return tokens


def _unclosed(text: str, place: int) -> str:
  """Explains the error at a place where no sign, name or comment is complete."""
  start = _SKIPPED.match(text, place)
  place = place if start is None else start.end()
  kinds = {
    "'": "a quote that the text does not close by another '",
    "[": "a comment that the text does not close by ]",
    "]": "the end of a comment that the text does not begin by [",
  }
  return f"newick has {kinds[text[place]]}, at {place} of {text[:60]!r}"


def _open(parents: list[int], node: int) -> int:
  """Number of parentheses that are open around a node."""
  count = 0
  while parents[node] >= 0:
    node, count = parents[node], count + 1
  return count


def _add(
  names: list[str], parents: list[int], length_texts: list[str], parent: int
) -> int:
  names.append("")
  parents.append(parent)
  length_texts.append("")
  return len(names) - 1


def _lengths(names: list[str], length_texts: list[str]) -> list[float] | None:
  """Numbers of the edges, None where the text gives no length at all."""
  if length_texts[0]:
    _length(
      names[0], length_texts[0]
    )  # no edge is above the root: the length must be a number, but is not used
  if not any(length_texts[1:]):
    return None
  return [0.0, *map(_length, names[1:], length_texts[1:])]


def _length(name: str, text: str) -> float:
  try:
    number = float(text)
  except ValueError:
    number = math.nan
  if not math.isfinite(number):
    raise ValueError(f"newick must give every edge a number, got {text!r} at {name!r}")
  return number


def to_newick(tree: _tree.ClassTree) -> str:
  """Writes a tree as text in the Newick format, with its lengths.

  `from_newick(text, classes=tree.class_names)` reads the same tree from it, if no class
  shares its name with another node. Nodes of equal depth come in the order of their
  parents, as the format keeps only the order of siblings. Classes above other classes
  are named as inner nodes.

  Args:
    tree: a ClassTree.

  Returns:
    One line that ends with a semicolon. Lengths are written to the last digit, and
    left out where all are 1.

  Raises:
    TypeError: tree not a `ClassTree`.

  Source: Olsen 1990, "Newick's 8:45 tree format standard".

  Example:
    >>> tree = spherejax.hierarchy.from_mapping({"animal": ["cat", "dog"], "car": None})
    >>> spherejax.hierarchy.to_newick(tree)
    '((cat,dog)animal,car)root;'
  """
  _checks.instance("tree", tree, _tree.ClassTree)
  plain = bool((tree.lengths[1:] == 1).all())
  text = ""
  below: list[list[str]] = [[] for _ in tree.names]
  # Children come after their parent, so going backwards all children are done first.
  for node in range(len(tree.names) - 1, -1, -1):
    name = tree.names[node]
    quoted = "'" + name.replace("'", "''") + "'"
    label = name if not name or _PLAIN.fullmatch(name) else quoted
    inside = f"({','.join(reversed(below[node]))})" if below[node] else ""
    length = "" if plain or not node else f":{float(tree.lengths[node])!r}"
    text = f"{inside}{label}{length}"
    if node:
      below[tree.parents[node]].append(text)
  return f"{text};"
