"""Measures of embeddings: exact retrieval per query, averages, intervals over seeds.

Measures are per query with a boolean of which queries count; averaging is a separate
step, so that values may be weighted, grouped or compared first.
"""

from spherejax.metrics._averages import class_balanced_mean as class_balanced_mean
from spherejax.metrics._averages import mean_where as mean_where
from spherejax.metrics._factorial import Effect as Effect
from spherejax.metrics._factorial import factorial_effects as factorial_effects
from spherejax.metrics._intervals import Interval as Interval
from spherejax.metrics._intervals import mean_interval as mean_interval
from spherejax.metrics._intervals import paired_interval as paired_interval
from spherejax.metrics._nearest import nearest as nearest
from spherejax.metrics._retrieval import RetrievalResult as RetrievalResult
from spherejax.metrics._retrieval import recall_at_k as recall_at_k
from spherejax.metrics._retrieval import retrieval as retrieval

__all__ = [
  "Effect",
  "Interval",
  "RetrievalResult",
  "class_balanced_mean",
  "factorial_effects",
  "mean_interval",
  "mean_where",
  "nearest",
  "paired_interval",
  "recall_at_k",
  "retrieval",
]
