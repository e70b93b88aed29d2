"""Normalisations, distances and similarities, for matching vectors and all pairs.

Elementwise forms take two arrays of one shape [..., dim]; pairwise forms take [n, dim]
and [m, dim] and return [n, m]. All values and derivatives are finite at zero vectors
and at coincident points.
"""

from spherejax import _compiled, _names
from spherejax.distances._angular import angle as angle
from spherejax.distances._angular import chordal as chordal
from spherejax.distances._angular import cosine as cosine
from spherejax.distances._angular import cosine_distance as cosine_distance
from spherejax.distances._angular import dot as dot
from spherejax.distances._angular import pairwise_angle as pairwise_angle
from spherejax.distances._angular import pairwise_chordal as pairwise_chordal
from spherejax.distances._angular import pairwise_cosine as pairwise_cosine
from spherejax.distances._angular import (
  pairwise_cosine_distance as pairwise_cosine_distance,
)
from spherejax.distances._angular import pairwise_dot as pairwise_dot
from spherejax.distances._combined import combined_direction as combined_direction
from spherejax.distances._combined import combined_norm as combined_norm
from spherejax.distances._combined import hull_direction as hull_direction
from spherejax.distances._combined import hull_gauge as hull_gauge
from spherejax.distances._combined import inscribed_radius as inscribed_radius
from spherejax.distances._combined_projection import (
  project_combined as project_combined,
)
from spherejax.distances._combined_projection import project_hull as project_hull
from spherejax.distances._euclidean import euclidean as euclidean
from spherejax.distances._euclidean import pairwise_euclidean as pairwise_euclidean
from spherejax.distances._euclidean import (
  pairwise_squared_euclidean as pairwise_squared_euclidean,
)
from spherejax.distances._euclidean import squared_euclidean as squared_euclidean
from spherejax.distances._lp import Neighbours as Neighbours
from spherejax.distances._lp import k_nearest as k_nearest
from spherejax.distances._lp import lp_norm as lp_norm
from spherejax.distances._lp import pairwise_lp as pairwise_lp
from spherejax.distances._normalize import l2_normalize as l2_normalize
from spherejax.distances._normalize import (
  l2_normalize_additive as l2_normalize_additive,
)
from spherejax.distances._normalize import l2_normalize_clipped as l2_normalize_clipped
from spherejax.distances._normalize import unit_ball as unit_ball
from spherejax.distances._poincare import mobius_add as mobius_add
from spherejax.distances._poincare import pairwise_poincare as pairwise_poincare
from spherejax.distances._poincare import poincare as poincare
from spherejax.distances._poincare import poincare_exp as poincare_exp
from spherejax.distances._poincare import poincare_log as poincare_log
from spherejax.distances._poincare import poincare_project as poincare_project
from spherejax.distances._ratio import distance_ratio as distance_ratio

__all__ = [
  "Neighbours",
  "angle",
  "chordal",
  "combined_direction",
  "combined_norm",
  "cosine",
  "cosine_distance",
  "distance_ratio",
  "dot",
  "euclidean",
  "hull_direction",
  "hull_gauge",
  "inscribed_radius",
  "k_nearest",
  "l2_normalize",
  "l2_normalize_additive",
  "l2_normalize_clipped",
  "lp_norm",
  "mobius_add",
  "pairwise_angle",
  "pairwise_chordal",
  "pairwise_cosine",
  "pairwise_cosine_distance",
  "pairwise_dot",
  "pairwise_euclidean",
  "pairwise_lp",
  "pairwise_poincare",
  "pairwise_squared_euclidean",
  "poincare",
  "poincare_exp",
  "poincare_log",
  "poincare_project",
  "project_combined",
  "project_hull",
  "squared_euclidean",
  "unit_ball",
]

_compiled.room(__name__)
_names.suggest(__name__)
