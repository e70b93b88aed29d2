"""Loss modules with proxies of the classes as parameters."""

import flax.linen as nn
from flax.typing import Initializer
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, losses
from spherejax.losses._batch import Normalization
from spherejax.losses._proxy_nca import Logit
from spherejax.models._softmax_losses import embedding_rows, grouped, unit_rows


class ProxyAnchor(nn.Module):
  """Proxy-anchor loss with learned proxies.

  Owns `proxies` [num_classes, dim] and calls `spherejax.losses.proxy_anchor`. Give the
  proxies their own learning rate: 100 times the network's in the paper.

  Attributes:
    num_classes: static. Training classes; labels are in [0, num_classes).
    scale: multiplies the cosines.
    margin: in units of a cosine.
    normalize: static. "l2", "unit_ball" or "none", for embeddings and proxies.
    axis_name: static. Device axis over which the batch is spread; None for one
      device.
    init_proxies: draws the proxies at the start, as [num_classes * per_class, dim].
    per_class: static. Proxies of a class; with 1 they are [num_classes, dim], with
      more [num_classes, per_class, dim].
    block_size: static. Rows at a time, see the loss; None takes all at once.

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
  normalize: Normalization = "l2"
  axis_name: str | None = None
  init_proxies: Initializer = nn.initializers.he_normal()
  per_class: int = 1
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
    embeddings = embedding_rows(embeddings, where)
    proxies = _proxies(self, embeddings)
    return losses.proxy_anchor(
      embeddings,
      labels,
      proxies,
      scale=self.scale,
      margin=self.margin,
      normalize=self.normalize,
      where=where,
      block_size=self.block_size,
      axis_name=None if self.is_initializing() else self.axis_name,
    )


class ProxyNCA(nn.Module):
  """ProxyNCA loss with learned proxies.

  Owns `proxies` [num_classes, dim] and calls `spherejax.losses.proxy_nca`. Each row has
  a term of its own, so rows spread over devices need no exchange. Give the proxies
  their own learning rate, 100 times the network's.

  Attributes:
    num_classes: static. Training classes; labels are in [0, num_classes).
    scale: multiplies the normalised embeddings and proxies.
    normalize: static. "l2", "unit_ball" or "none", for embeddings and proxies.
    init_proxies: draws the proxies at the start, as [num_classes * per_class, dim].
    per_class: static. Proxies of a class; with 1 they are [num_classes, dim], with
      more [num_classes, per_class, dim].
    block_size: static. Rows at a time, see the loss; None takes all at once.

  Call: `(embeddings [batch, dim], labels [batch], *, where=None)` gives [batch].

  Raises:
    TypeError: embeddings not floating, labels not integer.
    ValueError: shapes do not match; a scale that is not positive.

  Differentiable in: proxies, embeddings. Cost: O(batch classes dim).

  Source: Movshovitz-Attias et al. 2017, "No fuss distance metric learning using
  proxies"; start as in `ProxyNCAPlusPlus`.

  Example:
    >>> module = spherejax.models.ProxyNCA(num_classes=3)
    >>> embeddings, labels = jnp.eye(2, 4), jnp.array([0, 2])
    >>> variables = module.init(jax.random.key(0), embeddings, labels)
    >>> module.apply(variables, embeddings, labels).shape
    (2,)
  """

  num_classes: int
  scale: Real[ArrayLike, ""] = 1.0
  normalize: Normalization = "l2"
  init_proxies: Initializer = nn.initializers.normal(0.125)
  per_class: int = 1
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
    embeddings = embedding_rows(embeddings, where)
    proxies = _proxies(self, embeddings)
    return losses.proxy_nca(
      embeddings,
      labels,
      proxies,
      scale=self.scale,
      normalize=self.normalize,
      where=where,
      block_size=self.block_size,
    )


class ProxyNCAPlusPlus(nn.Module):
  """ProxyNCA++ loss with learned proxies.

  Owns `proxies` [num_classes, dim] and calls `spherejax.losses.proxy_nca_plus_plus`.
  Each row has a term of its own, so rows spread over devices need no exchange. Give the
  proxies their own learning rate, 100 times the network's.

  Attributes:
    num_classes: static. Training classes; labels are in [0, num_classes).
    temperature: divides the squared distances, or the cosines.
    logit: static. "squared_euclidean", or "cosine" (DML's temperatures).
    normalize: static. "l2", "unit_ball" or "none", for embeddings and proxies.
    init_proxies: draws the proxies at the start, as [num_classes * per_class, dim].
    per_class: static. Proxies of a class; with 1 they are [num_classes, dim], with
      more [num_classes, per_class, dim].
    block_size: static. Rows at a time, see the loss; None takes all at once.

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
  logit: Logit = "squared_euclidean"
  normalize: Normalization = "l2"
  init_proxies: Initializer = nn.initializers.normal(0.125)
  per_class: int = 1
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
    embeddings = embedding_rows(embeddings, where)
    proxies = _proxies(self, embeddings)
    return losses.proxy_nca_plus_plus(
      embeddings,
      labels,
      proxies,
      temperature=self.temperature,
      logit=self.logit,
      normalize=self.normalize,
      where=where,
      block_size=self.block_size,
    )


class SoftTriple(nn.Module):
  """SoftTriple loss with several learned centres per class.

  Owns `centres` [num_classes, per_class, dim] and calls `spherejax.losses.soft_triple`.
  Give the centres their own learning rate: 100 times the network's in the paper.

  Attributes:
    num_classes: static. Training classes; labels are in [0, num_classes).
    per_class: static. Centres of a class.
    scale: multiplies the similarities.
    temperature: temperature of the choice among centres.
    margin: in units of a cosine.
    regularization: weight of the force that merges centres.
    normalize: static. "l2", "unit_ball" or "none", for embeddings and centres.
    init_centres: draws the centres at the start, as [num_classes * per_class, dim].
    block_size: static. Rows at a time, see the loss; None takes all at once.

  Call: `(embeddings [batch, dim], labels [batch], *, where=None)` gives [batch].

  Raises:
    TypeError: embeddings not floating, labels not integer.
    ValueError: shapes do not match; a number out of range.

  Differentiable in: centres, embeddings. Cost: O(batch classes per_class dim).

  Source: Qian et al. 2019, "SoftTriple loss: deep metric learning without triplet
  sampling". The centres start uniformly on the sphere; with "l2" their direction alone
  counts.

  Example:
    >>> module = spherejax.models.SoftTriple(num_classes=3)
    >>> embeddings, labels = jnp.eye(2, 4), jnp.array([0, 2])
    >>> variables = module.init(jax.random.key(0), embeddings, labels)
    >>> variables["params"]["centres"].shape
    (3, 10, 4)
  """

  num_classes: int
  per_class: int = 10
  scale: Real[ArrayLike, ""] = 20.0
  temperature: Real[ArrayLike, ""] = 0.1
  margin: Real[ArrayLike, ""] = 0.01
  regularization: Real[ArrayLike, ""] = 0.2
  normalize: Normalization = "l2"
  init_centres: Initializer = unit_rows
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
    embeddings = embedding_rows(embeddings, where)
    _checks.count("num_classes", self.num_classes)
    _checks.count("per_class", self.per_class)
    shape = (self.num_classes, self.per_class, embeddings.shape[-1])
    centres = self.param(
      "centres", grouped(_checks.initializer(self, "init_centres")), shape
    )
    return losses.soft_triple(
      embeddings,
      labels,
      centres,
      scale=self.scale,
      temperature=self.temperature,
      margin=self.margin,
      regularization=self.regularization,
      normalize=self.normalize,
      where=where,
      block_size=self.block_size,
    )


class Manifold(nn.Module):
  """Manifold similarity loss with learned proxies.

  Owns `proxies` [num_proxies, dim] and calls `spherejax.losses.manifold`.

  Attributes:
    num_proxies: static. Number of classes, or of proxies that are drawn for a batch
      without labels; labels are in [0, num_proxies).
    persistence: in (0, 1), probability that a walk goes on.
    temperature: divides the cosines of the graph.
    margin: in units of the probability of a walk.
    context_weight: weight of the cosines between walks, at least 0.
    init_proxies: draws the proxies at the start, as [num_proxies, dim].
    axis_name: static. Device axis over which the batch is spread; None for one device.

  Call: `(embeddings [batch, dim], labels [batch], *, where=None)` gives [batch].

  Raises:
    TypeError: embeddings not floating, labels not integer.
    ValueError: shapes do not match; a number out of range.

  Differentiable in: proxies, embeddings. Cost: O((batch + num_proxies)^3).

  Source: Aziere and Todorovic 2019, "Ensemble deep manifold similarity learning using
  hard proxies". Only the direction of a proxy counts; proxies start uniformly on the
  sphere.

  Example:
    >>> module = spherejax.models.Manifold(num_proxies=3)
    >>> embeddings, labels = jnp.eye(2, 4), jnp.array([0, 2])
    >>> variables = module.init(jax.random.key(0), embeddings, labels)
    >>> module.apply(variables, embeddings, labels).shape
    (2,)
  """

  num_proxies: int
  persistence: Real[ArrayLike, ""] = 0.8
  temperature: Real[ArrayLike, ""] = 0.5
  margin: Real[ArrayLike, ""] = 5e-4
  context_weight: Real[ArrayLike, ""] = 1.0
  init_proxies: Initializer = unit_rows
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
    embeddings = embedding_rows(embeddings, where)
    _checks.count("num_proxies", self.num_proxies)
    shape = (self.num_proxies, embeddings.shape[-1])
    return losses.manifold(
      embeddings,
      labels,
      self.param("proxies", _checks.initializer(self, "init_proxies"), shape),
      persistence=self.persistence,
      temperature=self.temperature,
      margin=self.margin,
      context_weight=self.context_weight,
      where=where,
      axis_name=None if self.is_initializing() else self.axis_name,
    )


def _proxies(module: ProxyAnchor | ProxyNCA | ProxyNCAPlusPlus, rows: Array) -> Array:
  """Parameter `proxies`, with an axis for several per class."""
  _checks.count("num_classes", module.num_classes)
  _checks.count("per_class", module.per_class)
  dim = rows.shape[-1]
  if module.per_class == 1:
    return module.param(
      "proxies", _checks.initializer(module, "init_proxies"), (module.num_classes, dim)
    )
  shape = (module.num_classes, module.per_class, dim)
  return module.param(
    "proxies", grouped(_checks.initializer(module, "init_proxies")), shape
  )
