"""Loss modules with margins on the angle, with class weights as parameters."""

import flax.linen as nn
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _numerics, distances, losses
from spherejax.losses._angular_margin import Tail
from spherejax.models._softmax_losses import ClassWeights, embedding_rows, grouped


class CosFace(ClassWeights):
  """CosFace loss with learned class weights.

  Owns `weights` [num_classes, dim], takes the cosines of all pairs and calls
  `spherejax.losses.cosface`.

  Attributes:
    num_classes: static. Training classes; labels are in [0, num_classes).
    init_weights: draws the class weights at the start.
    scale: multiplies the cosines.
    margin: in units of a cosine; one number, or [num_classes].

  Call: `(embeddings [batch, dim], labels [batch], *, where=None)` gives [batch].

  Raises:
    TypeError: embeddings not floating, labels not integer.
    ValueError: shapes do not match.

  Differentiable in: class weights, embeddings. Cost: O(batch classes dim).

  Source: DIST 2.2; Wang et al. 2018, "CosFace".

  Example:
    >>> module = spherejax.models.CosFace(num_classes=3)
    >>> embeddings, labels = jnp.eye(2, 4), jnp.array([0, 2])
    >>> variables = module.init(jax.random.key(0), embeddings, labels)
    >>> module.apply(variables, embeddings, labels).shape
    (2,)
  """

  scale: Real[ArrayLike, ""] = 64.0
  margin: Real[ArrayLike, ""] | Real[ArrayLike, " classes"] = 0.35

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
    return losses.cosface(
      cosines, labels, scale=self.scale, margin=self.margin, where=where
    )


class ArcFace(ClassWeights):
  """ArcFace loss with learned class weights.

  Owns `weights` [num_classes, dim], takes the cosines of all pairs and calls
  `spherejax.losses.arcface`.

  Attributes:
    num_classes: static. Training classes; labels are in [0, num_classes).
    init_weights: draws the class weights at the start.
    scale: multiplies the cosines.
    margin: radians; one number, or [num_classes].
    tail: static. "linear" or "continuous".
    easy_margin: static. True applies the margin only within a right angle.

  Call: `(embeddings [batch, dim], labels [batch], *, where=None)` gives [batch].

  Raises:
    TypeError: embeddings not floating, labels not integer.
    ValueError: shapes do not match; a margin outside [-pi/2, pi/2].

  Differentiable in: class weights, embeddings. Cost: O(batch classes dim).

  Source: DIST 2.2; Deng et al. 2019, "ArcFace".

  Example:
    >>> module = spherejax.models.ArcFace(num_classes=3)
    >>> embeddings, labels = jnp.eye(2, 4), jnp.array([0, 2])
    >>> variables = module.init(jax.random.key(0), embeddings, labels)
    >>> module.apply(variables, embeddings, labels).shape
    (2,)
  """

  scale: Real[ArrayLike, ""] = 64.0
  margin: Real[ArrayLike, ""] | Real[ArrayLike, " classes"] = 0.5
  tail: Tail = "linear"
  easy_margin: bool = False

  @nn.compact
  def __call__(
    self,
    embeddings: Float[ArrayLike, "batch dim"],
    labels: Integer[ArrayLike, " batch"],
    *,
    where: Bool[ArrayLike, " batch"] | None = None,
  ) -> Float[Array, " batch"]:
    """Loss of each example."""
    return losses.arcface(
      self.cosines(embeddings, where),
      labels,
      scale=self.scale,
      margin=self.margin,
      tail=self.tail,
      easy_margin=self.easy_margin,
      where=where,
    )


class SubcentreArcFace(ClassWeights):
  """Sub-centre ArcFace loss with several learned centres per class.

  Owns `weights` [num_classes, per_class, dim], takes the cosines of all pairs and
  calls `spherejax.losses.subcentre_arcface`.

  Attributes:
    num_classes: static. Training classes; labels are in [0, num_classes).
    init_weights: draws the centres at the start, as [num_classes * per_class, dim].
    per_class: static. Centres of a class.
    scale: multiplies the cosines.
    margin: radians; one number, or [num_classes].
    tail: static. "linear" or "continuous".
    easy_margin: static. True applies the margin only within a right angle.

  Call: `(embeddings [batch, dim], labels [batch], *, where=None)` gives [batch].

  Raises:
    TypeError: embeddings not floating, labels not integer.
    ValueError: shapes do not match; a margin outside [-pi/2, pi/2].

  Differentiable in: centres, embeddings. Cost: O(batch classes per_class dim).

  Source: Deng et al. 2020, "Sub-center ArcFace".

  Example:
    >>> module = spherejax.models.SubcentreArcFace(num_classes=3)
    >>> embeddings, labels = jnp.eye(2, 4), jnp.array([0, 2])
    >>> variables = module.init(jax.random.key(0), embeddings, labels)
    >>> variables["params"]["weights"].shape
    (3, 3, 4)
  """

  per_class: int = 3
  scale: Real[ArrayLike, ""] = 64.0
  margin: Real[ArrayLike, ""] | Real[ArrayLike, " classes"] = 0.5
  tail: Tail = "linear"
  easy_margin: bool = False

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
    _checks.count("num_classes", self.num_classes)
    _checks.count("per_class", self.per_class)
    shape = (self.num_classes, self.per_class, rows.shape[-1])
    centres = self.param(
      "weights", grouped(_checks.initializer(self, "init_weights")), shape
    )
    cosines = distances.pairwise_cosine(rows, centres.reshape(-1, shape[-1]))
    return losses.subcentre_arcface(
      cosines.reshape(-1, *shape[:2]),
      labels,
      scale=self.scale,
      margin=self.margin,
      tail=self.tail,
      easy_margin=self.easy_margin,
      where=where,
    )


class SphereFace(ClassWeights):
  """SphereFace loss with learned class weights, whose lengths do not matter.

  Owns `weights` [num_classes, dim], takes the cosines of all pairs and the lengths of
  the embeddings, and calls `spherejax.losses.sphereface`.

  Attributes:
    num_classes: static. Training classes; labels are in [0, num_classes).
    init_weights: draws the class weights at the start.
    margin: static. Factor of the angle.

  Call: `(embeddings [batch, dim], labels [batch], *, annealing=0.0, where=None)` gives
  [batch]; decrease the annealing during training.

  Raises:
    TypeError: embeddings not floating, labels not integer.
    ValueError: shapes do not match.

  Differentiable in: class weights, embeddings, annealing.
  Cost: O(batch classes dim).

  Source: DIST II appendix E; Liu et al. 2017, "SphereFace".

  Example:
    >>> module = spherejax.models.SphereFace(num_classes=3)
    >>> embeddings, labels = jnp.eye(2, 4), jnp.array([0, 2])
    >>> variables = module.init(jax.random.key(0), embeddings, labels)
    >>> module.apply(variables, embeddings, labels, annealing=5.0).shape
    (2,)
  """

  margin: int = 4

  @nn.compact
  def __call__(
    self,
    embeddings: Float[ArrayLike, "batch dim"],
    labels: Integer[ArrayLike, " batch"],
    *,
    annealing: Real[ArrayLike, ""] = 0.0,
    where: Bool[ArrayLike, " batch"] | None = None,
  ) -> Float[Array, " batch"]:
    """Loss of each example."""
    rows = embedding_rows(embeddings, where)
    return losses.sphereface(
      self.cosines(rows, None),
      labels,
      _numerics.norm(_numerics.upcast(rows)),
      margin=self.margin,
      annealing=annealing,
      where=where,
    )


class LargeMarginSoftmax(ClassWeights):
  """Large-margin softmax with learned class weights, whose lengths count.

  Owns `weights` [num_classes, dim], takes the cosines and the products of lengths of
  all pairs and calls `spherejax.losses.large_margin_softmax`.

  Attributes:
    num_classes: static. Training classes; labels are in [0, num_classes).
    init_weights: draws the class weights at the start.
    margin: static. Factor of the angle.

  Call: `(embeddings [batch, dim], labels [batch], *, annealing=0.0, where=None)` gives
  [batch]; decrease the annealing during training.

  Raises:
    TypeError: embeddings not floating, labels not integer.
    ValueError: shapes do not match.

  Differentiable in: class weights, embeddings, annealing.
  Cost: O(batch classes dim).

  Source: Liu et al. 2016, "Large-margin softmax loss for convolutional neural
  networks".

  Example:
    >>> module = spherejax.models.LargeMarginSoftmax(num_classes=3)
    >>> embeddings, labels = jnp.eye(2, 4), jnp.array([0, 2])
    >>> variables = module.init(jax.random.key(0), embeddings, labels)
    >>> module.apply(variables, embeddings, labels, annealing=5.0).shape
    (2,)
  """

  margin: int = 4

  @nn.compact
  def __call__(
    self,
    embeddings: Float[ArrayLike, "batch dim"],
    labels: Integer[ArrayLike, " batch"],
    *,
    annealing: Real[ArrayLike, ""] = 0.0,
    where: Bool[ArrayLike, " batch"] | None = None,
  ) -> Float[Array, " batch"]:
    """Loss of each example."""
    rows = embedding_rows(embeddings, where)
    weights = self.weights(rows)
    lengths = _numerics.norm(_numerics.upcast(rows))[:, None]
    return losses.large_margin_softmax(
      distances.pairwise_cosine(rows, weights),
      labels,
      lengths * _numerics.norm(_numerics.upcast(weights))[None],
      margin=self.margin,
      annealing=annealing,
      where=where,
    )
