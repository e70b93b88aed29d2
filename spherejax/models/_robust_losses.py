"""Loss modules of clean and attacked embeddings, with proxies as parameters."""

from collections.abc import Callable
from typing import ClassVar

import flax.linen as nn
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, distances, losses
from spherejax.models._softmax_losses import ClassWeights, embedding_rows

_ATTACKED = "adversarial_embeddings"


class _NearProxies(ClassWeights):
  """NormFace of clean rows, plus a loss that draws attacked rows to their proxy."""

  clean_weight: Real[ArrayLike, ""] = 0.5
  scale: Real[ArrayLike, ""] = 64.0

  loss: ClassVar[Callable[..., Array]]

  @nn.compact
  def __call__(
    self,
    embeddings: Float[ArrayLike, "batch dim"],
    adversarial_embeddings: Float[ArrayLike, "batch dim"],
    labels: Integer[ArrayLike, " batch"],
    *,
    where: Bool[ArrayLike, " batch"] | None = None,
  ) -> Float[Array, " batch"]:
    """Loss of each example."""
    clean = embedding_rows(embeddings, where)
    attacked = embedding_rows(adversarial_embeddings, where, _ATTACKED)
    _checks.shape(_ATTACKED, attacked, clean.shape, "the embeddings")
    weights = self.weights(clean)
    return self.loss(
      distances.pairwise_cosine(clean, weights),
      distances.pairwise_cosine(attacked, weights),
      labels,
      losses.nearest_proxy_angles(weights),
      clean_weight=self.clean_weight,
      scale=self.scale,
      where=where,
    )


class ProxyCap(_NearProxies):
  """NormFace loss on clean examples, plus a cap around the proxy for attacked ones.

  Owns `weights` [num_classes, dim], the proxies, takes the cosines of all pairs and the
  angle from each proxy to the nearest other, and calls `spherejax.losses.proxy_cap`.

  Attributes:
    num_classes: static. Training classes; labels are in [0, num_classes).
    init_weights: draws the proxies at the start.
    clean_weight: of the clean examples, in [0, 1).
    scale: positive.

  Call: `(embeddings [batch, dim], adversarial_embeddings [batch, dim], labels [batch],
  *, where=None)` gives [batch].

  Raises:
    TypeError: embeddings not floating, labels not integer.
    ValueError: shapes do not match, a number out of range.

  Differentiable in: proxies, both embeddings. Cost: O(classes (batch + classes) dim).

  Source: DIST 6.2.1; differs from it as `spherejax.losses.proxy_cap` does.

  Example:
    >>> module = spherejax.models.ProxyCap(num_classes=3)
    >>> embeddings, labels = jnp.eye(2, 4), jnp.array([0, 2])
    >>> attacked = embeddings + 0.1
    >>> variables = module.init(jax.random.key(0), embeddings, attacked, labels)
    >>> module.apply(variables, embeddings, attacked, labels).shape
    (2,)
  """

  loss = staticmethod(losses.proxy_cap)


class NormFaceNegativeMargin(_NearProxies):
  """NormFace loss on clean examples, ArcFace with a negative margin on attacked ones.

  Owns `weights` [num_classes, dim], the proxies, takes the cosines of all pairs and the
  angle from each proxy to the nearest other, and calls
  `spherejax.losses.normface_negative_margin`.

  Attributes:
    num_classes: static. Training classes; labels are in [0, num_classes).
    init_weights: draws the proxies at the start.
    clean_weight: of the clean examples, in [0, 1).
    scale: positive.

  Call: `(embeddings [batch, dim], adversarial_embeddings [batch, dim], labels [batch],
  *, where=None)` gives [batch].

  Raises:
    TypeError: embeddings not floating, labels not integer.
    ValueError: shapes do not match, a number out of range.

  Differentiable in: proxies, both embeddings. Cost: O(classes (batch + classes) dim).

  Source: DIST 6.2.1; differs from it as `spherejax.losses.normface_negative_margin`
  does. `ProxyCap` fulfils the bound claimed there.

  Example:
    >>> module = spherejax.models.NormFaceNegativeMargin(num_classes=3)
    >>> embeddings, labels = jnp.eye(2, 4), jnp.array([0, 2])
    >>> attacked = embeddings + 0.1
    >>> variables = module.init(jax.random.key(0), embeddings, attacked, labels)
    >>> module.apply(variables, embeddings, attacked, labels).shape
    (2,)
  """

  loss = staticmethod(losses.normface_negative_margin)
