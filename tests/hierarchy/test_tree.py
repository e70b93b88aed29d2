"""Class trees: every reader gives the same tree, and every bad one is named."""

import numpy as np
import pytest

from spherejax import hierarchy, losses
from tests import refusals

EDGES = [
  ("life", ""), ("plant", "life"), ("cat", "animal"), ("animal", "life"),
  ("oak", "plant"), ("manx", "cat"), ("dog", "animal"),
]  # fmt: skip
LEAVES = ("oak", "manx", "dog")


def shape(tree):
  """Content of a tree, without the order of its nodes."""
  names = np.array([*tree.names, ""])
  edges = sorted(zip(tree.names, names[tree.parents], strict=True))
  return edges, tree.class_names, dict(zip(tree.names, tree.lengths, strict=True))


def test_every_reader_gives_the_same_tree(tmp_path):
  given = hierarchy.from_edges(EDGES, classes=LEAVES)
  path = tmp_path / "hierarchy.csv"
  path.write_text("\n".join(f"{a},{b}" for a, b in [("child", "parent"), *EDGES]))
  marked = tmp_path / "from_a_spreadsheet.csv"
  marked.write_text(path.read_text() + "\n\n", encoding="utf-8-sig")
  nested = {"plant": ["oak"], "animal": {"cat": {"manx": None}, "dog": []}}
  names = [name for name, _ in EDGES]
  rows = [names.index(parent) if parent else -1 for _, parent in EDGES]
  trees = [
    hierarchy.from_csv(path, classes=LEAVES),
    hierarchy.from_csv(path),
    hierarchy.from_csv(marked),
    hierarchy.from_parents(rows, names=names, classes=LEAVES),
    hierarchy.from_newick("((oak)plant,((manx)cat,dog)'animal')life;", classes=LEAVES),
    hierarchy.from_newick(hierarchy.to_newick(given), classes=LEAVES),
  ]
  for tree in trees:
    assert shape(tree) == shape(given)
    assert (tree.parents[1:] < np.arange(1, 7)).all()
    assert tree.parents[0] == -1
  # These have no name of the root.
  names[0] = "root"
  expected = shape(hierarchy.from_parents(rows, names=names, classes=LEAVES))
  assert shape(hierarchy.from_mapping(nested)) == expected
  paths = ["plant/oak", ("animal", "cat", "manx"), "animal/dog"]
  assert shape(hierarchy.from_paths(paths)) == expected
  assert hierarchy.from_edges(EDGES).class_names == LEAVES
  with pytest.raises(ValueError, match="read-only"):
    given.parents[0] = 3


def test_paths_know_nodes_by_the_whole_path():
  tree = hierarchy.from_paths(["a/a", "b/a/x", "b"])
  assert tree.class_names == ("a", "x", "b")
  assert hierarchy.path_distances(tree).tolist() == [[0, 5, 3], [5, 0, 2], [3, 2, 0]]
  assert hierarchy.depths(tree)[tree.classes].tolist() == [2, 3, 1]
  assert hierarchy.from_paths(["a/b"]).names == ("root", "a", "b")


def test_depths_heights_and_ancestors():
  tree = hierarchy.from_edges(EDGES, classes=[*LEAVES, "cat"])
  levels = zip(hierarchy.depths(tree), hierarchy.heights(tree), strict=True)
  assert dict(zip(tree.names, levels, strict=True)) == {
    "life": (0, 3), "plant": (1, 1), "animal": (1, 2), "oak": (2, 0), "cat": (2, 1),
    "dog": (2, 0), "manx": (3, 0),
  }  # fmt: skip
  above = {
    name: {tree.names[v] for v in np.flatnonzero(row)}
    for name, row in zip(tree.class_names, hierarchy.ancestors(tree), strict=True)
  }
  assert above == {
    "oak": {"life", "plant", "oak"},
    "manx": {"life", "animal", "cat", "manx"},
    "dog": {"life", "animal", "dog"},
    "cat": {"life", "animal", "cat"},
  }
  coarse = [
    " ".join(tree.names[node] for node in hierarchy.at_depth(tree, depth))
    for depth in (0, 1, 2, 9)
  ]
  assert coarse == [
    "life life life life",
    "plant animal animal animal",
    "oak cat dog cat",
    "oak manx dog cat",
  ]
  below = hierarchy.classes_below(tree, "cat", "plant")
  assert below.tolist() == [True, True, False, True]


def test_a_part_of_a_tree_and_classes_made_leaves():
  tree = hierarchy.from_edges(EDGES, classes=[*LEAVES, "cat"])
  part = hierarchy.restrict(tree, ["dog", "cat"])
  assert part.names == ("life", "animal", "cat", "dog")
  assert part.class_names == ("dog", "cat")
  assert part.parents.tolist() == [-1, 0, 1, 1]
  leafy = hierarchy.as_leaves(tree)
  assert leafy.class_names == tree.class_names
  assert hierarchy.path_distances(leafy)[3].tolist() == [5, 2, 3, 0]
  uniform = np.zeros((1, 4), np.float32)
  with pytest.raises(ValueError, match="got 3 above another"):
    losses.hierarchical_cross_entropy(uniform, np.array([3]), hierarchy.ancestors(tree))
  # Way down: 3 of 4 classes, 2 of 3 at cat, 1 of 2.
  above, label = hierarchy.ancestors(leafy), np.array([3])
  loss = losses.hierarchical_cross_entropy(uniform, label, above, alpha=1.0)
  ways = np.log([4 / 3, 3 / 2, 2])
  np.testing.assert_allclose(loss, [ways @ np.exp([-1, -2, -3])], rtol=1e-6)


def test_classes_that_do_not_fit_are_named():
  for classes, culprit in (
    ([*LEAVES, "yew"], "class 'yew' is no node"),
    ([*LEAVES, "oak"], "class 'oak' occurs twice, as 0 and 3"),
    (LEAVES[:2], "leaf 'dog' must be a class"),
  ):
    with pytest.raises(ValueError, match=culprit):
      hierarchy.from_edges(EDGES, classes=classes)


def test_files_of_a_spreadsheet(tmp_path):
  path = tmp_path / "tree.csv"
  path.write_text('child,parent\r\n"a, b",\r\n"c ""d""","a, b"\r\n')
  assert hierarchy.from_csv(path).names == ("a, b", 'c "d"')
  for text, culprit in (
    ("node,above\na,\n", "must begin with child,parent"),
    ("child,parent\na,\nb,a,c\n", "line 3 must have two fields"),
    ('child,parent\na,\n"b,a\nc",a\n', r"tree\.csv, line 3 .* break, got 'b,a\\nc'"),
    ('child,parent\na,\n"b\r",a\n', r"tree\.csv, line 3 .* break, got 'b\\r'"),
    ('child,parent\na,\nb,"a', r"tree\.csv, line 3 cannot be .*unexpected end of data"),
    ('child,parent\n"b"x,a\na,\n', r"tree\.csv, line 2 cannot be .*',' expected"),
  ):
    path.write_text(text)
    refusals.check(lambda: hierarchy.from_csv(path), culprit)


def test_newick_keeps_names_and_lengths_of_deep_trees():
  names = ["it's", "a b", "x:y", "l(1)", "debris_diat", ""]
  tree = hierarchy.from_parents([-1, 0, 0, 5, 5, 1], names=names)
  tree = tree._replace(lengths=np.array([0, 0.1, -1e-17, 1 / 3, 2e30, 5]))
  text = hierarchy.to_newick(tree)
  assert text.count("''") == 1
  assert shape(hierarchy.from_newick(text, classes=tree.class_names)) == shape(tree)
  cousins = hierarchy.from_parents([-1, 0, 3, 0, 1])  # of a depth, in the given order
  assert cousins.names == ("0", "1", "3", "2", "4")
  deep = hierarchy.from_parents([-1, *range(5000)])
  assert hierarchy.heights(hierarchy.from_newick(hierarchy.to_newick(deep)))[0] == 5000
  assert hierarchy.from_newick(" ( a [x,y] , b ) r ; ").names == ("r", "a", "b")


@pytest.mark.parametrize(
  ("text", "match"),
  [
    ("((a,b),c", "ends with ;, got 0 of them in '.*'; add the ;"),
    ("(a,b)", "ends with ;, got 0 of them"),
    ("", "ends with ;, got 0 of them"),
    ("(a,b);(c,d);", "ends with ;, got 2 of them in '.*'; read one tree at a time"),
    ("((a,b),c;", r"unbalanced parentheses, at 8 of .*: .* close 1 more by \) before"),
    ("(((a,b;", r"unbalanced parentheses, at 6 of .*: .* close 3 more by \) before"),
    ("(a,b));", r"unbalanced parentheses, at 5 of .*: one \) is too many"),
    ("a,b;", "unbalanced parentheses, at 1 of .*: this comma must stand within"),
    ("(a, 'b);", "a quote that the text does not close by another ', at 4 of "),
    ("(a [x,b);", r"a comment that the text does not close by \], at 3 of "),
    ("(a,b] );", r"the end of a comment that the text does not begin by \[, at 4"),
    *(
      (text, "newick")
      for text in ("(a,b);c;", "(a,,b);", "(a b,c);", "(a)(b);", "(a:1,b);",
                   "(a:1,b:x);", "(a:,b:1);", "(a:1:2,b:1);")
    ),
  ],
)  # fmt: skip
def test_newick_says_what_is_not_closed(text, match):
  with pytest.raises(ValueError, match=match):
    hierarchy.from_newick(text)


@pytest.mark.data
def test_trees_of_the_image_sets(tfds_dir):
  figures = {}
  for path in sorted(tfds_dir.glob("*/*/hierarchy.csv")):
    names = (path.parent / "label.labels.txt").read_text().split("\n")
    tree = hierarchy.from_csv(path, classes=[name for name in names if name])
    depth = hierarchy.depths(tree)[tree.classes]
    inner = len(tree.names) - len(tree.classes)
    figures[path.parts[-3]] = (len(tree.classes), inner, depth.min(), depth.max())
  assert figures == {
    "cars196": (196, 10, 2, 2),
    "cub_birds100": (100, 44, 3, 3),
    "cifar10": (10, 9, 3, 3),
    "cifar100": (100, 21, 2, 2),
    "ndsb_plankton": (121, 45, 2, 6),
    "omniglot": (1623, 51, 2, 2),
    "tiny_imagenet": (200, 93, 3, 10),
  }
