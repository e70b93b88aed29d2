"""What the trees of DIST, article IV, give without any training."""

from collections.abc import Sequence

import jax
import numpy as np
from jax import Array

from experiments.frame.study import Claim, Table
from experiments.hierarchies import measures, training
from experiments.published import tree_paths
from spherejax import hierarchy, losses, prototypes

# Notation, lifeless branch, mean correlation of the article's proxies, of the living.
TREES = {
  "CIFAR-100": ("CIFAR_100", None, 0.8580, None),
  "MicroS": ("MICRO_S", "nonliving", 0.9306, 0.9011),
  "MicroL": ("MICRO_L", "nonplankton", 0.9543, 0.9426),
  "MesoZ": ("MESO_Z", "nonzooplankton", 0.9783, 0.9602),
}
DIM = 128


def add_trees(table: Table, seeds: range, steps: int, laid_out: Sequence[str]) -> None:
  """What the article's trees allow, and for some of them the proxies laid out."""
  for name, (notation, lifeless, *papers) in TREES.items():
    tree = hierarchy.from_paths(tree_paths(notation))
    living = np.ones(len(tree.classes), bool)
    if lifeless:
      living = ~hierarchy.classes_below(tree, lifeless)
    related = measures.relations(tree, living)
    title = f"MDS of {name}"
    if name in laid_out:
      _add_laid_out(table, title, related, seeds, steps, papers)
    for metric, value in measures.ceilings(related).items():
      table.add(title, metric, value)
    _add_joined(table, title, tree, related.distances)


def _add_laid_out(
  table: Table,
  title: str,
  related: measures.Relations,
  seeds: range,
  steps: int,
  papers: Sequence[float | None],
) -> None:
  """Proxies by least stress from several starts, as in the article's table."""
  name = "mean correlation, proxies"
  printed = {name: papers[0], f"{name}, living": papers[1]}
  for seed in seeds:
    laid_out = prototypes.hierarchical_prototypes(
      related.similarities, DIM, key=jax.random.key(seed), steps=steps
    )
    table.add(title, "stress", float(laid_out.stress))
    points = training.chords(laid_out.prototypes)
    for metric, value in measures.correlations("proxies", points, related).items():
      table.add(title, metric, value, paper=printed.get(metric))


def _add_joined(
  table: Table, title: str, tree: hierarchy.ClassTree, apart: np.ndarray
) -> None:
  """Neighbour joining of the tree's own distances."""
  joined = hierarchy.neighbor_joining(apart, names=tree.class_names)
  error = np.abs(hierarchy.additive_distances(joined) - apart).max()
  recall = hierarchy.split_recall(hierarchy.splits(joined), hierarchy.splits(tree))
  table.add(title, "neighbour joining, largest error of a distance", error)
  table.add(title, "neighbour joining, share of the tree's splits", recall)


@jax.jit
def _losses(logits: Array) -> dict[str, Array]:
  """Of a mistake among near classes and one among far ones, at a true class 0."""
  tree = hierarchy.from_paths(["a/x/1", "a/x/2", "a/y/3", "b/4", "b/z/w/5"])
  above, apart = hierarchy.ancestors(tree), hierarchy.path_distances(tree)
  truth = np.zeros(2, np.int32)
  hxe = {
    f"HXE by {discount}": losses.hierarchical_cross_entropy(
      logits, truth, above, alpha=0.5, discount=discount
    )
    for discount in ("depth", "height")
  }
  soft = losses.soft_label_cross_entropy(logits, truth, apart, beta=1e3)
  return hxe | {"soft labels": soft - losses.softmax(logits, truth)}


def add_examples(table: Table) -> None:
  """Losses and measures on cases whose values are known."""
  shares = [[0.05, 0.9, 0.02, 0.02, 0.01], [0.05, 0.02, 0.02, 0.9, 0.01]]
  values = _losses(np.log(np.array(shares, np.float32)))
  known = {"HXE by depth": (0.683, 1.628), "HXE by height": (2.968, 1.375)}
  for name, papers in known.items():
    for place, value, paper in zip(("near", "far"), values[name], papers, strict=True):
      table.add(
        "examples", f"{name}, mistake among {place} classes", value, paper=paper
      )
  name = "soft labels of beta 1000, largest difference to cross-entropy"
  table.add("examples", name, np.abs(values["soft labels"]).max())
  tree = hierarchy.from_paths(tree_paths("CIFAR_100"))
  apart = hierarchy.path_distances(tree)
  ordered = np.sort(apart, axis=1)
  for offset, paper in ((0, 0.05), (2, 0.1875)):
    # Of uniform predictions: the share of near classes among all.
    near = np.mean(apart <= ordered[:, 4 + offset, None])
    name = f"HP@5 of chance on CIFAR-100, rank offset {offset}"
    table.add("examples", name, near, paper=paper)


def _off(table: Table) -> np.ndarray:
  """How far the laid out proxies of CIFAR-100 are from the printed correlation."""
  correlation = table.values("mean correlation, proxies", "MDS of CIFAR-100")
  ceiling = table.values("ceiling of the mean correlation", "MDS of CIFAR-100")
  return np.maximum(np.abs(correlation - 0.8580), np.abs(correlation - ceiling))


# The proxies of CIFAR-100, where laid out, follow the tree as well as can be.
CLAIMS = [
  Claim(
    "K1-ceiling",
    "mean correlation of the MDS proxies of CIFAR-100 is 0.8580, the ceiling, within "
    "0.0005",
    lambda t: 0.0005 - _off(t),
    "DIST IV, MDS",
    every_seed=True,
  ),
  Claim(
    "K1-stress",
    "their normalised stress < 0.001",
    lambda t: 0.001 - t.values("stress", "MDS of CIFAR-100"),
    "DIST IV, MDS",
    every_seed=True,
  ),
]
