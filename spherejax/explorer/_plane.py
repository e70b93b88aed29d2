"""Maps embeddings to the plane."""

from typing import Any, Literal

import numpy as np

Layout = Literal["tsne", "pca"]
NAMES = {"tsne": "t-SNE", "pca": "PCA"}
_FEW = 4  # too few points for t-SNE
_EXACT = 300  # points up to which threads of the faster t-SNE cost more than they save


def plane(embeddings: np.ndarray, layout: Layout) -> np.ndarray:
  """Positions [rows, 2] in the plane, the same in every run."""
  from sklearn.decomposition import PCA
  from sklearn.manifold import TSNE

  x = embeddings.astype(np.float64)
  if (x == x[0]).all():
    return np.zeros((len(x), 2))
  if layout == "tsne" and len(x) >= _FEW:
    method = "exact" if len(x) <= _EXACT else "barnes_hut"
    perplexity = min(30.0, (len(x) - 1) / 3)
    tsne = TSNE(init="pca", method=method, perplexity=perplexity, random_state=0)
    return _two(x, tsne.fit_transform)
  return _two(x, PCA(2, random_state=0).fit_transform)


def _two(x: np.ndarray, fit: Any) -> np.ndarray:
  """Positions by `fit`, also for vectors of a single number."""
  return fit(np.pad(x, [(0, 0), (0, max(0, 2 - x.shape[1]))]))
