"""Representatives of classes and of local features."""

from spherejax.prototypes._fixed import KCentre as KCentre
from spherejax.prototypes._fixed import greedy_k_centre as greedy_k_centre
from spherejax.prototypes._histogram import PrototypeHistogram as PrototypeHistogram
from spherejax.prototypes._histogram import covering_radius as covering_radius
from spherejax.prototypes._histogram import (
  prototype_convex_combination as prototype_convex_combination,
)
from spherejax.prototypes._histogram import prototype_histogram as prototype_histogram

__all__ = [
  "KCentre",
  "PrototypeHistogram",
  "covering_radius",
  "greedy_k_centre",
  "prototype_convex_combination",
  "prototype_histogram",
]
