"""Losses that own parameters: each module calls the function of its name."""

import flax.linen as nn
import jax.numpy as jnp
from flax.typing import Initializer
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int, Real

from spherejax import _checks, distances, losses


def _rows(name: str, array: ArrayLike) -> Array:
  rows = jnp.asarray(array)
  _checks.floating(name, rows)
  _checks.rank(name, rows, 2)
  return rows


class ProxyAnchor(nn.Module):
  """Proxy-anchor loss with learned proxies.

  Owns `proxies` [num_classes, dim] and calls `spherejax.losses.proxy_anchor`. The
  proxies want a learning rate of their own, 100 times the network's in the paper.

  Attributes:
    num_classes: static. Training classes; labels are in [0, num_classes).
    scale: multiplies the cosines.
    margin: unit of a cosine.
    normalize: static. "l2", "unit_ball" or "none", for embeddings and proxies.
    axis_name: static. Device axis over which the batch is spread; None for one
      device.
    init_proxies: draws the proxies at the start.

  Call: `(embeddings [batch, dim], labels [batch], *, where=None)` gives [batch].

  Raises:
    TypeError: embeddings not floating, labels not integer.
    ValueError: shapes do not match.

  Differentiable in: proxies, embeddings. Cost: O(batch classes dim).

  Source: Kim et al. 2020, "Proxy anchor loss for deep metric learning"; normal start
  with variance 2 / num_classes as in the authors' implementation.

  Example:
    >>> module = spherejax.models.ProxyAnchor(num_classes=3)
    >>> embeddings, labels = jnp.eye(2, 4), jnp.array([0, 2])
    >>> variables = module.init(jax.random.key(0), embeddings, labels)
    >>> module.apply(variables, embeddings, labels).shape
    (2,)
  """

  num_classes: int
  scale: Real[ArrayLike, ""] = 32.0
  margin: Real[ArrayLike, ""] = 0.1
  normalize: str = "l2"
  axis_name: str | None = None
  init_proxies: Initializer = nn.initializers.he_normal()

  @nn.compact
  def __call__(
    self,
    embeddings: Float[ArrayLike, "batch dim"],
    labels: Int[ArrayLike, " batch"],
    *,
    where: Bool[ArrayLike, " batch"] | None = None,
  ) -> Float[Array, " batch"]:
    """Loss of each example."""
    embeddings = _rows("embeddings", embeddings)
    proxies = self.param(
      "proxies", self.init_proxies, (self.num_classes, embeddings.shape[-1])
    )
    return losses.proxy_anchor(
      embeddings,
      labels,
      proxies,
      scale=self.scale,
      margin=self.margin,
      normalize=self.normalize,
      where=where,
      axis_name=None if self.is_initializing() else self.axis_name,
    )


class ProxyNCAPlusPlus(nn.Module):
  """ProxyNCA++ loss with learned proxies.

  Owns `proxies` [num_classes, dim] and calls `spherejax.losses.proxy_nca_plus_plus`.
  Each row has a term of its own, so rows spread over devices need no exchange. The
  proxies want a learning rate of their own, 100 times the network's.

  Attributes:
    num_classes: static. Training classes; labels are in [0, num_classes).
    temperature: divides the squared distances, or the cosines.
    logit: static. "squared_euclidean", or "cosine" (DML's temperatures).
    normalize: static. "l2", "unit_ball" or "none", for embeddings and proxies.
    init_proxies: draws the proxies at the start.

  Call: `(embeddings [batch, dim], labels [batch], *, where=None)` gives [batch].

  Raises:
    TypeError: embeddings not floating, labels not integer.
    ValueError: shapes do not match; a temperature that is not positive.

  Differentiable in: proxies, embeddings. Cost: O(batch classes dim).

  Source: Teh et al. 2020, "ProxyNCA++", whose implementation draws the proxies with
  standard deviation 1/8.

  Example:
    >>> module = spherejax.models.ProxyNCAPlusPlus(num_classes=3)
    >>> embeddings, labels = jnp.eye(2, 4), jnp.array([0, 2])
    >>> variables = module.init(jax.random.key(0), embeddings, labels)
    >>> module.apply(variables, embeddings, labels).shape
    (2,)
  """

  num_classes: int
  temperature: Real[ArrayLike, ""] = 1 / 9
  logit: str = "squared_euclidean"
  normalize: str = "l2"
  init_proxies: Initializer = nn.initializers.normal(0.125)

  @nn.compact
  def __call__(
    self,
    embeddings: Float[ArrayLike, "batch dim"],
    labels: Int[ArrayLike, " batch"],
    *,
    where: Bool[ArrayLike, " batch"] | None = None,
  ) -> Float[Array, " batch"]:
    """Loss of each example."""
    embeddings = _rows("embeddings", embeddings)
    proxies = self.param(
      "proxies", self.init_proxies, (self.num_classes, embeddings.shape[-1])
    )
    return losses.proxy_nca_plus_plus(
      embeddings,
      labels,
      proxies,
      temperature=self.temperature,
      logit=self.logit,
      normalize=self.normalize,
      where=where,
    )


class NormFace(nn.Module):
  """Softmax cross-entropy of scaled cosines with learned class weights.

  Owns `weights` [num_classes, dim], takes the cosines of all pairs and calls
  `spherejax.losses.normface`.

  Attributes:
    num_classes: static. Training classes; labels are in [0, num_classes).
    scale: multiplies the cosines.
    init_weights: draws the class weights at the start.

  Call: `(embeddings [batch, dim], labels [batch], *, where=None)` gives [batch].

  Raises:
    TypeError: embeddings not floating, labels not integer.
    ValueError: shapes do not match.

  Differentiable in: class weights, embeddings. Cost: O(batch classes dim).

  Source: DIST 2.2; Wang et al. 2017, "NormFace".

  Example:
    >>> module = spherejax.models.NormFace(num_classes=3)
    >>> embeddings, labels = jnp.eye(2, 4), jnp.array([0, 2])
    >>> variables = module.init(jax.random.key(0), embeddings, labels)
    >>> module.apply(variables, embeddings, labels).shape
    (2,)
  """

  num_classes: int
  scale: Real[ArrayLike, ""] = 64.0
  init_weights: Initializer = nn.initializers.glorot_uniform()

  @nn.compact
  def __call__(
    self,
    embeddings: Float[ArrayLike, "batch dim"],
    labels: Int[ArrayLike, " batch"],
    *,
    where: Bool[ArrayLike, " batch"] | None = None,
  ) -> Float[Array, " batch"]:
    """Loss of each example."""
    embeddings = _rows("embeddings", embeddings)
    weights = self.param(
      "weights", self.init_weights, (self.num_classes, embeddings.shape[-1])
    )
    cosines = distances.pairwise_cosine(embeddings, weights)
    return losses.normface(cosines, labels, scale=self.scale, where=where)


class ZeroShotPrediction(nn.Module):
  """Cross-batch zero-shot prediction loss with learned label embeddings.

  Owns `label_embeddings` [num_classes, dim], splits the batch into halves of
  disjoint classes by `spherejax.losses.split_by_class` and calls
  `spherejax.losses.zero_shot_prediction`. The label embeddings train at the
  network's rate.

  Attributes:
    num_classes: static. Training classes; labels are in [0, num_classes).
    dim: static. Dimension of a label embedding.
    ridge: positive, strength of the ridge.
    scale: multiplies the logits.
    axis_name: static. Device axis over which the batch is spread; None for one
      device.
    init_label_embeddings: draws the label embeddings at the start.

  Call: `(attributes [batch, prototypes], labels [batch], *, where=None)` gives
  [batch], in the order of the batch. The mean over the batch is half of the paper's
  scalar when the halves have equally many rows; it is the form of the authors'
  implementation, to which the published mixing weights belong.

  Raises:
    TypeError: attributes not floating, labels not integer.
    ValueError: shapes do not match; a ridge that is not positive.

  Differentiable in: label embeddings, attributes. Cost: that of
  `spherejax.losses.zero_shot_prediction` for twice the batch.

  Source: DML 5.2.3, eq. 5.2.4; normal start with variance 2 / num_classes as in the
  authors' implementation.

  Example:
    >>> module = spherejax.models.ZeroShotPrediction(num_classes=4, dim=8)
    >>> attributes, labels = jnp.eye(4), jnp.array([0, 1, 2, 3])
    >>> variables = module.init(jax.random.key(0), attributes, labels)
    >>> module.apply(variables, attributes, labels).shape
    (4,)
  """

  num_classes: int
  dim: int = 128
  ridge: Real[ArrayLike, ""] = 0.05
  scale: Real[ArrayLike, ""] = 1.0
  axis_name: str | None = None
  init_label_embeddings: Initializer = nn.initializers.he_normal()

  @nn.compact
  def __call__(
    self,
    attributes: Float[ArrayLike, "batch prototypes"],
    labels: Int[ArrayLike, " batch"],
    *,
    where: Bool[ArrayLike, " batch"] | None = None,
  ) -> Float[Array, " batch"]:
    """Loss of each example."""
    attributes = _rows("attributes", attributes)
    table = self.param(
      "label_embeddings", self.init_label_embeddings, (self.num_classes, self.dim)
    )
    axis_name = None if self.is_initializing() else self.axis_name
    half_a, half_b = losses.split_by_class(labels, where=where, axis_name=axis_name)
    # Both halves are the whole batch behind complementary masks: a row has a value
    # in one of them and 0 in the other.
    both = losses.zero_shot_prediction(
      attributes,
      labels,
      attributes,
      labels,
      table,
      ridge=self.ridge,
      scale=self.scale,
      where_a=half_a,
      where_b=half_b,
      axis_name=axis_name,
    )
    in_a, in_b = jnp.split(both, 2)
    return in_a + in_b
