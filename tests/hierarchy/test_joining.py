"""Inferred trees give back the tree metrics they were made from."""

import math
from itertools import combinations

import numpy as np
import pytest

from experiments.published import tree_paths
from spherejax import hierarchy


def random_binary_tree(seed, leaves=9):
  """Joins random pairs of nodes until three are left, with positive lengths."""
  rng = np.random.default_rng(seed)
  parents, free = [-1] * leaves, list(range(leaves))
  while len(free) > 1:
    count = 3 if len(free) == 3 else 2
    for _ in range(count):
      parents[free.pop(int(rng.integers(len(free))))] = len(parents)
    free.append(len(parents))
    parents.append(-1)
  tree = hierarchy.from_parents(parents)
  return tree._replace(lengths=np.append(0, rng.uniform(0.1, 1, len(parents) - 1)))


def test_neighbour_joining_gives_random_trees_back():
  for seed in range(30):
    tree = random_binary_tree(seed)
    distances = hierarchy.additive_distances(tree)
    joined = hierarchy.neighbor_joining(distances)
    again = hierarchy.additive_distances(joined)
    np.testing.assert_allclose(again, distances, rtol=0, atol=1e-13)
    assert hierarchy.splits(joined) == hierarchy.splits(tree)
    assert len(hierarchy.splits(tree)) == 9 - 3
    assert joined.class_names == tree.class_names


def joined_by_loops(distances):
  """Lengths of the first two edges, by the sums of Saitou and Nei themselves."""
  d, m = np.asarray(distances, float), len(distances)

  def total(pair):
    """Length of the tree in which these two alone are joined."""
    i, j = pair
    others = [k for k in range(m) if k not in pair]
    length = sum(d[i, k] + d[j, k] for k in others) / (2 * (m - 2)) + d[i, j] / 2
    return length + sum(d[a, b] for a, b in combinations(others, 2)) / (m - 2)

  i, j = min(combinations(range(m), 2), key=total)
  to_others = [sum(d[x, k] for k in range(m) if k not in (i, j)) for x in (i, j)]
  first = (d[i, j] + (to_others[0] - to_others[1]) / (m - 2)) / 2
  return i, j, first, d[i, j] - first


def test_first_join_of_distances_that_are_no_tree():
  least = []
  for seed in range(10):
    x = np.random.default_rng(seed).uniform(size=(7, 7))
    d = np.where(np.eye(7, dtype=bool), 0, x + x.T)
    tree = hierarchy.neighbor_joining(d)
    i, j, first, second = joined_by_loops(d)
    nodes = tree.classes[[i, j]]
    assert tree.parents[nodes[0]] == tree.parents[nodes[1]]
    np.testing.assert_allclose(tree.lengths[nodes], [first, second], rtol=1e-10)
    least.append(tree.lengths.min())
  assert min(least) < 0


@pytest.mark.parametrize(
  ("name", "count", "ultrametric"),
  [("CIFAR_100", 29, True), ("MICRO_S", 32, False), ("MICRO_L", 33, False),
   ("MESO_Z", 20, False)],
)  # fmt: skip
def test_trees_of_the_article(name, count, ultrametric):
  tree = hierarchy.from_paths(tree_paths(name))
  distances = hierarchy.path_distances(tree)
  names = [f"c{i}" for i in range(len(tree.classes))]
  joined = hierarchy.neighbor_joining(distances, names=names)
  again = hierarchy.additive_distances(joined)
  np.testing.assert_allclose(again, distances, rtol=0, atol=1e-10)
  given = hierarchy.splits(tree)
  assert len(given) == count
  assert hierarchy.splits(joined, tol=1e-9) == given
  inner = len(tree.classes) - 3
  full = hierarchy.splits(joined)
  assert len(full) == inner
  assert hierarchy.split_recall(full, given) == 1
  distance = hierarchy.robinson_foulds(full, given, normalize=True)
  np.testing.assert_allclose(distance, (inner - count) / (inner + count))
  if name == "CIFAR_100":
    np.testing.assert_allclose(distance, 0.540, atol=5e-4)
  error = np.abs(hierarchy.additive_distances(hierarchy.upgma(distances)) - distances)
  assert (error.max() < 1e-9) == ultrametric
  if name == "MESO_Z":
    np.testing.assert_allclose(error.max(), 2.6, atol=0.05)


def linked_by_loops(distances):
  """Heights at which two classes are in one group, by average linkage."""
  groups, heights = [(i,) for i in range(len(distances))], np.zeros_like(distances)
  while len(groups) > 1:
    means = {pair: distances[np.ix_(*pair)].mean() for pair in combinations(groups, 2)}
    a, b = min(means, key=means.get)
    heights[np.ix_(a, b)] = means[a, b]
    groups = [group for group in groups if group not in (a, b)] + [a + b]
  return heights + heights.T


def test_average_linkage():
  x = np.random.default_rng(1).normal(size=(8, 3))
  d = np.linalg.norm(x[:, None] - x[None], axis=2)
  tree = hierarchy.upgma(d, names=list("abcdefgh"))
  assert tree.class_names == tuple("abcdefgh")
  linked = hierarchy.additive_distances(tree)
  np.testing.assert_allclose(linked, linked_by_loops(d), rtol=1e-12, atol=1e-12)


def test_robinson_foulds_is_a_metric():
  sets = [hierarchy.splits(random_binary_tree(seed, 7)) for seed in range(6)]
  rf = np.array([[hierarchy.robinson_foulds(a, b) for b in sets] for a in sets])
  assert (np.diagonal(rf) == 0).all()
  assert (rf == rf.T).all()
  assert (rf[:, None] <= rf[:, :, None] + rf[None]).all()
  assert rf.max() > 4


def test_small_and_flat_trees():
  two = hierarchy.neighbor_joining(np.array([[0.0, 3.0], [3.0, 0.0]]))
  np.testing.assert_allclose(hierarchy.additive_distances(two), [[0, 3], [3, 0]])
  flat = hierarchy.from_mapping({"a": None, "b": None, "c": None, "d": None})
  assert hierarchy.splits(flat) == frozenset()
  assert np.isnan(hierarchy.split_recall(frozenset(), frozenset()))
  assert np.isnan(hierarchy.robinson_foulds(frozenset(), frozenset(), normalize=True))
  joined = hierarchy.neighbor_joining(hierarchy.path_distances(flat))
  assert hierarchy.splits(joined, tol=1e-9) == frozenset()
  # An edge parts the classes wherever the root is.
  rooted = hierarchy.from_newick("((a,b),((c,d),e));")
  assert hierarchy.splits(rooted) == {frozenset({2, 3, 4}), frozenset({2, 3})}


def test_short_edges_are_contracted_wherever_the_root_is():
  for text in (
    "((a:1,b:1):0.6,(c:1,d:1):0.6);",
    "((a:1,b:1):1.2,c:1,d:1);",
    "(((a:1,b:1):0.6):0.6,c:1,d:1);",
  ):
    tree = hierarchy.from_newick(text)
    for tol in (1.0, None):
      assert hierarchy.splits(tree, tol=tol) == {frozenset({2, 3})}
    assert hierarchy.splits(tree, tol=1.2) == set()


@pytest.mark.parametrize(
  ("tol", "error", "message"),
  [
    (math.nan, ValueError, "tol must be in .*, got nan"),
    (math.inf, ValueError, "tol must be in .*, got inf"),
    ("x", TypeError, "tol must be a number, got 'x'"),
    (np.array([0.1, 0.2]), TypeError, "tol must be a static number, got array"),
  ],
)
def test_a_tolerance_is_a_number(tol, error, message, unchecked):
  tree = hierarchy.from_newick("((a:1,b:1):1.2,c:1,d:1);")
  with pytest.raises(error, match=message):
    hierarchy.splits(tree, tol=tol)
