"""Representatives of classes and of local features."""

from spherejax.prototypes._fixed import KCentre as KCentre
from spherejax.prototypes._fixed import greedy_k_centre as greedy_k_centre

__all__ = ["KCentre", "greedy_k_centre"]
