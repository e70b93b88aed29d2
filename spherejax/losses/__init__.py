"""Losses as pure functions: one value per example, never reduced.

The label forms take embeddings and integer labels; the matrix forms, named
`<loss>_from_distance` and `<loss>_from_similarity`, take a matrix and masks of
positive and negative pairs.
"""

from spherejax import _compiled, _names
from spherejax.losses._adaptive_scale import DynamicScale as DynamicScale
from spherejax.losses._adaptive_scale import adacos_scale as adacos_scale
from spherejax.losses._adaptive_scale import adacos_update as adacos_update
from spherejax.losses._adaptive_scale import dynamic_scale_init as dynamic_scale_init
from spherejax.losses._adaptive_scale import (
  dynamic_scale_update as dynamic_scale_update,
)
from spherejax.losses._angular import angular as angular
from spherejax.losses._angular_margin import arcface as arcface
from spherejax.losses._angular_margin import cosface as cosface
from spherejax.losses._angular_margin import (
  large_margin_softmax as large_margin_softmax,
)
from spherejax.losses._angular_margin import sphereface as sphereface
from spherejax.losses._angular_margin import subcentre_arcface as subcentre_arcface
from spherejax.losses._batch import References as References
from spherejax.losses._circle import circle as circle
from spherejax.losses._circle import circle_from_similarity as circle_from_similarity
from spherejax.losses._class_points import class_ranking as class_ranking
from spherejax.losses._class_points import (
  class_ranking_from_similarity as class_ranking_from_similarity,
)
from spherejax.losses._class_points import distortion as distortion
from spherejax.losses._class_points import (
  distortion_from_distance as distortion_from_distance,
)
from spherejax.losses._contrastive import contrastive as contrastive
from spherejax.losses._contrastive import (
  contrastive_from_distance as contrastive_from_distance,
)
from spherejax.losses._contrastive import cosine_contrastive as cosine_contrastive
from spherejax.losses._contrastive import (
  cosine_contrastive_from_similarity as cosine_contrastive_from_similarity,
)
from spherejax.losses._distance_ratio import distance_ratio as distance_ratio
from spherejax.losses._distance_ratio import distance_softmax as distance_softmax
from spherejax.losses._distance_ratio import (
  proxy_distance_ratio as proxy_distance_ratio,
)
from spherejax.losses._distance_ratio import (
  squared_distance_softmax as squared_distance_softmax,
)
from spherejax.losses._dynamic_soft_margin import (
  dynamic_soft_margin as dynamic_soft_margin,
)
from spherejax.losses._dynamic_soft_margin import (
  dynamic_soft_margin_from_distance as dynamic_soft_margin_from_distance,
)
from spherejax.losses._fast_ap import fast_ap as fast_ap
from spherejax.losses._fast_ap import fast_ap_from_distance as fast_ap_from_distance
from spherejax.losses._hadsell import hadsell_contrastive as hadsell_contrastive
from spherejax.losses._hadsell import (
  hadsell_contrastive_from_distance as hadsell_contrastive_from_distance,
)
from spherejax.losses._hierarchy import (
  conditional_log_probabilities as conditional_log_probabilities,
)
from spherejax.losses._hierarchy import conditional_softmax as conditional_softmax
from spherejax.losses._hierarchy import (
  hierarchical_cross_entropy as hierarchical_cross_entropy,
)
from spherejax.losses._hierarchy import (
  soft_label_cross_entropy as soft_label_cross_entropy,
)
from spherejax.losses._histogram import histogram as histogram
from spherejax.losses._histogram import (
  histogram_from_similarity as histogram_from_similarity,
)
from spherejax.losses._intra_pair_variance import (
  intra_pair_variance as intra_pair_variance,
)
from spherejax.losses._intra_pair_variance import (
  intra_pair_variance_from_similarity as intra_pair_variance_from_similarity,
)
from spherejax.losses._lifted import (
  generalized_lifted_structure as generalized_lifted_structure,
)
from spherejax.losses._lifted import (
  generalized_lifted_structure_from_distance as generalized_lifted_structure_from_distance,  # noqa: E501
)
from spherejax.losses._lifted import lifted_structure as lifted_structure
from spherejax.losses._lifted import (
  lifted_structure_from_distance as lifted_structure_from_distance,
)
from spherejax.losses._manifold import manifold as manifold
from spherejax.losses._margin import margin as margin
from spherejax.losses._margin import margin_from_distance as margin_from_distance
from spherejax.losses._memory import Memory as Memory
from spherejax.losses._memory import memory_init as memory_init
from spherejax.losses._memory import memory_references as memory_references
from spherejax.losses._memory import memory_update as memory_update
from spherejax.losses._mining import mine_batch_easy_hard as mine_batch_easy_hard
from spherejax.losses._mining import mine_batch_hard as mine_batch_hard
from spherejax.losses._mining import mine_hardest_fraction as mine_hardest_fraction
from spherejax.losses._mining import mine_multi_similarity as mine_multi_similarity
from spherejax.losses._mining import mine_pair_margin as mine_pair_margin
from spherejax.losses._mining import mine_triplet_margin as mine_triplet_margin
from spherejax.losses._mining_angular import mine_angular as mine_angular
from spherejax.losses._multi_similarity import multi_similarity as multi_similarity
from spherejax.losses._multi_similarity import (
  multi_similarity_from_similarity as multi_similarity_from_similarity,
)
from spherejax.losses._n_pair import n_pair as n_pair
from spherejax.losses._n_pair import n_pair_from_similarity as n_pair_from_similarity
from spherejax.losses._nca import nca as nca
from spherejax.losses._nca import nca_from_distance as nca_from_distance
from spherejax.losses._pair_counts import PairCounts as PairCounts
from spherejax.losses._pair_counts import pair_counts as pair_counts
from spherejax.losses._pnp import pnp as pnp
from spherejax.losses._pnp import pnp_from_similarity as pnp_from_similarity
from spherejax.losses._proxy import proxy_anchor as proxy_anchor
from spherejax.losses._proxy_nca import proxy_nca as proxy_nca
from spherejax.losses._proxy_nca import proxy_nca_plus_plus as proxy_nca_plus_plus
from spherejax.losses._pull import correlation as correlation
from spherejax.losses._pull import dot_regression as dot_regression
from spherejax.losses._pull import hyperspherical as hyperspherical
from spherejax.losses._pull import (
  inverse_frequency_weights as inverse_frequency_weights,
)
from spherejax.losses._pull import pull as pull
from spherejax.losses._ranked_list import ranked_list as ranked_list
from spherejax.losses._ranked_list import (
  ranked_list_from_distance as ranked_list_from_distance,
)
from spherejax.losses._robust import adversarial_training as adversarial_training
from spherejax.losses._robust import nearest_proxy_angles as nearest_proxy_angles
from spherejax.losses._robust import (
  normface_negative_margin as normface_negative_margin,
)
from spherejax.losses._robust import proxy_cap as proxy_cap
from spherejax.losses._robust import trades as trades
from spherejax.losses._sampling import mine_distance_weighted as mine_distance_weighted
from spherejax.losses._sampling import mine_uniform_histogram as mine_uniform_histogram
from spherejax.losses._selfsup import InfoNCEBound as InfoNCEBound
from spherejax.losses._selfsup import info_nce as info_nce
from spherejax.losses._selfsup import info_nce_bound as info_nce_bound
from spherejax.losses._selfsup import info_nce_invariance as info_nce_invariance
from spherejax.losses._selfsup import info_nce_repulsion as info_nce_repulsion
from spherejax.losses._selfsup import nt_xent as nt_xent
from spherejax.losses._signal_to_noise import (
  signal_to_noise_contrastive as signal_to_noise_contrastive,
)
from spherejax.losses._smooth_ap import smooth_ap as smooth_ap
from spherejax.losses._smooth_ap import (
  smooth_ap_from_similarity as smooth_ap_from_similarity,
)
from spherejax.losses._soft_triple import multi_proxy as multi_proxy
from spherejax.losses._soft_triple import soft_triple as soft_triple
from spherejax.losses._softmax import normface as normface
from spherejax.losses._softmax import p2s_grad as p2s_grad
from spherejax.losses._softmax import softmax as softmax
from spherejax.losses._spread import alignment as alignment
from spherejax.losses._spread import barlow_twins as barlow_twins
from spherejax.losses._spread import uniformity as uniformity
from spherejax.losses._spread import vicreg as vicreg
from spherejax.losses._sup_con import sup_con as sup_con
from spherejax.losses._sup_con import sup_con_from_similarity as sup_con_from_similarity
from spherejax.losses._threshold_consistent import (
  threshold_consistent_margin as threshold_consistent_margin,
)
from spherejax.losses._threshold_consistent import (
  threshold_consistent_margin_from_similarity as threshold_consistent_margin_from_similarity,  # noqa: E501
)
from spherejax.losses._triplet import triplet as triplet
from spherejax.losses._triplet import triplet_from_distance as triplet_from_distance
from spherejax.losses._tuplet import tuplet_margin as tuplet_margin
from spherejax.losses._tuplet import (
  tuplet_margin_from_similarity as tuplet_margin_from_similarity,
)
from spherejax.losses._zero_shot import (
  ridge_attribute_embeddings as ridge_attribute_embeddings,
)
from spherejax.losses._zero_shot import split_by_class as split_by_class
from spherejax.losses._zero_shot import zero_shot_prediction as zero_shot_prediction

__all__ = [
  "DynamicScale",
  "InfoNCEBound",
  "Memory",
  "PairCounts",
  "References",
  "adacos_scale",
  "adacos_update",
  "adversarial_training",
  "alignment",
  "angular",
  "arcface",
  "barlow_twins",
  "circle",
  "circle_from_similarity",
  "class_ranking",
  "class_ranking_from_similarity",
  "conditional_log_probabilities",
  "conditional_softmax",
  "contrastive",
  "contrastive_from_distance",
  "correlation",
  "cosface",
  "cosine_contrastive",
  "cosine_contrastive_from_similarity",
  "distance_ratio",
  "distance_softmax",
  "distortion",
  "distortion_from_distance",
  "dot_regression",
  "dynamic_scale_init",
  "dynamic_scale_update",
  "dynamic_soft_margin",
  "dynamic_soft_margin_from_distance",
  "fast_ap",
  "fast_ap_from_distance",
  "generalized_lifted_structure",
  "generalized_lifted_structure_from_distance",
  "hadsell_contrastive",
  "hadsell_contrastive_from_distance",
  "hierarchical_cross_entropy",
  "histogram",
  "histogram_from_similarity",
  "hyperspherical",
  "info_nce",
  "info_nce_bound",
  "info_nce_invariance",
  "info_nce_repulsion",
  "intra_pair_variance",
  "intra_pair_variance_from_similarity",
  "inverse_frequency_weights",
  "large_margin_softmax",
  "lifted_structure",
  "lifted_structure_from_distance",
  "manifold",
  "margin",
  "margin_from_distance",
  "memory_init",
  "memory_references",
  "memory_update",
  "mine_angular",
  "mine_batch_easy_hard",
  "mine_batch_hard",
  "mine_distance_weighted",
  "mine_hardest_fraction",
  "mine_multi_similarity",
  "mine_pair_margin",
  "mine_triplet_margin",
  "mine_uniform_histogram",
  "multi_proxy",
  "multi_similarity",
  "multi_similarity_from_similarity",
  "n_pair",
  "n_pair_from_similarity",
  "nca",
  "nca_from_distance",
  "nearest_proxy_angles",
  "normface",
  "normface_negative_margin",
  "nt_xent",
  "p2s_grad",
  "pair_counts",
  "pnp",
  "pnp_from_similarity",
  "proxy_anchor",
  "proxy_cap",
  "proxy_distance_ratio",
  "proxy_nca",
  "proxy_nca_plus_plus",
  "pull",
  "ranked_list",
  "ranked_list_from_distance",
  "ridge_attribute_embeddings",
  "signal_to_noise_contrastive",
  "smooth_ap",
  "smooth_ap_from_similarity",
  "soft_label_cross_entropy",
  "soft_triple",
  "softmax",
  "sphereface",
  "split_by_class",
  "squared_distance_softmax",
  "subcentre_arcface",
  "sup_con",
  "sup_con_from_similarity",
  "threshold_consistent_margin",
  "threshold_consistent_margin_from_similarity",
  "trades",
  "triplet",
  "triplet_from_distance",
  "tuplet_margin",
  "tuplet_margin_from_similarity",
  "uniformity",
  "vicreg",
  "zero_shot_prediction",
]

_compiled.room(__name__)
_names.suggest(__name__)
