"""A class tree's picture: every class once, in order, and names that do not touch."""

import itertools

import numpy as np

from spherejax import hierarchy, plotting

TREE = hierarchy.from_paths(["a/b/one", "a/b/two", "a/three", "d/four", "d/five"])


def texts(figure):
  return {text.get_text(): text for text in figure.axes[0].texts}


def edges(figure):
  """Horizontal lines as (start, end, row), and vertical ones as (place, low, high)."""
  lines = [np.array(line.get_data()) for line in figure.axes[0].lines]
  flat = sorted((*x, y[0]) for x, y in lines if y[0] == y[1])
  return flat, sorted((x[0], *y) for x, y in lines if y[0] != y[1])


def test_layout():
  figure = plotting.class_tree(TREE, title="letters")
  flat, upright = edges(figure)
  rows = {"one": 0, "two": 1, "three": 2, "four": 3, "five": 4}
  rows |= {"b": 0.5, "a": 1.25, "d": 3.5}
  start = {"a": 0, "d": 0, "b": 1, "three": 1, "four": 1, "five": 1, "one": 2, "two": 2}
  assert flat == sorted((start[n], start[n] + 1, rows[n]) for n in start)
  assert upright == [(0, 1.25, 3.5), (1, 0.5, 2), (1, 3, 4), (2, 0, 1)]
  found = texts(figure)
  assert set(found) == set(start)
  for name, text in found.items():
    assert text.xy == (start[name] + 1, rows[name])
  top = [found[name].get_color() for name in ("a", "b", "one", "three")]
  assert len(set(top)) == 1
  assert found["d"].get_color() == found["five"].get_color() != top[0]
  assert figure.axes[0].get_title(loc="left") == "letters"


def test_groups_lengths_and_depth():
  tree = TREE._replace(lengths=np.array([0, 0.5, 0.25, 1, -0.25, 2, 3, 4, 5]))
  figure = plotting.class_tree(tree, groups=np.array([0, 1, 0, 2, 2]))
  # Nodes by depth: root, a, d, b, three, four, five, one, two.
  ends = dict(zip(TREE.names, [0, 0.5, 0.25, 1.5, 0.25, 2.25, 3.25, 5.5, 6.5],
                  strict=True))  # fmt: skip
  for name, text in texts(figure).items():
    np.testing.assert_allclose(text.xy[0], ends[name])
  colour = {name: text.get_color() for name, text in texts(figure).items()}
  assert colour["one"] == colour["three"] != colour["two"]
  assert colour["d"] == colour["four"] == colour["five"]
  assert colour["b"] not in (colour["one"], colour["two"])
  short = plotting.class_tree(TREE, max_depth=1)
  assert list(texts(short)) == ["a (3 classes)", "d (2 classes)"]


def test_names_of_a_long_tree_do_not_touch():
  paths = [f"group {i // 9}/class number {i}" for i in range(70)]
  figure = plotting.class_tree(hierarchy.from_paths(paths))
  width, height = figure.get_size_inches()
  assert width < 8
  assert height > 10
  figure.canvas.draw()
  shown = texts(figure)
  boxes = [shown[name].get_window_extent() for name in shown if name[:5] == "class"]
  boxes.sort(key=lambda box: box.y0)
  assert len(boxes) == 70
  for lower, upper in itertools.pairwise(boxes):
    assert lower.y1 <= upper.y0 + 1
  assert max(box.x1 for box in boxes) <= figure.bbox.x1
