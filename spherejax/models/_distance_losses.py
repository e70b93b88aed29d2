"""Loss modules on distances, with proxies or an exponent as parameters."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from flax.typing import Initializer
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _numerics, losses
from spherejax.losses import _differences
from spherejax.models._softmax_losses import embedding_rows, unit_rows


def _squared_distances(rows: Array, proxies: Array) -> Array:
  """Squared distances [batch, classes], by differences: accurate for near points."""
  wide = _numerics.compute_dtype(jnp.result_type(rows, proxies))
  return _differences.squared_distances(rows.astype(wide), proxies.astype(wide))


def _proxies(module: Any, rows: Array) -> Array:
  """Parameter `proxies` [classes, dim] of a module."""
  _checks.count("num_classes", module.num_classes)
  shape = (module.num_classes, rows.shape[-1])
  return module.param("proxies", _checks.initializer(module, "init_proxies"), shape)


class SquaredDistanceSoftmax(nn.Module):
  """Softmax of negative squared distances to learned proxies (SD-softmax).

  Owns `proxies` [num_classes, dim], takes the squared distances of all pairs and calls
  `spherejax.losses.squared_distance_softmax`.

  Attributes:
    num_classes: static. Training classes; labels are in [0, num_classes).
    scale: multiplies the squared distances.
    init_proxies: draws the proxies at the start.

  Call: `(embeddings [batch, dim], labels [batch], *, where=None)` gives [batch].

  Raises:
    TypeError: embeddings not floating, labels not integer.
    ValueError: shapes do not match.

  Differentiable in: proxies, embeddings. Cost: O(batch classes dim) time, O(batch
  classes) memory.

  Source: DIST eq. 2.12.

  Example:
    >>> module = spherejax.models.SquaredDistanceSoftmax(num_classes=3)
    >>> embeddings, labels = jnp.eye(2, 4), jnp.array([0, 2])
    >>> variables = module.init(jax.random.key(0), embeddings, labels)
    >>> module.apply(variables, embeddings, labels).shape
    (2,)
  """

  num_classes: int
  scale: Real[ArrayLike, ""] = 1.0
  init_proxies: Initializer = unit_rows

  @nn.compact
  def __call__(
    self,
    embeddings: Float[ArrayLike, "batch dim"],
    labels: Integer[ArrayLike, " batch"],
    *,
    where: Bool[ArrayLike, " batch"] | None = None,
  ) -> Float[Array, " batch"]:
    """Loss of each example."""
    rows = embedding_rows(embeddings, where)
    proxies = _proxies(self, rows)
    squares = _squared_distances(rows, proxies)
    loss = losses.squared_distance_softmax(
      squares, labels, scale=self.scale, where=where
    )
    return loss.astype(jnp.result_type(rows, proxies))


class DistanceSoftmax(nn.Module):
  """Softmax of negative distances to learned proxies.

  Owns `proxies` [num_classes, dim], takes the distances of all pairs and calls
  `spherejax.losses.distance_softmax`.

  Attributes:
    num_classes: static. Training classes; labels are in [0, num_classes).
    scale: multiplies the distances.
    init_proxies: draws the proxies at the start.

  Call: `(embeddings [batch, dim], labels [batch], *, where=None)` gives [batch].

  Raises:
    TypeError: embeddings not floating, labels not integer.
    ValueError: shapes do not match.

  Differentiable in: proxies, embeddings. Cost: O(batch classes dim) time, O(batch
  classes) memory.

  Source: DIST eq. 2.13.

  Example:
    >>> module = spherejax.models.DistanceSoftmax(num_classes=3)
    >>> embeddings, labels = jnp.eye(2, 4), jnp.array([0, 2])
    >>> variables = module.init(jax.random.key(0), embeddings, labels)
    >>> module.apply(variables, embeddings, labels).shape
    (2,)
  """

  num_classes: int
  scale: Real[ArrayLike, ""] = 1.0
  init_proxies: Initializer = unit_rows

  @nn.compact
  def __call__(
    self,
    embeddings: Float[ArrayLike, "batch dim"],
    labels: Integer[ArrayLike, " batch"],
    *,
    where: Bool[ArrayLike, " batch"] | None = None,
  ) -> Float[Array, " batch"]:
    """Loss of each example."""
    rows = embedding_rows(embeddings, where)
    proxies = _proxies(self, rows)
    matrix = _numerics.sqrt(_squared_distances(rows, proxies))
    loss = losses.distance_softmax(matrix, labels, scale=self.scale, where=where)
    return loss.astype(jnp.result_type(rows, proxies))


class DistanceRatio(nn.Module):
  """Distance-ratio loss with a learned exponent.

  Owns `log_exponent` and calls `spherejax.losses.distance_ratio` with its exponential.
  The exponent trains at the network's learning rate.

  Attributes:
    init_log_exponent: initial logarithm of the exponent.
    offset: added to the squared distances.

  Call: `(squared_distances [batch, classes], labels [batch], *, classes=None,
  where=None)` gives [batch].

  Raises:
    TypeError: distances not floating, labels not integer, a mask not boolean.
    ValueError: shapes do not match.

  Differentiable in: exponent, distances. Cost: O(batch classes).

  Source: "Distance-ratio-based formulation for metric learning", with an exponent that
  starts at e^2.

  Example:
    >>> module = spherejax.models.DistanceRatio()
    >>> squares, labels = jnp.array([[1.0, 4.0], [9.0, 1.0]]), jnp.array([0, 1])
    >>> variables = module.init(jax.random.key(0), squares, labels)
    >>> module.apply(variables, squares, labels).shape
    (2,)
  """

  init_log_exponent: float = 2.0
  offset: Real[ArrayLike, ""] = 0.0

  @nn.compact
  def __call__(
    self,
    squared_distances: Float[ArrayLike, "batch classes"],
    labels: Integer[ArrayLike, " batch"],
    *,
    classes: Bool[ArrayLike, " classes"]
    | Bool[ArrayLike, "batch classes"]
    | None = None,
    where: Bool[ArrayLike, " batch"] | None = None,
  ) -> Float[Array, " batch"]:
    """Loss of each example."""
    _checks.known_finite("init_log_exponent", self.init_log_exponent)
    _checks.single("init_log_exponent", self.init_log_exponent)
    start = nn.initializers.constant(self.init_log_exponent)
    return losses.distance_ratio(
      squared_distances,
      labels,
      exponent=jnp.exp(self.param("log_exponent", start, ())),
      offset=self.offset,
      classes=classes,
      where=where,
    )


class ProxyDistanceRatio(nn.Module):
  """Distance-ratio loss on the sphere with a learned proxy for each class (ProxyDR).

  Owns `proxies` [num_classes, dim] and calls `spherejax.losses.proxy_distance_ratio`.

  Attributes:
    num_classes: static. Training classes; labels are in [0, num_classes).
    exponent: of the ratios.
    offset: added to the squared distances.
    init_proxies: draws the proxies at the start.
    block_size: static. Rows at a time, see the loss; None takes all at once.

  Call: `(embeddings [batch, dim], labels [batch], *, where=None)` gives [batch].

  Raises:
    TypeError: embeddings not floating, labels not integer.
    ValueError: shapes do not match; a number out of range.

  Differentiable in: proxies, embeddings. Cost: O(batch classes dim).

  Source: DIST IV eq. 8; the proxies start uniformly on the sphere, as in its released
  code.

  Example:
    >>> module = spherejax.models.ProxyDistanceRatio(num_classes=3)
    >>> embeddings, labels = jnp.eye(2, 4), jnp.array([0, 2])
    >>> variables = module.init(jax.random.key(0), embeddings, labels)
    >>> module.apply(variables, embeddings, labels).shape
    (2,)
  """

  num_classes: int
  exponent: Real[ArrayLike, ""] = 10.0
  offset: Real[ArrayLike, ""] = 0.0
  init_proxies: Initializer = unit_rows
  block_size: int | None = None

  @nn.compact
  def __call__(
    self,
    embeddings: Float[ArrayLike, "batch dim"],
    labels: Integer[ArrayLike, " batch"],
    *,
    where: Bool[ArrayLike, " batch"] | None = None,
  ) -> Float[Array, " batch"]:
    """Loss of each example."""
    rows = embedding_rows(embeddings, where)
    proxies = _proxies(self, rows)
    return losses.proxy_distance_ratio(
      rows,
      labels,
      proxies,
      exponent=self.exponent,
      offset=self.offset,
      where=where,
      block_size=self.block_size,
    )
