"""Measures of embeddings and predictions: retrieval, class trees, averages, intervals.

Measures are per query with a boolean of which queries count; averaging is a separate
step, so that values may be weighted, grouped or compared first.
"""

from spherejax.metrics._averages import class_balanced_mean as class_balanced_mean
from spherejax.metrics._averages import mean_where as mean_where
from spherejax.metrics._factorial import Effect as Effect
from spherejax.metrics._factorial import factorial_effects as factorial_effects
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
from spherejax.metrics._intervals import Interval as Interval
from spherejax.metrics._intervals import mean_interval as mean_interval
from spherejax.metrics._intervals import paired_interval as paired_interval
from spherejax.metrics._mean_correlation import MeanCorrelation as MeanCorrelation
from spherejax.metrics._mean_correlation import mean_correlation as mean_correlation
from spherejax.metrics._mean_correlation import (
  mean_correlation_ceiling as mean_correlation_ceiling,
)
from spherejax.metrics._nearest import nearest as nearest
from spherejax.metrics._retrieval import RetrievalResult as RetrievalResult
from spherejax.metrics._retrieval import recall_at_k as recall_at_k
from spherejax.metrics._retrieval import retrieval as retrieval

__all__ = [
  "Effect",
  "HierarchicalSimilarity",
  "Interval",
  "MeanCorrelation",
  "RetrievalResult",
  "Severity",
  "average_hierarchical_distance",
  "average_hierarchical_similarity",
  "class_balanced_mean",
  "conditional_risk",
  "factorial_effects",
  "hierarchical_precision",
  "hierarchical_similarity",
  "mean_correlation",
  "mean_correlation_ceiling",
  "mean_interval",
  "mean_where",
  "nearest",
  "paired_interval",
  "recall_at_k",
  "retrieval",
  "severity",
  "top_k",
]
