"""Distances of classes against ways walked node by node."""

import itertools

import numpy as np
import pytest

from experiments.published import tree_paths
from spherejax import hierarchy


def random_tree(seed, nodes=14):
  """Unequal depths, and about half of the inner nodes are classes too."""
  rng = np.random.default_rng(seed)
  parents = [-1, *(int(rng.integers(0, v)) for v in range(1, nodes))]
  inner = sorted(set(parents) - {-1})
  chosen = [str(v) for v in range(nodes) if v not in inner or rng.random() < 0.5]
  return hierarchy.from_parents(parents, classes=list(rng.permutation(chosen)))


def way_up(tree, node):
  path = [int(node)]
  while tree.parents[path[-1]] >= 0:
    path.append(int(tree.parents[path[-1]]))
  return path


def meetings(tree):
  """Yields two classes, the node where they meet and the nodes below it on the way."""
  ways = [way_up(tree, node) for node in tree.classes]
  for i, j in itertools.permutations(range(len(ways)), 2):
    meeting = next(v for v in ways[i] if v in ways[j])
    below = [v for way in (ways[i], ways[j]) for v in way[: way.index(meeting)]]
    yield (i, j), meeting, below


def walked(tree):
  """Edges, lengths and the height of the meeting node of every two classes."""
  all_ways = [way_up(tree, node) for node in range(len(tree.names))]
  edges, lengths, heights = np.zeros((3, len(tree.classes), len(tree.classes)))
  for pair, meeting, below in meetings(tree):
    edges[pair] = len(below)
    lengths[pair] = sum(tree.lengths[v] for v in below)
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
  shortest = {}
  for leaf in set(range(len(tree.names))) - set(tree.parents):
    for height, node in enumerate(way_up(tree, leaf)):
      shortest[node] = min(height, shortest.get(node, height))
  h = np.zeros((len(tree.classes), len(tree.classes)))
  for pair, meeting, _ in meetings(tree):
    h[pair] = shortest[meeting]
  return shortest, h


def test_shortest_heights_would_break_the_inequality():
  tree = hierarchy.from_paths(tree_paths("MESO_Z"))
  assert broken_triples(by_shortest_heights(tree)[1]) == 48
  assert broken_triples(hierarchy.lca_heights(tree)) == 0


def test_shortest_heights_lift_nodes_above_the_root():
  """And one minus the distance by them is no similarity of points."""
  tree = hierarchy.from_paths(tree_paths("MICRO_L"))
  shortest, h = by_shortest_heights(tree)
  root = int(np.flatnonzero(tree.parents < 0)[0])
  assert shortest[root] < max(shortest.values())
  assert hierarchy.heights(tree)[root] == hierarchy.heights(tree).max()
  assert np.linalg.eigvalsh(1 - h / max(shortest.values())).min() < -1


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
  np.testing.assert_allclose(
    hierarchy.confusion_distances(counts), expected, rtol=1e-14
  )


def test_one_class():
  tree = hierarchy.from_parents([-1])
  for kind in ("path", "lca", "additive"):
    np.testing.assert_array_equal(getattr(hierarchy, f"{kind}_distances")(tree), [[0]])
  for infer in (hierarchy.neighbor_joining, hierarchy.upgma):
    assert infer(np.zeros((1, 1))).class_names == ("0",)
