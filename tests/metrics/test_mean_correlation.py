"""Rank correlations with a class tree against SciPy, and their ceilings."""

import functools

import jax
import numpy as np
import pytest
from scipy.stats import spearmanr

from experiments.published import tree_paths
from spherejax import hierarchy, metrics

SIZE = 128
RANDOM = np.random.default_rng(0)


@functools.partial(jax.jit, static_argnames="diagonal")
def measure(learned, given, where, *, z_clip=1e-6, diagonal=True):
  options = {"include_diagonal": diagonal, "where": where, "z_clip": z_clip}
  return (
    metrics.mean_correlation(learned, given, **options),
    metrics.mean_correlation_ceiling(given, **options),
  )


by_blocks = jax.jit(
  functools.partial(metrics.distance_correlation, block_size=8),
  static_argnames=("norm", "include_diagonal"),
)


def padded(matrix, kept=None):
  """Matrix and mask of one size, so that all trees share a compiled program."""
  size = len(matrix)
  filled = RANDOM.normal(size=(SIZE, SIZE)).astype(np.float32)
  filled[:size, :size] = matrix
  mask = np.zeros(SIZE, bool)
  mask[:size] = True if kept is None else kept
  return filled, mask


def by_scipy(learned, given, diagonal):
  """Mean and correlations of all columns."""
  r = []
  for c in range(len(given)):
    rows = [i for i in range(len(given)) if diagonal or i != c]
    columns = learned[rows, c], given[rows, c]
    constant = any((x == x[0]).all() for x in columns)
    r.append(np.nan if constant else spearmanr(*columns)[0])
  angles = np.arctanh(np.clip(r, -1 + 1e-6, 1 - 1e-6))
  return np.tanh(np.nanmean(angles)), np.array(r)


def random_distances(size, seed=0):
  x = np.random.default_rng(seed).normal(size=(size, 3))
  return np.linalg.norm(x[:, None] - x[None], axis=2).astype(np.float32)


@pytest.mark.parametrize("diagonal", [True, False])
def test_correlations(diagonal):
  tree = hierarchy.from_paths(tree_paths("MESO_Z"))
  d = hierarchy.path_distances(tree)
  learned = random_distances(len(d))
  learned[3, 4:9] = learned[4:9, 3] = 1.0  # ties on both sides
  for kept in (np.ones(len(d), bool), ~hierarchy.classes_below(tree, "nonzooplankton")):
    given, mask = padded(d, kept)
    found, _ = measure(padded(learned)[0], given, mask, diagonal=diagonal)
    sub = np.ix_(kept, kept)
    mean, r = by_scipy(learned[sub], d[sub], diagonal)
    np.testing.assert_allclose(found.correlations[mask], r, atol=1e-5)
    np.testing.assert_allclose(found.mean, mean, atol=1e-5)
    assert (np.asarray(found.counted) == mask).all()
    assert np.isnan(np.asarray(found.correlations)[~mask]).all()
    assert found.mean.dtype == np.float32


CIFAR_100 = tree_paths("CIFAR_100")
# Classes left out, and the ceilings with the diagonal and without.
TABLE = {
  "CIFAR-100": (CIFAR_100, None, 0.8580, 0.8531),
  "20 superclasses": ([path[-2:] for path in CIFAR_100], None, 0.3776, 0.3411),
  **{
    f"{name}{', living' if without else ''}": (tree_paths(name), without, *ceilings)
    for name, without, *ceilings in (
      ("MICRO_S", None, 0.9332, 0.9312), ("MICRO_S", "nonliving", 0.9052, None),
      ("MICRO_L", None, 0.9543, 0.9529), ("MICRO_L", "nonplankton", 0.9426, None),
      ("MESO_Z", None, 0.9782, 0.9769), ("MESO_Z", "nonzooplankton", 0.9602, None),
    )
  },
}  # fmt: skip


def check_ceiling(tree, without, inside, outside):
  d = hierarchy.path_distances(tree)
  kept = None if without is None else ~hierarchy.classes_below(tree, without)
  given, mask = padded(d, kept)
  # In perfect order, without a tie, and in any order among what ties in the tree.
  noise = np.triu(RANDOM.uniform(0.1, 0.9, given.shape), 1)
  order = np.exp((given + noise + noise.T) / 4).astype(np.float32)
  np.fill_diagonal(order, 0)
  for diagonal, expected in ((True, inside), (False, outside)):
    if expected is not None:
      found, ceiling = measure(order, given, mask, diagonal=diagonal)
      np.testing.assert_allclose(ceiling, expected, atol=6e-5)
      np.testing.assert_allclose(found.mean, ceiling, atol=2e-6)


@pytest.mark.parametrize("name", TABLE)
def test_ceilings_of_the_article_trees(name):
  paths, *rest = TABLE[name]
  check_ceiling(hierarchy.from_paths(paths), *rest)


@pytest.mark.data
def test_ceiling_of_a_long_tailed_tree(tfds_dir):
  tree = hierarchy.from_csv(tfds_dir / "ndsb_plankton" / "1.0.0" / "hierarchy.csv")
  check_ceiling(tree, None, 0.9568, 0.9557)


def test_random_distances_gain_from_the_diagonal():
  d = hierarchy.path_distances(hierarchy.from_paths(CIFAR_100))
  given, mask = padded(d)
  means = []
  for seed in range(5):
    upper = np.triu(np.random.default_rng(seed).uniform(1, 2, d.shape), 1)
    learned = padded((upper + upper.T).astype(np.float32))[0]
    both = (measure(learned, given, mask, diagonal=d)[0].mean for d in (True, False))
    means.append([float(mean) for mean in both])
  with_diagonal, without = np.mean(means, axis=0)
  # The one shared zero adds 0.03 to a correlation that is otherwise noise.
  assert abs(without) < 0.015
  assert 0.02 < with_diagonal - without < 0.045


def test_edges():
  places = np.arange(SIZE)
  flat = (1 - np.eye(SIZE)).astype(np.float32)
  learned = random_distances(SIZE)
  for few in (places < 0, places == 5):
    found, ceiling = measure(learned, flat, few)
    assert np.isnan([found.mean, ceiling]).all()
    assert not found.counted.any()
  found, ceiling = measure(learned, flat, places < 2)
  np.testing.assert_allclose([found.mean, ceiling], 1 - 1e-6, atol=1e-6)
  np.testing.assert_allclose(found.correlations[:2], 1, atol=1e-6)
  # A flat tree: one zero against ties, or nothing but ties.
  every = np.ones(SIZE, bool)
  found, _ = measure(learned, flat, every)
  mean, r = by_scipy(learned, flat, True)
  np.testing.assert_allclose(found.correlations, r, atol=1e-5)
  np.testing.assert_allclose(found.mean, mean, atol=1e-5)
  found, ceiling = measure(learned, flat, every, diagonal=False)
  assert np.isnan([found.mean, ceiling]).all()
  # Exact ties make perfect classes, which the clipping keeps from ruling.
  given = padded(hierarchy.path_distances(hierarchy.from_paths(CIFAR_100)))
  found, _ = measure(given[0], *given)
  np.testing.assert_allclose(found.mean, 1 - 1e-6, atol=1e-6)
  # A class with a NaN in its column is left out and counted.
  learned[3, 7] = np.nan
  found, _ = measure(learned, *padded(flat))
  assert np.flatnonzero(~np.asarray(found.counted)).tolist() == [7]
  others = np.tanh(np.arctanh(np.delete(r, 7)).mean())
  np.testing.assert_allclose(found.mean, others, atol=1e-5)


def test_where_correlations_are_clipped():
  every = np.ones(SIZE, bool)
  given, learned = random_distances(SIZE), random_distances(SIZE, 1)
  learned[:, 0] = given[:, 0]  # one class in perfect order, and one in reverse
  for sign, mean in ((learned[:, 1], 1), (-given[:, 1], np.nan)):
    learned[:, 1] = sign
    free, _ = measure(learned, given, every, z_clip=None)
    np.testing.assert_array_equal(free.mean, np.float32(mean))
  for z_clip in (0.6, 0.99):
    found, ceiling = measure(learned, given, every, z_clip=z_clip)
    r = np.asarray(found.correlations, np.float64)
    assert (np.abs(r) > 1 - z_clip).sum() > 1
    angles = np.arctanh(np.clip(r, z_clip - 1, 1 - z_clip))
    np.testing.assert_allclose(found.mean, np.tanh(angles.mean()), atol=1e-6)
    np.testing.assert_allclose(ceiling, 1 - z_clip, rtol=1e-5)


@pytest.mark.parametrize(("norm", "diagonal"), [("l2", True), ("linf", False)])
def test_distances_of_points_by_blocks(norm, diagonal):
  random = np.random.default_rng(1)
  x = random.integers(0, 4, (SIZE, 5)).astype(np.float32)  # ties
  # Of few bits, whose squares have no rounding that breaks a tie.
  f = (x + np.round(8 * random.normal(size=x.shape)) / 8).astype(np.float32)
  kept = random.random(SIZE) < 0.9
  rows = random.permutation(SIZE)[:20]
  options = {"norm": norm, "include_diagonal": diagonal, "z_clip": 1e-6}
  masked = np.where(kept[:, None], x, np.nan)
  found = by_blocks(masked, f, rows=rows, where=kept, **options)
  order = {"l2": 2, "linf": np.inf}[norm]
  given = np.linalg.norm((x[:, None] - x[None])[kept][:, kept], order, axis=2)
  learned = np.linalg.norm((f[:, None] - f[None])[kept][:, kept], axis=2)
  _, r = by_scipy(learned, given, diagonal)
  everywhere = np.full(SIZE, np.nan)
  everywhere[kept] = r
  np.testing.assert_allclose(found.correlations, everywhere[rows], atol=1e-5)
  chosen = everywhere[rows][kept[rows]]
  np.testing.assert_allclose(found.mean, np.tanh(np.arctanh(chosen).mean()), atol=1e-5)
  clipped = by_blocks(masked, f, rows=rows, where=kept, **options | {"z_clip": 0.8})
  angles = np.arctanh(np.clip(chosen, -0.2, 0.2))
  assert np.abs(chosen).max() > 0.2
  np.testing.assert_allclose(clipped.mean, np.tanh(angles.mean()), atol=1e-5)
  if norm == "l2":  # the features themselves
    every = np.ones(SIZE, bool)
    same = by_blocks(f, f, rows=rows, where=every, **options)
    np.testing.assert_allclose(same.correlations, 1, atol=1e-6)
    np.testing.assert_allclose(same.mean, 1, atol=2e-6)
