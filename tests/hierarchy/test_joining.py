"""Inferred trees give back the tree metrics they were made from."""

import math

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
  lengths = np.append(0, rng.uniform(0.1, 1, len(parents) - 1))
  return tree._replace(lengths=lengths)


def test_neighbour_joining_gives_random_trees_back():
  for seed in range(30):
    tree = random_binary_tree(seed)
    distances = hierarchy.additive_distances(tree)
    joined = hierarchy.neighbor_joining(distances)
    np.testing.assert_allclose(
      hierarchy.additive_distances(joined), distances, rtol=0, atol=1e-13
    )
    assert hierarchy.splits(joined) == hierarchy.splits(tree)
    assert len(hierarchy.splits(tree)) == 9 - 3
    assert joined.class_names == tree.class_names


def joined_by_loops(distances):
  """Lengths of the first two edges, by the sums of Saitou and Nei themselves."""
  d, m = np.asarray(distances, float), len(distances)
  best = None
  for i in range(m):
    for j in range(i + 1, m):
      others = [k for k in range(m) if k not in (i, j)]
      # Total length of the tree in which i and j alone are joined.
      total = sum(d[i, k] + d[j, k] for k in others) / (2 * (m - 2)) + d[i, j] / 2
      total += sum(d[k, q] for k in others for q in others if k < q) / (m - 2)
      if best is None or total < best[0] - 1e-12:
        best = (total, i, j)
  _, i, j = best
  to_others = [sum(d[x, k] for k in range(m) if k not in (i, j)) for x in (i, j)]
  first = (d[i, j] + (to_others[0] - to_others[1]) / (m - 2)) / 2
  return i, j, first, d[i, j] - first


def test_first_join_of_distances_that_are_no_tree():
  seen_negative = False
  for seed in range(10):
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(7, 7))
    d = np.where(np.eye(7, dtype=bool), 0, x + x.T)
    tree = hierarchy.neighbor_joining(d)
    i, j, first, second = joined_by_loops(d)
    nodes = tree.classes[[i, j]]
    assert tree.parents[nodes[0]] == tree.parents[nodes[1]]
    np.testing.assert_allclose(tree.lengths[nodes], [first, second], rtol=1e-10)
    seen_negative |= bool((tree.lengths < 0).any())
  assert seen_negative


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
  np.testing.assert_allclose(
    hierarchy.additive_distances(joined), distances, rtol=0, atol=1e-10
  )
  given = hierarchy.splits(tree)
  assert len(given) == count
  assert hierarchy.splits(joined, tol=1e-9) == given
  size = len(tree.classes)
  full = hierarchy.splits(joined)
  assert len(full) == size - 3
  assert hierarchy.split_recall(full, given) == 1
  expected = (size - 3 - count) / (size - 3 + count)
  found = hierarchy.robinson_foulds(full, given, normalize=True)
  np.testing.assert_allclose(found, expected)
  if name == "CIFAR_100":
    np.testing.assert_allclose(found, 0.540, atol=5e-4)
  error = np.abs(hierarchy.additive_distances(hierarchy.upgma(distances)) - distances)
  assert (error.max() < 1e-9) == ultrametric
  if name == "MESO_Z":
    np.testing.assert_allclose(error.max(), 2.6, atol=0.05)


def linked_by_loops(distances):
  """Heights at which two classes are in one group, by average linkage."""
  d = np.asarray(distances, float)
  groups, apart = [[i] for i in range(len(d))], np.zeros_like(d)
  while len(groups) > 1:
    pairs = [(a, b) for a in range(len(groups)) for b in range(a)]
    a, b = min(
      pairs, key=lambda pair: d[np.ix_(groups[pair[0]], groups[pair[1]])].mean()
    )
    mean = d[np.ix_(groups[a], groups[b])].mean()
    for i in groups[a]:
      apart[i, groups[b]] = mean
      apart[groups[b], i] = mean
    groups[b] = groups[b] + groups.pop(a)
  return apart


def test_average_linkage():
  x = np.random.default_rng(1).normal(size=(8, 3))
  d = np.linalg.norm(x[:, None] - x[None], axis=2)
  tree = hierarchy.upgma(d, names=list("abcdefgh"))
  assert tree.class_names == tuple("abcdefgh")
  np.testing.assert_allclose(
    hierarchy.additive_distances(tree), linked_by_loops(d), rtol=1e-12, atol=1e-12
  )


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
  rooted = hierarchy.from_newick("((a:1,b:1):0.6,(c:1,d:1):0.6);")
  unrooted = hierarchy.from_newick("((a:1,b:1):1.2,c:1,d:1);")
  inside = hierarchy.from_newick("(((a:1,b:1):0.6):0.6,c:1,d:1);")
  for tol, expected in (
    (1.0, {frozenset({2, 3})}),
    (1.2, set()),
    (None, {frozenset({2, 3})}),
  ):
    for tree in (rooted, unrooted, inside):
      assert hierarchy.splits(tree, tol=tol) == expected


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
