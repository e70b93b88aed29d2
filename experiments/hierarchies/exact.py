"""What the trees of DIST, article IV, give without any training."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import Array

from experiments.frame import results
from experiments.hierarchies import measures, training
from experiments.published import trees
from spherejax import hierarchy, losses, prototypes

# Notation, lifeless branch, mean correlation of the article's proxies, of the living.
TREES = {
  "CIFAR-100": (trees.CIFAR_100, None, 0.8580, None),
  "MicroS": (trees.MICRO_S, "nonliving", 0.9306, 0.9011),
  "MicroL": (trees.MICRO_L, "nonplankton", 0.9543, 0.9426),
  "MesoZ": (trees.MESO_Z, "nonzooplankton", 0.9783, 0.9602),
}
DIM = 128


def article_trees(
  seeds: range, steps: int, laid_out: Sequence[str]
) -> list[dict[str, Any]]:
  """What the article's trees allow, and for some of them the proxies laid out."""
  rows = []
  for name, (notation, lifeless, *papers) in TREES.items():
    tree = hierarchy.from_paths(trees.paths(notation))
    living = np.ones(len(tree.classes), bool)
    if lifeless:
      living = ~hierarchy.classes_below(tree, lifeless)
    related = measures.relations(tree, living)
    title = f"MDS of {name}"
    if name in laid_out:
      rows += _laid_out(title, related, seeds, steps, papers)
    rows += [
      results.row(title, metric, [value])
      for metric, value in measures.ceilings(related).items()
    ]
    rows += _joined(title, tree, related.distances)
  return rows


def _laid_out(
  title: str,
  related: measures.Relations,
  seeds: range,
  steps: int,
  papers: Sequence[float | None],
) -> list[dict[str, Any]]:
  """Proxies by least stress from several starts, as in the article's table."""
  found = [
    prototypes.hierarchical_prototypes(
      related.similarities, DIM, key=jax.random.key(seed), steps=steps
    )
    for seed in seeds
  ]
  figures = [
    measures.correlations("proxies", training.chords(each.prototypes), related)
    for each in found
  ]
  name = "mean correlation, proxies"
  printed: dict[str, float | None] = {name: papers[0], f"{name}, living": papers[1]}
  rows = [results.row(title, "stress", [float(each.stress) for each in found])]
  return rows + [
    results.row(
      title, metric, [each[metric] for each in figures], paper=printed.get(metric)
    )
    for metric in figures[0]
  ]


def _joined(
  title: str, tree: hierarchy.ClassTree, apart: np.ndarray
) -> list[dict[str, Any]]:
  """Neighbour joining of the tree's own distances."""
  joined = hierarchy.neighbor_joining(apart, names=tree.class_names)
  error = np.abs(hierarchy.additive_distances(joined) - apart).max()
  recall = hierarchy.split_recall(hierarchy.splits(joined), hierarchy.splits(tree))
  return [
    results.row(title, "neighbour joining, largest error of a distance", [error]),
    results.row(title, "neighbour joining, share of the tree's splits", [recall]),
  ]


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


def examples() -> list[dict[str, Any]]:
  """Losses and measures on cases whose values are known."""
  shares = [[0.05, 0.9, 0.02, 0.02, 0.01], [0.05, 0.02, 0.02, 0.9, 0.01]]
  found = _losses(np.log(np.array(shares, np.float32)))
  known = {"HXE by depth": (0.683, 1.628), "HXE by height": (2.968, 1.375)}
  rows = [
    results.row("examples", f"{name}, mistake among {place} classes", [value], paper=x)
    for name, papers in known.items()
    for place, value, x in zip(("near", "far"), found[name], papers, strict=True)
  ]
  name = "soft labels of beta 1000, largest difference to cross-entropy"
  rows.append(results.row("examples", name, [np.abs(found["soft labels"]).max()]))
  tree = hierarchy.from_paths(trees.paths(trees.CIFAR_100))
  apart = hierarchy.path_distances(tree)
  ordered = np.sort(apart, axis=1)
  for offset, paper in ((0, 0.05), (2, 0.1875)):
    # Of uniform predictions: the share of near classes among all.
    near = np.mean(apart <= ordered[:, 4 + offset, None])
    name = f"HP@5 of chance on CIFAR-100, rank offset {offset}"
    rows.append(results.row("examples", name, [float(near)], paper=paper))
  return rows


def claims(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
  """K1: the proxies of CIFAR-100, where laid out, follow the tree as well as can be."""
  values = {
    row["metric"]: np.array(row["values"])
    for row in rows
    if row["name"] == "MDS of CIFAR-100"
  }
  if "stress" not in values:
    return []
  correlation = values["mean correlation, proxies"]
  ceiling = values["ceiling of the mean correlation"]
  off = np.maximum(np.abs(correlation - 0.8580), np.abs(correlation - ceiling))
  return [
    results.claim(
      "K1-ceiling",
      "mean correlation of the MDS proxies of CIFAR-100 is 0.8580, the ceiling, within "
      "0.0005",
      0.0005 - off,
      paper="DIST IV, MDS",
      every_seed=True,
    ),
    results.claim(
      "K1-stress",
      "their normalised stress < 0.001",
      0.001 - values["stress"],
      paper="DIST IV, MDS",
      every_seed=True,
    ),
  ]
