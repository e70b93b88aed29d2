"""Loss modules over classes, with class weights as parameters."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.typing import Initializer
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, distances, losses


def embedding_rows(
  embeddings: ArrayLike, where: ArrayLike | None, name: str = "embeddings"
) -> Array:
  """Checked embeddings; masked rows are zero, so that no parameter sees NaN."""
  rows = _checks.array(name, embeddings, "floating", rank=2)
  if where is None:
    return rows
  mask = _checks.array("where", where)
  _checks.mask(mask, rows.shape[:1])
  return jnp.where(mask[:, None], rows, 0)


def unit_rows(key: Array, shape: tuple[int, ...], dtype: Any = None) -> Array:
  """Initializer, uniform on the sphere, for rows of which only the direction counts."""
  kind = jnp.result_type(float) if dtype is None else dtype
  return distances.l2_normalize(jax.random.normal(key, shape, kind))


def grouped(initializer: Initializer) -> Callable[..., Array]:
  """Draws [classes, per_class, dim] as [classes * per_class, dim]."""

  def draw(key: Array, shape: tuple[int, ...]) -> Array:
    return initializer(key, (shape[0] * shape[1], shape[2])).reshape(shape)

  return draw


class ClassWeights(nn.Module):
  """Base of the modules that own one weight vector for each class."""

  num_classes: int
  init_weights: Initializer = nn.initializers.glorot_uniform()

  def weights(self, rows: Array) -> Array:
    """The parameter `weights` [num_classes, dim]."""
    _checks.count("num_classes", self.num_classes)
    shape = (self.num_classes, rows.shape[-1])
    return self.param("weights", _checks.initializer(self, "init_weights"), shape)

  def cosines(self, embeddings: ArrayLike, where: ArrayLike | None) -> Array:
    """Cosines [batch, num_classes] of the embeddings with the class weights."""
    rows = embedding_rows(embeddings, where)
    return distances.pairwise_cosine(rows, self.weights(rows))


class Softmax(ClassWeights):
  """Softmax cross-entropy of a learned linear layer.

  Owns `weights` [num_classes, dim] and `biases` [num_classes], and calls
  `spherejax.losses.softmax` on the products plus the biases.

  Attributes:
    num_classes: static. Training classes; labels are in [0, num_classes).
    init_weights: draws the class weights at the start. The biases start at 0.

  Call: `(embeddings [batch, dim], labels, *, where=None)` gives [batch]; labels are
  integers [batch], or distributions [batch, num_classes].

  Raises:
    TypeError: embeddings not floating, labels neither integers nor distributions.
    ValueError: shapes do not match.

  Differentiable in: weights, biases, embeddings. Cost: O(batch classes dim).

  Source: DIST eq. 2.1.

  Example:
    >>> module = spherejax.models.Softmax(num_classes=3)
    >>> embeddings, labels = jnp.eye(2, 4), jnp.array([0, 2])
    >>> variables = module.init(jax.random.key(0), embeddings, labels)
    >>> module.apply(variables, embeddings, labels).shape
    (2,)
  """

  @nn.compact
  def __call__(
    self,
    embeddings: Float[ArrayLike, "batch dim"],
    labels: Integer[ArrayLike, " batch"] | Float[ArrayLike, "batch classes"],
    *,
    where: Bool[ArrayLike, " batch"] | None = None,
  ) -> Float[Array, " batch"]:
    """Loss of each example."""
    rows = embedding_rows(embeddings, where)
    _checks.count("num_classes", self.num_classes)
    biases = self.param("biases", nn.initializers.zeros, (self.num_classes,))
    logits = distances.pairwise_dot(rows, self.weights(rows)) + biases[None]
    return losses.softmax(logits, labels, where=where)


class NormFace(ClassWeights):
  """Softmax cross-entropy of scaled cosines with learned class weights.

  Owns `weights` [num_classes, dim], takes the cosines of all pairs and calls
  `spherejax.losses.normface`.

  Attributes:
    num_classes: static. Training classes; labels are in [0, num_classes).
    init_weights: draws the class weights at the start.
    scale: multiplies the cosines.
    learn_scale: static. True also learns `log_scale`, which starts at the logarithm of
      `scale`.

  Call: `(embeddings [batch, dim], labels [batch], *, where=None)` gives [batch].

  Raises:
    TypeError: embeddings not floating, labels not integer.
    ValueError: shapes do not match.

  Differentiable in: class weights, scale, embeddings. Cost: O(batch classes dim).

  Source: DIST eqs. 2.2 and 2.3; Wang et al. 2017, "NormFace".

  Example:
    >>> module = spherejax.models.NormFace(num_classes=3)
    >>> embeddings, labels = jnp.eye(2, 4), jnp.array([0, 2])
    >>> variables = module.init(jax.random.key(0), embeddings, labels)
    >>> module.apply(variables, embeddings, labels).shape
    (2,)
  """

  scale: Real[ArrayLike, ""] = 64.0
  learn_scale: bool = False

  @nn.compact
  def __call__(
    self,
    embeddings: Float[ArrayLike, "batch dim"],
    labels: Integer[ArrayLike, " batch"],
    *,
    where: Bool[ArrayLike, " batch"] | None = None,
  ) -> Float[Array, " batch"]:
    """Loss of each example."""
    _checks.flag("learn_scale", self.learn_scale)
    cosines = self.cosines(embeddings, where)
    scale = self.scale
    if self.learn_scale:
      start = jnp.log(jnp.asarray(self.scale, cosines.dtype))
      scale = jnp.exp(self.param("log_scale", nn.initializers.constant(start), ()))
    return losses.normface(cosines, labels, scale=scale, where=where)


class AdaCos(ClassWeights):
  """AdaCos loss: cross-entropy of cosines with a scale that adapts during training.

  Owns `weights` [num_classes, dim] and, in the collection "batch_stats", `scale`. If
  that collection is mutable, `spherejax.losses.adacos_update` updates the scale on the
  batch first. `spherejax.losses.normface` then uses the scale.

  Attributes:
    num_classes: static, at least 3, or 1 where `least` is given. Training classes;
      labels are in [0, num_classes).
    init_weights: draws the class weights at the start.
    least: smallest scale, positive; None bounds only the updates, by 0.01.
    axis_name: static. Device axis over which the batch is spread; None for one
      device.

  Call: `(embeddings [batch, dim], labels [batch], *, where=None)` gives [batch].

  Raises:
    TypeError: embeddings not floating, labels not integer.
    ValueError: shapes do not match, fewer than 3 classes without `least`, or `least`
      not positive.

  Differentiable in: class weights, embeddings. Cost: O(batch classes dim).

  Source: DIST 2.2 and eq. 2.5; Zhang et al. 2019, "AdaCos: adaptively scaling cosine
  logits".

  Example:
    >>> module = spherejax.models.AdaCos(num_classes=3)
    >>> embeddings, labels = jnp.eye(2, 4), jnp.array([0, 2])
    >>> variables = module.init(jax.random.key(0), embeddings, labels)
    >>> loss, new = module.apply(variables, embeddings, labels, mutable="batch_stats")
    >>> loss.shape, new["batch_stats"]["scale"].shape
    ((2,), ())
  """

  least: float | None = None
  axis_name: str | None = None

  @nn.compact
  def __call__(
    self,
    embeddings: Float[ArrayLike, "batch dim"],
    labels: Integer[ArrayLike, " batch"],
    *,
    where: Bool[ArrayLike, " batch"] | None = None,
  ) -> Float[Array, " batch"]:
    """Loss of each example."""
    cosines = self.cosines(embeddings, where)
    start = losses.adacos_scale(self.num_classes, least=self.least)
    options = {} if self.least is None else {"least": self.least}
    scale = self.variable("batch_stats", "scale", lambda: jnp.full((), start))
    if self.is_mutable_collection("batch_stats") and not self.is_initializing():
      new = losses.adacos_update(
        scale.value, cosines, labels, where=where, axis_name=self.axis_name, **options
      )
      scale.value = new.astype(scale.value.dtype)
    return losses.normface(cosines, labels, scale=scale.value, where=where)


class P2SGrad(ClassWeights):
  """Squared error of the cosines with learned class weights.

  Owns `weights` [num_classes, dim], takes the cosines of all pairs and calls
  `spherejax.losses.p2s_grad`.

  Attributes:
    num_classes: static. Training classes; labels are in [0, num_classes).
    init_weights: draws the class weights at the start.

  Call: `(embeddings [batch, dim], labels [batch], *, where=None)` gives [batch].

  Raises:
    TypeError: embeddings not floating, labels not integer.
    ValueError: shapes do not match.

  Differentiable in: class weights, embeddings. Cost: O(batch classes dim).

  Source: Zhang et al. 2019, "P2SGrad".

  Example:
    >>> module = spherejax.models.P2SGrad(num_classes=3)
    >>> embeddings, labels = jnp.eye(2, 4), jnp.array([0, 2])
    >>> variables = module.init(jax.random.key(0), embeddings, labels)
    >>> module.apply(variables, embeddings, labels).shape
    (2,)
  """

  @nn.compact
  def __call__(
    self,
    embeddings: Float[ArrayLike, "batch dim"],
    labels: Integer[ArrayLike, " batch"],
    *,
    where: Bool[ArrayLike, " batch"] | None = None,
  ) -> Float[Array, " batch"]:
    """Loss of each example."""
    return losses.p2s_grad(self.cosines(embeddings, where), labels, where=where)
