"""Pictures of `class_hierarchy`, like the article's."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from experiments.hierarchies import claims, measures, training
from experiments.hierarchies.claims import PROTOTYPES, PROXIES
from experiments.hierarchies.methods import SETTINGS
from spherejax import hierarchy, metrics, plotting

MEASURES = (
  "top-1", "top-5", "HP@5", "AHD@1", "AHD@5",
  "HS@50", "HS@250", "AHS@250", PROXIES, PROTOTYPES,
)  # fmt: skip
COLOURS = {
  "softmax": "#444444", "NormFace": "#0072B2", "ProxyDR": "#D55E00", "CORR": "#009E73",
}  # fmt: skip
CURVES = ("validation top-1", PROXIES, PROTOTYPES)
# As many as there are colours to tell them apart.
FOLLOWED = (
  "normface", "normface-dynamic", "normface-mds",
  "proxydr", "proxydr-dynamic", "proxydr-mds", "corr",
)  # fmt: skip
DRAWN = 40  # classes of the joined tree that is drawn
BRANCHES = 6  # of the tree that have a colour of their own
_ROWS = 300  # of a tree


def bars(runs: claims.Runs) -> Figure:
  """Bar plot of each measure and setting, with intervals and single seeds."""
  names = list(runs)
  places = np.arange(len(names))[::-1]
  figure = Figure(figsize=(13, 1.6 + 0.5 * len(names)), layout="constrained")
  panels = figure.subplots(2, 5, sharey=True).ravel()
  for axes, measure in zip(panels, MEASURES, strict=True):
    values = [[row[measure] for row in runs[name].values()] for name in names]
    means = np.array([np.mean(row) for row in values])
    ends = [metrics.mean_interval(np.array(row)) for row in values]
    errors = np.array([end.high - end.mean for end in ends])
    colours = [COLOURS[SETTINGS[name].loss] for name in names]
    axes.barh(places, means, color=colours, alpha=0.75, height=0.7)
    several = np.isfinite(errors)  # one seed has no interval
    axes.errorbar(
      means[several], places[several], xerr=errors[several], fmt="none",
      color="black", capsize=2, linewidth=1,
    )  # fmt: skip
    for place, row in zip(places, values, strict=True):
      axes.plot(row, [place] * len(row), "o", color="white", markeredgecolor="black",
                markersize=3, markeredgewidth=0.6)  # fmt: skip
    known = [x for row in values for x in row]
    known += [x for end in ends for x in (end.low, end.high) if np.isfinite(x)]
    low, high = min(known), max(known)
    axes.set_xlim(max(0, low - 0.6 * (high - low)), high + 0.1 * (high - low))
    axes.set_title(measure.replace("mean correlation, ", "correlation, "), fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
  for axes in panels:
    axes.set_yticks(places, [SETTINGS[name].title for name in names])
  figure.suptitle("axes do not begin at 0; whisker: 95% interval, dot: one seed",
                  fontsize=9, x=0.99, ha="right")  # fmt: skip
  return figure


def curves(
  curves_of_runs: Mapping[str, list[dict[str, list[float]]]],
) -> dict[str, Figure]:
  """Accuracy and mean correlations after every epoch."""
  figures = {}
  for name in CURVES:
    # Proxies after the tree stay where they are.
    moving = {
      SETTINGS[key].title: [run[name] for run in of_seed]
      for key, of_seed in curves_of_runs.items()
      if key in FOLLOWED and (name != PROXIES or SETTINGS[key].proxies != "mds")
    }
    if moving:
      file = f"curve-{name.split()[-1]}"
      figures[file] = plotting.training_curves(moving, xlabel="epoch", ylabel=name)
  return figures


def similarity_maps(
  points: Mapping[str, np.ndarray], tree: hierarchy.ClassTree
) -> Figure:
  """Cosines of all pairs of classes, in the order of the tree's leaves.

  Lines part the branches below the root; the first map is what the tree asks for.
  """
  order, branch = leaf_order(tree)
  path_distances = hierarchy.path_distances(tree)
  maps = {"tree": hierarchy.chordal_similarities(path_distances)}
  for name, rows in points.items():
    norms = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    maps[name] = (rows / norms) @ (rows / norms).T
  figure = Figure(figsize=(3.4 * len(maps), 3.8), layout="constrained")
  panels = figure.subplots(1, len(maps), squeeze=False)[0]
  edges = np.flatnonzero(np.diff(branch[order])) + 0.5
  image = None
  for axes, (name, values) in zip(panels, maps.items(), strict=True):
    shown = values[np.ix_(order, order)]
    image = axes.imshow(shown, cmap="RdBu_r", vmin=-1, vmax=1)
    for edge in edges:
      axes.axhline(edge, color="black", linewidth=0.5)
      axes.axvline(edge, color="black", linewidth=0.5)
    axes.set(xticks=[], yticks=[], title=name)
  panels[0].set_ylabel("classes, in the order of the tree")
  assert image is not None
  figure.colorbar(image, ax=panels, label="cosine", shrink=0.8)
  return figure


def leaf_order(tree: hierarchy.ClassTree) -> tuple[np.ndarray, np.ndarray]:
  """Classes as the tree lists its leaves, and each class's branch below the root."""
  above = hierarchy.ancestors(tree)
  ways = [
    tuple(np.flatnonzero(above[label]).tolist()) for label in range(len(tree.classes))
  ]
  order = sorted(range(len(ways)), key=lambda label: ways[label])
  branch = np.array([way[1] if len(way) > 1 else 0 for way in ways])
  return np.array(order), np.unique(branch, return_inverse=True)[1]


def joined_tree(points: np.ndarray, tree: hierarchy.ClassTree, title: str) -> Figure:
  """Neighbour joining of class means, names coloured by their branch of the tree.

  Every n-th class in the order of the tree that has a mean, so that the names can be
  read.
  """
  order, _ = leaf_order(tree)
  order = order[(points[order] != 0).any(1)]
  shown = np.sort(order[:: -(-len(order) // DRAWN)])
  chords = np.asarray(training.chords(jnp.asarray(points[shown])))
  names = [tree.class_names[label] for label in shown]
  joined = hierarchy.neighbor_joining((chords + chords.T) / 2, names=names)
  return plotting.class_tree(joined, groups=_branches(tree)[shown], title=title)


def _branches(tree: hierarchy.ClassTree) -> np.ndarray:
  """[classes], by the largest branches of the first level with several, or the rest."""
  above, depth = hierarchy.ancestors(tree), hierarchy.depths(tree)
  for level in range(1, int(depth.max()) + 1):
    nodes = np.flatnonzero(depth == level)
    sizes = above[:, nodes].sum(0)
    if len(nodes) > 2 and sizes.max() < 0.8 * len(above):
      largest = nodes[np.argsort(-sizes, kind="stable")][:BRANCHES]
      members = above[:, largest]
      return np.where(members.any(1), members.argmax(1), BRANCHES)
  return np.zeros(len(above), int)


def depth_that_fits(tree: hierarchy.ClassTree) -> int:
  """Number of the tree's first levels, at most three, whose rows fit in a figure."""
  depth = hierarchy.depths(tree)
  leaf = np.isin(np.arange(len(depth)), tree.parents, invert=True)
  fits = [
    level
    for level in (1, 2, 3)
    if np.sum((depth == level) | (leaf & (depth < level))) <= _ROWS
  ]
  return max(fits, default=1)


def draw(
  runs: claims.Runs,
  curves_of_runs: Mapping[str, list[dict[str, list[float]]]],
  outcomes: Mapping[str, measures.Outcome],
  tree: hierarchy.ClassTree,
) -> dict[str, Any]:
  """Draws all plots of a run. `outcomes` belong to the first seed."""
  figures: dict[str, Any] = {"measures": bars(runs)} | curves(curves_of_runs)
  shown = {
    SETTINGS[name].title: outcomes[name].prototypes
    for name in ("normface", "proxydr", "proxydr-mds", "corr")
    if name in outcomes
  }
  figures["similarities"] = similarity_maps(shown, tree)
  figures["tree"] = plotting.class_tree(
    tree, max_depth=depth_that_fits(tree), title="the classes' tree"
  )
  for name in ("proxydr", "proxydr-mds"):
    if name in outcomes:
      title = f"joined from the prototypes of {SETTINGS[name].title}"
      figures[f"joined-{name}"] = joined_tree(outcomes[name].prototypes, tree, title)
  return figures
