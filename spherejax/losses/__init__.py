"""Losses as pure functions: one value per example, never reduced.

The label forms take embeddings and integer labels; the matrix forms, named
`<loss>_from_distance` and `<loss>_from_similarity`, take a matrix and masks of
positive and negative pairs.
"""

from spherejax.losses._batch import References as References
from spherejax.losses._pair import contrastive as contrastive
from spherejax.losses._pair import (
  contrastive_from_distance as contrastive_from_distance,
)
from spherejax.losses._pair import cosine_contrastive as cosine_contrastive
from spherejax.losses._pair import (
  cosine_contrastive_from_similarity as cosine_contrastive_from_similarity,
)
from spherejax.losses._pair import multi_similarity as multi_similarity
from spherejax.losses._pair import (
  multi_similarity_from_similarity as multi_similarity_from_similarity,
)
from spherejax.losses._proxy import proxy_anchor as proxy_anchor
from spherejax.losses._proxy import proxy_nca_plus_plus as proxy_nca_plus_plus
from spherejax.losses._softmax import normface as normface
from spherejax.losses._triplet import triplet as triplet
from spherejax.losses._triplet import triplet_from_distance as triplet_from_distance
from spherejax.losses._zero_shot import (
  ridge_attribute_embeddings as ridge_attribute_embeddings,
)
from spherejax.losses._zero_shot import split_by_class as split_by_class
from spherejax.losses._zero_shot import zero_shot_prediction as zero_shot_prediction

__all__ = [
  "References",
  "contrastive",
  "contrastive_from_distance",
  "cosine_contrastive",
  "cosine_contrastive_from_similarity",
  "multi_similarity",
  "multi_similarity_from_similarity",
  "normface",
  "proxy_anchor",
  "proxy_nca_plus_plus",
  "ridge_attribute_embeddings",
  "split_by_class",
  "triplet",
  "triplet_from_distance",
  "zero_shot_prediction",
]
