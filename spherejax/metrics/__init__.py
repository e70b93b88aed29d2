"""Metrics of embeddings and predictions: retrieval, class trees, averages, intervals.

Retrieval metrics return one value per query and a boolean mask of the queries that
count. Averaging is a separate step, so you may weight, group or compare the values
first.
"""

from spherejax import _compiled, _names
from spherejax.metrics._averages import class_balanced_mean as class_balanced_mean
from spherejax.metrics._averages import mean_where as mean_where
from spherejax.metrics._classification import ClassScores as ClassScores
from spherejax.metrics._classification import Confusions as Confusions
from spherejax.metrics._classification import class_scores as class_scores
from spherejax.metrics._classification import common_confusions as common_confusions
from spherejax.metrics._classification import confusion_counts as confusion_counts
from spherejax.metrics._clusters import cluster_radii as cluster_radii
from spherejax.metrics._clusters import (
  mean_interclass_distance as mean_interclass_distance,
)
from spherejax.metrics._correlation import Correlation as Correlation
from spherejax.metrics._correlation import correlation as correlation
from spherejax.metrics._embedding_change import EmbeddingChange as EmbeddingChange
from spherejax.metrics._embedding_change import embedding_change as embedding_change
from spherejax.metrics._embedding_change import embedding_drift as embedding_drift
from spherejax.metrics._factorial import Effect as Effect
from spherejax.metrics._factorial import factorial_effects as factorial_effects
from spherejax.metrics._generators import estimate_generator as estimate_generator
from spherejax.metrics._generators import kernel_overlap as kernel_overlap
from spherejax.metrics._generators import lie_action as lie_action
from spherejax.metrics._hierarchical_similarity import (
  HierarchicalSimilarity as HierarchicalSimilarity,
)
from spherejax.metrics._hierarchical_similarity import (
  average_hierarchical_similarity as average_hierarchical_similarity,
)
from spherejax.metrics._hierarchical_similarity import (
  hierarchical_similarity as hierarchical_similarity,
)
from spherejax.metrics._hierarchy import Severity as Severity
from spherejax.metrics._hierarchy import (
  average_hierarchical_distance as average_hierarchical_distance,
)
from spherejax.metrics._hierarchy import conditional_risk as conditional_risk
from spherejax.metrics._hierarchy import (
  hierarchical_precision as hierarchical_precision,
)
from spherejax.metrics._hierarchy import severity as severity
from spherejax.metrics._hierarchy import top_k as top_k
from spherejax.metrics._hulls import hull_distance as hull_distance
from spherejax.metrics._hulls import hulls_intersect as hulls_intersect
from spherejax.metrics._intervals import Interval as Interval
from spherejax.metrics._intervals import mean_interval as mean_interval
from spherejax.metrics._intervals import paired_interval as paired_interval
from spherejax.metrics._mean_correlation import MeanCorrelation as MeanCorrelation
from spherejax.metrics._mean_correlation import (
  distance_correlation as distance_correlation,
)
from spherejax.metrics._mean_correlation import mean_correlation as mean_correlation
from spherejax.metrics._mean_correlation import (
  mean_correlation_ceiling as mean_correlation_ceiling,
)
from spherejax.metrics._mutual_information import (
  normalized_mutual_information as normalized_mutual_information,
)
from spherejax.metrics._nearest import nearest as nearest
from spherejax.metrics._nearest_negatives import DistanceHistogram as DistanceHistogram
from spherejax.metrics._nearest_negatives import NegativeDistances as NegativeDistances
from spherejax.metrics._nearest_negatives import (
  contrastive_collapse as contrastive_collapse,
)
from spherejax.metrics._nearest_negatives import (
  distance_histogram as distance_histogram,
)
from spherejax.metrics._nearest_negatives import label_sharing as label_sharing
from spherejax.metrics._nearest_negatives import (
  nearest_negative_distance as nearest_negative_distance,
)
from spherejax.metrics._norm_count import NormCountRegression as NormCountRegression
from spherejax.metrics._norm_count import (
  norm_count_correlation as norm_count_correlation,
)
from spherejax.metrics._norm_count import norm_count_regression as norm_count_regression
from spherejax.metrics._projector import LocalAffine as LocalAffine
from spherejax.metrics._projector import count_regions as count_regions
from spherejax.metrics._projector import (
  displacement_alignment as displacement_alignment,
)
from spherejax.metrics._projector import local_affine as local_affine
from spherejax.metrics._projector import unexplained_variance as unexplained_variance
from spherejax.metrics._representation import ClassMoments as ClassMoments
from spherejax.metrics._representation import ClassVariance as ClassVariance
from spherejax.metrics._representation import class_moments_init as class_moments_init
from spherejax.metrics._representation import class_moments_merge as class_moments_merge
from spherejax.metrics._representation import (
  class_moments_update as class_moments_update,
)
from spherejax.metrics._representation import class_scatter as class_scatter
from spherejax.metrics._representation import class_variance as class_variance
from spherejax.metrics._representation import pi_ratio as pi_ratio
from spherejax.metrics._residuals import (
  augment_within_classes as augment_within_classes,
)
from spherejax.metrics._residuals import class_residuals as class_residuals
from spherejax.metrics._retrieval import RetrievalResult as RetrievalResult
from spherejax.metrics._retrieval import recall_at_k as recall_at_k
from spherejax.metrics._retrieval import retrieval as retrieval
from spherejax.metrics._robustness import Separation as Separation
from spherejax.metrics._robustness import accuracy_curve as accuracy_curve
from spherejax.metrics._robustness import (
  accuracy_curve_from_distances as accuracy_curve_from_distances,
)
from spherejax.metrics._robustness import best_accuracy as best_accuracy
from spherejax.metrics._robustness import separation as separation
from spherejax.metrics._singular_values import effective_rank as effective_rank
from spherejax.metrics._singular_values import (
  log_singular_values as log_singular_values,
)
from spherejax.metrics._singular_values import numerical_rank as numerical_rank
from spherejax.metrics._singular_values import relative_rank as relative_rank
from spherejax.metrics._spectrum import FeatureTriangle as FeatureTriangle
from spherejax.metrics._spectrum import PrincipalAxes as PrincipalAxes
from spherejax.metrics._spectrum import Spectrum as Spectrum
from spherejax.metrics._spectrum import principal_axes as principal_axes
from spherejax.metrics._spectrum import reweight as reweight
from spherejax.metrics._spectrum import spectrum as spectrum
from spherejax.metrics._spectrum import triangle_init as triangle_init
from spherejax.metrics._spectrum import triangle_update as triangle_update

__all__ = [
  "ClassMoments",
  "ClassScores",
  "ClassVariance",
  "Confusions",
  "Correlation",
  "DistanceHistogram",
  "Effect",
  "EmbeddingChange",
  "FeatureTriangle",
  "HierarchicalSimilarity",
  "Interval",
  "LocalAffine",
  "MeanCorrelation",
  "NegativeDistances",
  "NormCountRegression",
  "PrincipalAxes",
  "RetrievalResult",
  "Separation",
  "Severity",
  "Spectrum",
  "accuracy_curve",
  "accuracy_curve_from_distances",
  "augment_within_classes",
  "average_hierarchical_distance",
  "average_hierarchical_similarity",
  "best_accuracy",
  "class_balanced_mean",
  "class_moments_init",
  "class_moments_merge",
  "class_moments_update",
  "class_residuals",
  "class_scatter",
  "class_scores",
  "class_variance",
  "cluster_radii",
  "common_confusions",
  "conditional_risk",
  "confusion_counts",
  "contrastive_collapse",
  "correlation",
  "count_regions",
  "displacement_alignment",
  "distance_correlation",
  "distance_histogram",
  "effective_rank",
  "embedding_change",
  "embedding_drift",
  "estimate_generator",
  "factorial_effects",
  "hierarchical_precision",
  "hierarchical_similarity",
  "hull_distance",
  "hulls_intersect",
  "kernel_overlap",
  "label_sharing",
  "lie_action",
  "local_affine",
  "log_singular_values",
  "mean_correlation",
  "mean_correlation_ceiling",
  "mean_interclass_distance",
  "mean_interval",
  "mean_where",
  "nearest",
  "nearest_negative_distance",
  "norm_count_correlation",
  "norm_count_regression",
  "normalized_mutual_information",
  "numerical_rank",
  "paired_interval",
  "pi_ratio",
  "principal_axes",
  "recall_at_k",
  "relative_rank",
  "retrieval",
  "reweight",
  "separation",
  "severity",
  "spectrum",
  "top_k",
  "triangle_init",
  "triangle_update",
  "unexplained_variance",
]

_compiled.room(__name__, host=("nearest", "retrieval"))
_names.suggest(__name__)
