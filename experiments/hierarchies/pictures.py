"""Figures of `class_hierarchy`, like the article's."""

from collections.abc import Mapping

import numpy as np

from experiments.frame import pictures
from experiments.frame.pictures import Figure
from experiments.frame.study import Table
from experiments.hierarchies.claims import ACCURACY, PROTOTYPES, PROXIES
from experiments.hierarchies.methods import SETTINGS
from experiments.hierarchies.runs import Config
from experiments.hierarchies.training import Curves
from spherejax import distances, hierarchy, plotting

MEASURES = {
  "top-1": "top-1 accuracy",
  "AHD@5": "AHD@5, lower is better",
  "HP@5": "HP@5",
  "HS@250": "HS@250",
  PROXIES: "correlation of proxies",
  PROTOTYPES: "correlation of prototypes",
}
# As many settings as there are distinguishable colours.
FOLLOWED = (
  "normface", "normface-dynamic", "normface-mds",
  "proxydr", "proxydr-dynamic", "proxydr-mds", "corr",
)  # fmt: skip
_ROWS = 300  # most rows of a drawn tree
_COLUMNS = 3  # maps side by side


def charts(config: Config, table: Table) -> dict[str, Figure]:
  """The most telling measures of every setting, with intervals and seeds."""
  rows = [SETTINGS[name].title for name in config.settings]
  panels = {
    text: {row: table.values(measure, row) for row in rows}
    for measure, text in MEASURES.items()
  }
  label = "accuracy, hierarchical distance and similarity, correlation with the tree"
  return {"measures": pictures.dots(panels, label, rows=rows, columns=3)}


def curves(curves_of_runs: Mapping[str, list[Curves]]) -> dict[str, Figure]:
  """Accuracy and mean correlations after every epoch."""
  figures = {}
  for name in (ACCURACY, PROXIES, PROTOTYPES):
    # Proxies that follow the tree do not move.
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

  Lines separate the branches below the root; the first map has the tree's cosines.
  """
  ways = [np.flatnonzero(above).tolist() for above in hierarchy.ancestors(tree)]
  order = np.array(sorted(range(len(ways)), key=lambda label: ways[label]))
  maps = {"tree": hierarchy.chordal_similarities(hierarchy.path_distances(tree))}
  for name, rows in points.items():
    maps[name] = np.asarray(distances.pairwise_cosine(rows, rows))
  return pictures.cosine_maps(
    {name: values[np.ix_(order, order)] for name, values in maps.items()},
    hierarchy.at_depth(tree, 1)[order],
    "rows and columns: classes, in the order of the tree",
    columns=_COLUMNS,
  )


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
  curves_of_runs: Mapping[str, list[Curves]],
  prototypes: Mapping[str, np.ndarray],
  tree: hierarchy.ClassTree,
) -> dict[str, Figure]:
  """Draws all plots of a run. `prototypes` belong to the first seed."""
  figures = curves(curves_of_runs)
  by_title = {
    SETTINGS[name].title: prototypes[name]
    for name in ("normface", "proxydr", "proxydr-mds", "corr")
    if name in prototypes
  }
  figures["similarities"] = similarity_maps(by_title, tree)
  figures["tree"] = plotting.class_tree(
    tree, max_depth=depth_that_fits(tree), title="the classes' tree"
  )
  return figures
