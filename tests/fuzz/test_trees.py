"""Readers of class trees: a tree or a ValueError for whatever they are given."""

import collections
import csv
import io
import itertools

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from spherejax import hierarchy
from tests.fuzz import inputs

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("unchecked")]
NAMED = "newick|tree|leaf|class|node|parent|name|path|below|root"
# Few names, so that they meet; and those that separate, quote and end things.
NAMES = st.text("ab", max_size=2) | st.sampled_from(
  ["", "root", "'", "a b", "(", "x" * 3000, "é\n", "\0", "\x1c", "\x85", "[]", "c,d;:"]
)
SIGNS = st.text("(),:;'[] ab1.e-\n\0", max_size=30)
DEEP = 5000  # more than Python's calls


def check(tree):
  """Checks the promises that every reader makes of its tree."""
  count = len(tree.names)
  assert count == len(tree.parents) == len(tree.lengths) > 0
  assert tree.parents[0] == -1
  assert ((tree.parents[1:] >= 0) & (tree.parents[1:] < np.arange(1, count))).all()
  leaves = set(range(count)) - set(tree.parents.tolist())
  assert leaves <= set(tree.classes.tolist())
  assert len(set(tree.classes.tolist())) == len(tree.classes)
  assert all(tree.names[leaf] for leaf in leaves)
  assert np.isfinite(tree.lengths).all()
  assert hierarchy.depths(tree).max() == hierarchy.heights(tree)[0]
  text = hierarchy.to_newick(tree)
  if len({tree.names[leaf] for leaf in leaves}) < len(leaves):  # told apart by paths
    with pytest.raises(ValueError, match="leaves must have different names"):
      hierarchy.from_newick(text)
    return
  again = hierarchy.from_newick(text)
  assert hierarchy.to_newick(again) == text
  nodes = zip(again.names, again.parents.tolist(), again.lengths.tolist(), strict=True)
  assert list(nodes) == by_parents(tree)


def attempt(read, *arguments, named=NAMED, **options):
  """The tree, checked, that a reader makes of its arguments; None after an error."""
  tree = inputs.attempt(named, read, *arguments, **options)
  if tree is not None:
    check(tree)
  return tree


def by_parents(tree):
  """Names, parents and lengths of the nodes, those of a depth in their parents' order.

  The format tells the order of siblings, but not that of cousins.
  """
  below = [[] for _ in tree.names]
  for node in range(1, len(tree.names)):
    below[tree.parents[node]].append(node)
  order = [0]
  for node in order:  # which grows
    order += below[node]
  place = {node: number for number, node in enumerate(order)}
  parents, lengths = tree.parents.tolist(), tree.lengths.tolist()
  return [(tree.names[x], place.get(parents[x], -1), lengths[x]) for x in order]


@inputs.search(
  150,
  st.text()
  | SIGNS
  | inputs.damaged("((cat:1,'a''b':2)animal:0.5,car:3e-1)r;", "((a,b)[x,y],(c)d);"),
)
@inputs.examples("((a),(a));", "(a:nan,b:1);", "(a:1e999,b:1);", "(a,b)r:x;")
@inputs.examples("(" * DEEP, "'" * (2 * DEEP + 1), "[" * DEEP, "[a]" * DEEP + "'")
def test_newick(text):
  attempt(hierarchy.from_newick, text, named="newick|leaves must have different")


@inputs.search(
  100,
  st.sampled_from(["((a,b)c,d)r;", "(a,(a)b);", "((a,b)a,c);"]),
  st.lists(NAMES, max_size=5) | st.permutations(["a", "b", "d", "c"]),
)
def test_classes(text, classes):
  tree = inputs.attempt(NAMED, hierarchy.from_newick, text, classes=classes)
  if tree is not None:
    assert list(tree.class_names) == classes


def cyclic():
  tree = {"a": {"b": None}}
  tree["a"]["c"] = tree
  return tree


def names_in(branch):
  if isinstance(branch, dict):
    return len(branch) + sum(map(names_in, branch.values()))
  return len(branch or ())


ANYTHING = st.recursive(
  st.none() | st.booleans() | st.integers(0, 2) | NAMES | st.lists(NAMES, max_size=3),
  lambda below: (
    st.dictionaries(NAMES | st.integers(0, 1), below, max_size=3)
    | st.lists(below, max_size=3)
  ),
  max_leaves=8,
)
MAPPINGS = st.recursive(
  st.none() | st.lists(NAMES, max_size=3),
  lambda below: st.dictionaries(NAMES, below, max_size=3),
  max_leaves=8,
)


@inputs.search(150, MAPPINGS | ANYTHING)
@inputs.examples({"a": 3}, {"a": False}, {"a": [["x"]]}, {"a": [{"b": None}]})
@inputs.examples({1: None}, {"": None}, {"a": b"bc"}, {"a": {"x", "y"}}, cyclic())
def test_mapping(branch):
  tree = attempt(hierarchy.from_mapping, branch)
  if tree is not None:
    assert len(tree.names) == 1 + names_in(branch)


@inputs.search(100, st.lists(NAMES | st.lists(NAMES, max_size=4), max_size=5), NAMES)
@hypothesis.example([["a"]], "")
def test_paths(paths, separator):
  read, named = hierarchy.from_paths, f"{NAMED}|separator"
  tree = attempt(read, paths, separator=separator, named=named)
  parts = [
    tuple(path.split(separator or None) if isinstance(path, str) else path)
    for path in paths
  ]
  good = bool(separator) and len(parts) == len(set(parts)) > 0
  assert (tree is not None) == (good and all(path and all(path) for path in parts))
  if tree is not None:
    assert tree.class_names == tuple(path[-1] for path in parts)


def is_tree(edges):
  """Rows of child and parent: one root, and all below it."""
  children = collections.defaultdict(list)
  for child, parent in edges:
    children[parent].append(child)
  found = list(children[""])
  for node in found:  # which grows
    found += children[node] if len(found) <= len(edges) else []
  return (
    len(children[""]) == 1
    and "" not in found
    and sorted(found) == sorted({child for child, _ in edges})
    and len(found) == len(edges)
  )


NEAR = st.sampled_from([("r", ""), ("a", "r"), ("b", "a"), ("c", "r"), ("a", "b")])
EDGES = st.lists(st.tuples(NAMES, NAMES), max_size=5) | st.lists(NEAR, max_size=5)


@inputs.search(150, EDGES)
def test_edges(edges):
  tree = attempt(hierarchy.from_edges, edges)
  assert (tree is not None) == is_tree(edges)


@inputs.search(
  100, st.lists(st.integers(-2, 5), max_size=6), st.none() | st.lists(NAMES)
)
@hypothesis.example([-1, 2**70], None)
@hypothesis.example([-1, 0, 3, 0, 1], None)
@hypothesis.example([-1], [""])
def test_parents(parents, names):
  errors = ValueError, TypeError
  tree = attempt(hierarchy.from_parents, parents, names=names, errors=errors)
  if tree is not None:
    edges = [(f"{node}", f"{up}" if up >= 0 else "") for node, up in enumerate(parents)]
    assert is_tree(edges)


GOOD = b'child,parent\nlife,\n"a ""b""",life\r\ndog,life\n'


@inputs.search(150, st.binary() | inputs.damaged(GOOD, b"child,parent\na,\nb,a\nc,b\n"))
@inputs.examples(b"child,parent\n\xff,\n", b"child,parent\n" + b"a" * 200_000 + b",\n")
@inputs.examples(b"child,parent\n\0,\n", b"child,parent\n\0,\n\n\na,\0\n")
@inputs.examples(b"\xef\xbb\xbf" + GOOD, GOOD.decode().encode("utf-16"))
def test_csv(tmp_path, content):
  path = tmp_path / "tree.csv"
  path.write_bytes(content)
  tree = attempt(hierarchy.from_csv, path, named=r"tree\.csv|parent|node|tree must")
  if tree is not None:
    rows = itertools.islice(csv.reader(io.StringIO(content.decode(), "")), 1, None)
    assert sorted(tree.names) == sorted(row[0] for row in rows if row)


def test_deep_trees():
  nested = None
  for _ in range(DEEP):
    nested = {"a": nested}
  chain = [(f"{i}", f"{i + 1}") for i in range(DEEP)]
  for read in (
    lambda: hierarchy.from_newick("(" * DEEP + "a" + ")" * DEEP + ";"),
    lambda: hierarchy.from_mapping(nested),
    lambda: hierarchy.from_paths(["a/" * (DEEP - 1) + "a"]),
    lambda: hierarchy.from_edges([*chain, (f"{DEEP}", "")]),
    lambda: hierarchy.from_parents([*range(1, DEEP + 1), -1]),
  ):
    tree = inputs.attempt_within(DEEP, "", read, errors=())
    check(tree)
    assert hierarchy.depths(tree)[-1] == DEEP
  ring = [*chain, (f"{DEEP}", "0")]
  assert inputs.attempt("cycle", hierarchy.from_edges, ring) is None
