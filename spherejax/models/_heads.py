"""Embedding head: the layer between a feature map and an embedding."""

import inspect
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float

from spherejax import _checks, distances, pooling
from spherejax.losses._batch import Normalization
from spherejax.models import _poolings


class HeadResult(NamedTuple):
  """Result of an `EmbeddingHead` for a batch.

  Attributes:
    embeddings: [batch, dim], normalised by the head's `normalization`; longer where a
      pooling after the projection joins several vectors, as `models.OTP` does.
    pooled: the embeddings before normalisation.
    weights: pooling weights, [batch, height, width] or [batch, tokens], sum 1 for an
      image; None for a pooling that has none.
    attributes: [batch, prototypes], share of the mass on each prototype, sum 1; None
      for a pooling that has none.
  """

  embeddings: Array
  pooled: Array
  weights: Array | None
  attributes: Array | None


Projection = Literal["before", "after", "none"]

_NORMALIZATIONS: dict[Normalization, Callable[[Array], Array]] = {
  "l2": distances.l2_normalize,
  "unit_ball": distances.unit_ball,
  "none": jnp.asarray,
}


def _takes_train(pooling: Callable[..., Any]) -> bool:
  parameters = inspect.signature(pooling).parameters
  return "train" in parameters or any(
    parameter.kind == parameter.VAR_KEYWORD for parameter in parameters.values()
  )


class EmbeddingHead(nn.Module):
  """Embeddings from feature maps: 1x1 convolution, pooling, normalisation.

      f_j = W u_j,    embedding = normalise(pool(f_1 .. f_n))

  or, with `projection="after"`, normalise(W pool(u_1 .. u_n)). The convolution has no
  bias, so both orders agree for a linear pooling.

  Attributes:
    dim: static. Dimension of the embedding, or of the local features if they are
      projected before a pooling that changes the dimension.
    pooling: function or module `(features, *, where=None)` that returns the pooled
      array, or a named tuple with the fields pooled, weights and attributes, such
      as `models.GSP(...)`, `models.GeM()`, `pooling.gap`.
    normalization: static. "l2" (sphere), "unit_ball" (shrinks vectors longer than 1) or
      "none".
    projection: static. "before" pooling (at each position), "after" pooling, or "none"
      for a pooling that itself projects to `dim`, such as `models.TSMK`.

  Call: features [batch, height, width, channels] or [batch, tokens, channels],
  `where=None`, `train=False`. `where` is boolean without the last axis, True keeps;
  `train` is passed on to a pooling that takes it, such as one with BatchNorm. Returns
  `HeadResult`.

  Raises:
    TypeError: features not floating.
    ValueError: features without 3 or 4 axes, `where` of another shape, an unknown
      normalisation or projection, or a pooling to another dimension with projection
      "none".

  Differentiable in: parameters, features. Cost: O(batch tokens channels dim) and
  the pooling.

  Source: DML 5.2.4 (l2 after generalized sum pooling) and 3.2.4 (unit ball).

  Example:
    >>> head = spherejax.models.EmbeddingHead(dim=2)
    >>> features = jnp.ones((3, 4, 4, 8))
    >>> variables = head.init(jax.random.key(0), features)
    >>> result = head.apply(variables, features)
    >>> jnp.linalg.norm(result.embeddings, axis=-1)
    Array([1., 1., 1.], dtype=float32)
  """

  dim: int
  pooling: Callable[..., Any] = pooling.gap
  normalization: Normalization = "l2"
  projection: Projection = "before"

  @nn.compact
  def __call__(
    self,
    features: Float[ArrayLike, "batch *positions channels"],
    *,
    where: Bool[ArrayLike, "batch *positions"] | None = None,
    train: bool = False,
  ) -> HeadResult:
    """Embeddings, with pooling weights and attributes where there are any."""
    features = _checks.array("features", features, "floating", rank=(3, 4))
    _checks.count("dim", self.dim)
    _checks.one_of("normalization", self.normalization, Normalization)
    _checks.one_of("projection", self.projection, Projection)
    features = _poolings.cleared(features, where)
    project = nn.Dense(
      self.dim, use_bias=False, kernel_init=nn.initializers.glorot_uniform()
    )
    _checks.function("pooling", self.pooling)
    options = {"train": train} if _takes_train(self.pooling) else {}
    local = project(features) if self.projection == "before" else features
    result = self.pooling(local, where=where, **options)
    pooled = getattr(result, "pooled", result)
    if self.projection == "after":
      pooled = project(pooled)
    if self.projection == "none":
      _checks.shape("pooled", pooled, (len(features), self.dim), f"dim {self.dim}")
    normalize = _NORMALIZATIONS[self.normalization]
    return HeadResult(
      normalize(pooled),
      pooled,
      getattr(result, "weights", None),
      getattr(result, "attributes", None),
    )
