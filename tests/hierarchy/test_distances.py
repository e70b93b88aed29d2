"""Distances of classes against ways from node to node, and trees of distances."""

import functools
from itertools import combinations, permutations

import numpy as np
import pytest

from experiments.published import tree_paths
from spherejax import hierarchy
from tests import refusals


def random_tree(seed, nodes=14):
  """Unequal depths, and about half of the inner nodes are classes too."""
  rng = np.random.default_rng(seed)
  parents = [-1, *(int(rng.integers(0, v)) for v in range(1, nodes))]
  inner = sorted(set(parents) - {-1})
  chosen = [str(v) for v in range(nodes) if v not in inner or rng.random() < 0.5]
  return hierarchy.from_parents(parents, classes=list(rng.permutation(chosen)))


def ways(tree):
  """Nodes at or above each node, depths, where classes meet, and the ways there."""
  above = np.eye(len(tree.names), dtype=bool)
  for node, parent in enumerate(tree.parents[1:], start=1):
    above[node] |= above[parent]
  of_class, depths = above[tree.classes], above.sum(1)
  meeting = ((of_class[:, None] & of_class) * depths).argmax(2)
  return above, depths, meeting, of_class[:, None] ^ of_class


def way_up(tree, node):
  path = [int(node)]
  while tree.parents[path[-1]] >= 0:
    path.append(int(tree.parents[path[-1]]))
  return path


def walked(tree):
  """Edges, lengths and the height of the meeting node of every two classes."""
  all_ways = [way_up(tree, node) for node in range(len(tree.names))]
  edges, lengths, heights = np.zeros((3, len(tree.classes), len(tree.classes)))
  for pair in permutations(range(len(tree.classes)), 2):
    one, two = (all_ways[node] for node in tree.classes[list(pair)])
    meeting = next(v for v in one if v in two)
    below = one[: one.index(meeting)] + two[: two.index(meeting)]
    edges[pair], lengths[pair] = len(below), sum(tree.lengths[below])
    heights[pair] = max(way.index(meeting) for way in all_ways if meeting in way)
  return edges, lengths, heights


def test_distances_of_random_trees():
  for seed in range(30):
    tree = random_tree(seed)
    rng = np.random.default_rng(seed)
    tree = tree._replace(lengths=np.append(0, rng.normal(size=len(tree.names) - 1)))
    edges, lengths, heights = walked(tree)
    additive = hierarchy.additive_distances(tree)
    shares = heights / hierarchy.heights(tree)[0]
    np.testing.assert_array_equal(hierarchy.path_distances(tree), edges)
    np.testing.assert_array_equal(hierarchy.lca_heights(tree), heights)
    np.testing.assert_allclose(additive, lengths, rtol=0, atol=1e-13)
    np.testing.assert_allclose(hierarchy.lca_distances(tree), shares)


def broken_triples(h):
  return int((h[:, None] > np.maximum(h[:, :, None], h[None])).sum())


def by_shortest_heights(tree):
  """Heights of nodes over their nearest leaf, and of the nodes where classes meet."""
  above, depths, meeting, way = ways(tree)
  leaves = np.setdiff1d(np.arange(len(above)), tree.parents)
  rise = depths[leaves, None] - depths
  shortest = np.where(above[leaves], rise, len(above)).min(0)
  return shortest, shortest[meeting] * way.any(2)


def test_shortest_heights_would_break_the_inequality():
  tree = hierarchy.from_paths(tree_paths("MESO_Z"))
  assert broken_triples(by_shortest_heights(tree)[1]) == 48
  assert broken_triples(hierarchy.lca_heights(tree)) == 0


def test_shortest_heights_lift_nodes_above_the_root():
  """And one minus the distance by them is no similarity of points."""
  tree = hierarchy.from_paths(tree_paths("MICRO_L"))
  shortest, h = by_shortest_heights(tree)
  root = int(np.flatnonzero(tree.parents < 0)[0])
  assert shortest[root] < shortest.max()
  assert hierarchy.heights(tree)[root] == hierarchy.heights(tree).max()
  assert np.linalg.eigvalsh(1 - h / shortest.max()).min() < -1


def test_chords_are_a_metric_for_any_metric():
  x = np.random.default_rng(0).normal(size=(12, 3))
  metric = np.abs(x[:, None] - x[None]).sum(axis=2)
  for beta in (0.1, 1.0, 10.0):
    chords = hierarchy.chordal_distances(metric, beta=beta)
    assert (chords[:, None] <= chords[:, :, None] + chords[None] + 1e-12).all()
    assert ((chords > 0) == ~np.eye(12, dtype=bool)).all()
    assert (chords == chords.T).all()
    assert chords.max() < np.sqrt(2)
    cosines = hierarchy.chordal_similarities(metric, beta=beta)
    np.testing.assert_allclose(cosines, 1 - chords**2 / 2, rtol=1e-12)
    np.testing.assert_allclose(chords, np.sqrt(2) * metric / (beta + metric))


def test_values_of_the_article():
  distances = np.array([0, 2, 4, 6, 8])
  line = np.abs(distances[:, None] - distances[None])
  similarities = hierarchy.chordal_similarities(line)[0]
  np.testing.assert_allclose(similarities, [1, 0.5556, 0.36, 0.2653, 0.2099], atol=5e-5)
  tree = hierarchy.from_paths(tree_paths("CIFAR_100"))
  d = hierarchy.path_distances(tree)
  np.testing.assert_array_equal(d, 2 * hierarchy.lca_heights(tree))
  pairs = np.unique(d[np.triu_indices(100, 1)], return_counts=True)
  np.testing.assert_array_equal(pairs, [[2, 4, 6, 8], [200, 650, 1000, 3100]])


@pytest.mark.parametrize(
  ("name", "least"), [("MICRO_S", 0.444), ("MICRO_L", 0.223), ("MESO_Z", 0.444)]
)
def test_similarities_are_positive_definite(name, least):
  tree = hierarchy.from_paths(tree_paths(name))
  d = hierarchy.path_distances(tree)
  found = np.linalg.eigvalsh(hierarchy.chordal_similarities(d)).min()
  np.testing.assert_allclose(found, least, atol=5e-4)
  lca = np.linalg.eigvalsh(1 - hierarchy.lca_distances(tree)).min()
  assert lca >= 1 / hierarchy.heights(tree)[0] - 1e-12
  indefinite = hierarchy.chordal_similarities(d, beta=20.0)
  assert (np.linalg.eigvalsh(indefinite).min() < 0) == (name == "MICRO_L")


def test_confusion():
  counts = np.array([[8, 2, 0], [1, 1, 0], [0, 0, 0]])
  rows = np.array([[0.8, 0.2, 0], [0.5, 0.5, 0], [1 / 3] * 3])
  expected = np.abs(rows[:, None] - rows).sum(2)
  found = hierarchy.confusion_distances(counts)
  np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_one_class():
  tree = hierarchy.from_parents([-1])
  for kind in ("path", "lca", "additive"):
    np.testing.assert_array_equal(getattr(hierarchy, f"{kind}_distances")(tree), [[0]])
  for infer in (hierarchy.neighbor_joining, hierarchy.upgma):
    assert infer(np.zeros((1, 1))).class_names == ("0",)


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


def joined_by_sums(d):
  """Two classes and the lengths of their edges, by the sums of Saitou and Nei."""
  m = len(d)

  def total(pair):
    """Length of the tree in which these two alone are joined."""
    # In the columns of the others, distances between these count twice.
    return d[pair] / 2 + np.delete(d, pair, axis=1).sum() / (2 * (m - 2))

  pair = min(combinations(range(m), 2), key=total)
  to_others = np.delete(d, pair, axis=1)[list(pair)].sum(1)
  step = (to_others[0] - to_others[1]) / (m - 2)
  return *pair, (d[pair] + step) / 2, (d[pair] - step) / 2


def test_first_join_of_distances_that_are_no_tree():
  least = []
  for seed in range(10):
    x = np.random.default_rng(seed).uniform(size=(7, 7))
    d = np.where(np.eye(7, dtype=bool), 0, x + x.T)
    tree = hierarchy.neighbor_joining(d)
    i, j, first, second = joined_by_sums(d)
    nodes = tree.classes[[i, j]]
    assert tree.parents[nodes[0]] == tree.parents[nodes[1]]
    np.testing.assert_allclose(tree.lengths[nodes], [first, second], rtol=1e-10)
    least.append(tree.lengths.min())
  assert min(least) < 0


@pytest.mark.parametrize(
  ("name", "count"),
  [("CIFAR_100", 29), ("MICRO_S", 32), ("MICRO_L", 33), ("MESO_Z", 20)],
)
def test_trees_of_the_article(name, count):
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
  assert (error.max() < 1e-9) == (name == "CIFAR_100")  # the ultrametric one
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


def test_a_tolerance_is_a_number(unchecked):
  tree = hierarchy.from_newick("((a:1,b:1):1.2,c:1,d:1);")
  for tol, message in (
    (np.nan, "tol must be in .*, got nan"),
    (np.inf, "tol must be in .*, got inf"),
    ("x", "TypeError: tol must be a number, got 'x'"),
    (np.array([0.1, 0.2]), "TypeError: tol must be a static number, got array"),
  ):
    refusals.check(functools.partial(hierarchy.splits, tree, tol=tol), message)
