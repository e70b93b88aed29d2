"""Measures of embeddings of collages."""

import numpy as np
from jax.typing import ArrayLike

from spherejax import metrics


def retrieval(embeddings: ArrayLike, labels: ArrayLike) -> dict[str, float]:
  """Retrieval among the collages themselves."""
  result = metrics.retrieval(embeddings, labels)
  return {
    "P@1": float(metrics.mean_where(result.precision_at_1, result.counted)),
    "MAP@R": float(metrics.mean_where(result.map_at_r, result.counted)),
  }


def foreground_weight(weights: ArrayLike, foreground: ArrayLike) -> float:
  """Mean pooling weight on the tile with the labelled digit; 0.25 for an average."""
  weights, foreground = np.asarray(weights), np.asarray(foreground)
  scale = weights.shape[1] // foreground.shape[1]
  mask = np.kron(foreground, np.ones((scale, scale)))
  return float(np.mean(np.sum(weights * mask, axis=(1, 2))))
