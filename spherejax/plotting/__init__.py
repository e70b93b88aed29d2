"""Plots of results: retrieval sheets, pooling weights, curves, bars and maps.

Every function returns a matplotlib Figure that needs no display; `save` writes it.
"""

from spherejax import _names
from spherejax.plotting._charts import bars_with_intervals as bars_with_intervals
from spherejax.plotting._charts import training_curves as training_curves
from spherejax.plotting._class_tree import class_tree as class_tree
from spherejax.plotting._figure import save as save
from spherejax.plotting._heat_map import heat_map as heat_map
from spherejax.plotting._plane import class_hulls as class_hulls
from spherejax.plotting._robust_accuracy import robust_accuracy as robust_accuracy
from spherejax.plotting._sheets import retrieval_sheet as retrieval_sheet
from spherejax.plotting._sheets import weight_maps as weight_maps

__all__ = [
  "bars_with_intervals",
  "class_hulls",
  "class_tree",
  "heat_map",
  "retrieval_sheet",
  "robust_accuracy",
  "save",
  "training_curves",
  "weight_maps",
]

_names.suggest(__name__)
