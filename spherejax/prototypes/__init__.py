"""Prototypes: representatives of classes and of local features."""

from spherejax import _compiled, _names
from spherejax.prototypes._assignment import AssignmentState as AssignmentState
from spherejax.prototypes._assignment import assign_prototypes as assign_prototypes
from spherejax.prototypes._assignment import (
  assignment_alignment as assignment_alignment,
)
from spherejax.prototypes._assignment import assignment_change as assignment_change
from spherejax.prototypes._assignment import assignment_init as assignment_init
from spherejax.prototypes._assignment import assignment_update as assignment_update
from spherejax.prototypes._assignment import sibling_gap as sibling_gap
from spherejax.prototypes._classifiers import (
  nearest_neighbour_radius as nearest_neighbour_radius,
)
from spherejax.prototypes._classifiers import (
  nearest_neighbour_scores as nearest_neighbour_scores,
)
from spherejax.prototypes._classifiers import nearest_neighbours as nearest_neighbours
from spherejax.prototypes._classifiers import neighbour_logits as neighbour_logits
from spherejax.prototypes._closed_forms import circle as circle
from spherejax.prototypes._closed_forms import cross_polytope as cross_polytope
from spherejax.prototypes._closed_forms import (
  orthogonal_simplices as orthogonal_simplices,
)
from spherejax.prototypes._closed_forms import simplex as simplex
from spherejax.prototypes._cover import class_covering_radii as class_covering_radii
from spherejax.prototypes._cover import covering_curve as covering_curve
from spherejax.prototypes._cover import mean_covering_radius as mean_covering_radius
from spherejax.prototypes._cover import proxy_spread as proxy_spread
from spherejax.prototypes._cover import renew_proxies as renew_proxies
from spherejax.prototypes._few_shot import episode_accuracies as episode_accuracies
from spherejax.prototypes._few_shot import simple_shot as simple_shot
from spherejax.prototypes._few_shot import (
  support_squared_distances as support_squared_distances,
)
from spherejax.prototypes._fixed import KCentre as KCentre
from spherejax.prototypes._fixed import greedy_k_centre as greedy_k_centre
from spherejax.prototypes._hierarchical import (
  HierarchicalPrototypes as HierarchicalPrototypes,
)
from spherejax.prototypes._hierarchical import (
  hierarchical_prototypes as hierarchical_prototypes,
)
from spherejax.prototypes._histogram import PrototypeHistogram as PrototypeHistogram
from spherejax.prototypes._histogram import covering_radius as covering_radius
from spherejax.prototypes._histogram import (
  prototype_convex_combination as prototype_convex_combination,
)
from spherejax.prototypes._histogram import prototype_histogram as prototype_histogram
from spherejax.prototypes._hpn import hpn_prototypes as hpn_prototypes
from spherejax.prototypes._hpn import vector_prototypes as vector_prototypes
from spherejax.prototypes._moving import ClassMeans as ClassMeans
from spherejax.prototypes._moving import ClassSums as ClassSums
from spherejax.prototypes._moving import MovingPrototypes as MovingPrototypes
from spherejax.prototypes._moving import class_means as class_means
from spherejax.prototypes._moving import class_sums_directions as class_sums_directions
from spherejax.prototypes._moving import class_sums_init as class_sums_init
from spherejax.prototypes._moving import class_sums_update as class_sums_update
from spherejax.prototypes._moving import ema_init as ema_init
from spherejax.prototypes._moving import ema_update as ema_update
from spherejax.prototypes._neighbour_distance import (
  nearest_neighbour_distance as nearest_neighbour_distance,
)
from spherejax.prototypes._optimized import annealed_prototypes as annealed_prototypes
from spherejax.prototypes._optimized import (
  gaussian_potential_prototypes as gaussian_potential_prototypes,
)
from spherejax.prototypes._potential import gaussian_potential as gaussian_potential
from spherejax.prototypes._potential import smooth_max_cosine as smooth_max_cosine
from spherejax.prototypes._quality import PrototypeQuality as PrototypeQuality
from spherejax.prototypes._quality import levenshtein_bound as levenshtein_bound
from spherejax.prototypes._quality import prototype_quality as prototype_quality
from spherejax.prototypes._quality import rankin_bound as rankin_bound
from spherejax.prototypes._quality import welch_bound as welch_bound
from spherejax.prototypes._uniform import UniformPrototypes as UniformPrototypes
from spherejax.prototypes._uniform import uniform_prototypes as uniform_prototypes

__all__ = [
  "AssignmentState",
  "ClassMeans",
  "ClassSums",
  "HierarchicalPrototypes",
  "KCentre",
  "MovingPrototypes",
  "PrototypeHistogram",
  "PrototypeQuality",
  "UniformPrototypes",
  "annealed_prototypes",
  "assign_prototypes",
  "assignment_alignment",
  "assignment_change",
  "assignment_init",
  "assignment_update",
  "circle",
  "class_covering_radii",
  "class_means",
  "class_sums_directions",
  "class_sums_init",
  "class_sums_update",
  "covering_curve",
  "covering_radius",
  "cross_polytope",
  "ema_init",
  "ema_update",
  "episode_accuracies",
  "gaussian_potential",
  "gaussian_potential_prototypes",
  "greedy_k_centre",
  "hierarchical_prototypes",
  "hpn_prototypes",
  "levenshtein_bound",
  "mean_covering_radius",
  "nearest_neighbour_distance",
  "nearest_neighbour_radius",
  "nearest_neighbour_scores",
  "nearest_neighbours",
  "neighbour_logits",
  "orthogonal_simplices",
  "prototype_convex_combination",
  "prototype_histogram",
  "prototype_quality",
  "proxy_spread",
  "rankin_bound",
  "renew_proxies",
  "sibling_gap",
  "simple_shot",
  "simplex",
  "smooth_max_cosine",
  "support_squared_distances",
  "uniform_prototypes",
  "vector_prototypes",
  "welch_bound",
]

_compiled.room(__name__, host=("hierarchical_prototypes", "mean_covering_radius"))
_names.suggest(__name__)
