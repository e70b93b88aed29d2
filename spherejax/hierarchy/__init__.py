"""Class trees: readers and checks, distances between classes, inferred trees.

All functions run on the host with NumPy and return arrays for losses, prototypes and
metrics.
"""

from spherejax import _names
from spherejax.hierarchy._distances import additive_distances as additive_distances
from spherejax.hierarchy._distances import chordal_distances as chordal_distances
from spherejax.hierarchy._distances import chordal_similarities as chordal_similarities
from spherejax.hierarchy._distances import confusion_distances as confusion_distances
from spherejax.hierarchy._distances import lca_distances as lca_distances
from spherejax.hierarchy._distances import lca_heights as lca_heights
from spherejax.hierarchy._distances import path_distances as path_distances
from spherejax.hierarchy._joining import neighbor_joining as neighbor_joining
from spherejax.hierarchy._joining import upgma as upgma
from spherejax.hierarchy._newick import from_newick as from_newick
from spherejax.hierarchy._newick import to_newick as to_newick
from spherejax.hierarchy._nodes import ancestors as ancestors
from spherejax.hierarchy._nodes import at_depth as at_depth
from spherejax.hierarchy._nodes import classes_below as classes_below
from spherejax.hierarchy._nodes import depths as depths
from spherejax.hierarchy._nodes import heights as heights
from spherejax.hierarchy._read import from_csv as from_csv
from spherejax.hierarchy._read import from_edges as from_edges
from spherejax.hierarchy._read import from_mapping as from_mapping
from spherejax.hierarchy._read import from_paths as from_paths
from spherejax.hierarchy._splits import robinson_foulds as robinson_foulds
from spherejax.hierarchy._splits import split_recall as split_recall
from spherejax.hierarchy._splits import splits as splits
from spherejax.hierarchy._tree import ClassTree as ClassTree
from spherejax.hierarchy._tree import as_leaves as as_leaves
from spherejax.hierarchy._tree import from_parents as from_parents
from spherejax.hierarchy._tree import restrict as restrict

__all__ = [
  "ClassTree",
  "additive_distances",
  "ancestors",
  "as_leaves",
  "at_depth",
  "chordal_distances",
  "chordal_similarities",
  "classes_below",
  "confusion_distances",
  "depths",
  "from_csv",
  "from_edges",
  "from_mapping",
  "from_newick",
  "from_parents",
  "from_paths",
  "heights",
  "lca_distances",
  "lca_heights",
  "neighbor_joining",
  "path_distances",
  "restrict",
  "robinson_foulds",
  "split_recall",
  "splits",
  "to_newick",
  "upgma",
]

_names.suggest(__name__)
