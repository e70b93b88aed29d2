"""P@1, P@R and MAP@R of `retrieval` and `ccp_proxies`."""

import jax.numpy as jnp
import numpy as np

from spherejax import distances, metrics

MARGIN = 1e-5
"""Smallest improvement that counts."""
NAMES = {"precision": "P@1", "r_precision": "P@R", "map_at_r": "MAP@R"}


def measures(
  points: np.ndarray, labels: np.ndarray, queries: np.ndarray | None = None
) -> dict[str, float]:
  """Retrieval measures of embeddings in the unit ball, over queries with a match.

  By default, each embedding is a query among all others. With the mask `queries`, these
  are queries, and the others are the gallery.
  """
  x = distances.unit_ball(jnp.asarray(points))
  if queries is None:
    result = metrics.retrieval(x, labels)
  else:
    result = metrics.retrieval(
      x[queries], labels[queries], x[~queries], labels[~queries]
    )
  values = (result.precision_at_1, result.r_precision, result.map_at_r)
  return {
    name: float(metrics.mean_where(value, result.counted))
    for name, value in zip(NAMES, values, strict=True)
  }
