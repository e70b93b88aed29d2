"""Pooling modules with prototypes, centres or norms; each calls its function."""

import flax.linen as nn
from flax.typing import Initializer
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Real

from spherejax import _checks, pooling
from spherejax.models._poolings import feature_channels
from spherejax.pooling._otp import Cost
from spherejax.pooling._tokens import Reduction


class OTP(nn.Module):
  """Optimal-transport pooling with learned prototypes.

  Owns `prototypes` [num_prototypes, channels] and calls `spherejax.pooling.otp`. The
  result has num_prototypes * channels numbers. Before the prototypes are trained, use
  global average pooling: the sum of the result's blocks divided by
  sqrt(num_prototypes).

  Attributes:
    num_prototypes: static.
    inverse_temperature: not negative.
    steps: static. Steps of the transport.
    cost: static. "distance" or "gaussian".
    bandwidth: of "gaussian", positive.
    init_prototypes: draws the prototypes at the start.

  Call: `(features, *, where=None)` with the shapes of `spherejax.pooling.otp`.

  Raises:
    TypeError: features not floating.
    ValueError: features without 3 or 4 axes; settings out of range; shapes do not
      match.

  Differentiable in: prototypes, features. Cost: that of `spherejax.pooling.otp`.

  Source: Mialon et al. 2021, "A trainable optimal transport embedding for feature
  aggregation"; DML 5.3.5, which pools 8 prototypes of 16 channels and 64 of 128.

  Example:
    >>> module = spherejax.models.OTP(num_prototypes=2)
    >>> features = jnp.ones((1, 2, 2, 3))
    >>> pool = jax.jit(module.init_with_output)
    >>> pool(jax.random.key(0), features)[0].shape
    (1, 6)
  """

  num_prototypes: int = 8
  inverse_temperature: Real[ArrayLike, ""] = 2.0
  steps: int = 10
  cost: Cost = "distance"
  bandwidth: Real[ArrayLike, ""] = 1.0
  init_prototypes: Initializer = nn.initializers.glorot_uniform()

  @nn.compact
  def __call__(
    self,
    features: Float[ArrayLike, "batch *positions channels"],
    *,
    where: Bool[ArrayLike, "batch *positions"] | None = None,
  ) -> Float[Array, "batch blocks"]:
    """Pooled features [batch, num_prototypes * channels]."""
    _checks.count("num_prototypes", self.num_prototypes)
    prototypes = self.param(
      "prototypes",
      _checks.initializer(self, "init_prototypes"),
      (self.num_prototypes, feature_channels(features)),
    )
    return pooling.otp(
      features,
      prototypes,
      inverse_temperature=self.inverse_temperature,
      steps=self.steps,
      cost=self.cost,
      bandwidth=self.bandwidth,
      where=where,
    )


class NetVLAD(nn.Module):
  """Aggregated differences from learned centres.

  Owns `centres` and `weights` [num_centres, channels] and `biases` [num_centres] and
  calls `spherejax.pooling.netvlad`. The result has num_centres * channels numbers.

  Attributes:
    num_centres: static.
    sharpness: positive; weights and biases start at
      `spherejax.pooling.netvlad_assignment`, which assigns to the nearest centre. None
      draws the weights like the centres, with biases 0.
    init_centres: draws the centres at the start.

  Call: `(features, *, where=None)` with the shapes of `spherejax.pooling.netvlad`.

  Raises:
    TypeError: features not floating.
    ValueError: features without 3 or 4 axes; settings out of range; shapes do not
      match.

  Differentiable in: centres, weights, biases, features. Cost: that of
  `spherejax.pooling.netvlad`.

  Source: Arandjelovic et al. 2016, "NetVLAD: CNN architecture for weakly supervised
  place recognition", which starts with the centres of a k-means clustering and a
  sharpness; DML 5.3.5, which draws both Glorot-uniformly, and pools 8 centres of 16
  channels and 64 of 128.

  Example:
    >>> module = spherejax.models.NetVLAD(num_centres=2)
    >>> features = jnp.ones((1, 2, 2, 3))
    >>> pool = jax.jit(module.init_with_output)
    >>> pool(jax.random.key(0), features)[0].shape
    (1, 6)
  """

  num_centres: int = 8
  sharpness: Real[ArrayLike, ""] | None = None
  init_centres: Initializer = nn.initializers.glorot_uniform()

  @nn.compact
  def __call__(
    self,
    features: Float[ArrayLike, "batch *positions channels"],
    *,
    where: Bool[ArrayLike, "batch *positions"] | None = None,
  ) -> Float[Array, "batch blocks"]:
    """Pooled features [batch, num_centres * channels]."""
    _checks.count("num_centres", self.num_centres)
    shape = (self.num_centres, feature_channels(features))
    centres = self.param("centres", _checks.initializer(self, "init_centres"), shape)
    init_weights, init_biases = (
      _checks.initializer(self, "init_centres"),
      nn.initializers.zeros,
    )
    if self.sharpness is not None:
      start = pooling.netvlad_assignment(centres, sharpness=self.sharpness)
      init_weights, init_biases = (lambda *_, value=value: value for value in start)
    return pooling.netvlad(
      features,
      centres,
      self.param("weights", init_weights, shape),
      self.param("biases", init_biases, shape[:1]),
      where=where,
    )


class TSMK(nn.Module):
  """Smoothed and projected features, weighted by their norms.

  Owns `kernel` [channels, dim] and `bias` [dim] and calls `spherejax.pooling.tsmk`. It
  projects the features itself, since it needs the norms of the raw features.

  Attributes:
    dim: static. Dimension of the result.
    window: static, odd. Side of the smoothing window.
    stop_attention_gradient: static. True treats the norms as constants for the
      derivative.
    reduction: static. "mean" or "sum".

  Call: `(features, *, where=None)` with the shapes of `spherejax.pooling.tsmk`.

  Raises:
    TypeError: features not floating.
    ValueError: features without 3 or 4 axes; settings out of range; shapes do not
      match.

  Differentiable in: kernel, bias, features. Cost: that of `spherejax.pooling.tsmk`.

  Source: Tolias, Jenicek, Chum 2020, "Learning and aggregating deep local descriptors
  for instance-level recognition", where kernel and bias are a fixed whitening; DML
  5.3.5, where they are learned.

  Example:
    >>> module = spherejax.models.TSMK(dim=2)
    >>> features = jnp.ones((1, 4, 4, 3))
    >>> pool = jax.jit(module.init_with_output)
    >>> pool(jax.random.key(0), features)[0].shape
    (1, 2)
  """

  dim: int = 128
  window: int = 3
  stop_attention_gradient: bool = True
  reduction: Reduction = "mean"

  @nn.compact
  def __call__(
    self,
    features: Float[ArrayLike, "batch *positions channels"],
    *,
    where: Bool[ArrayLike, "batch *positions"] | None = None,
  ) -> Float[Array, "batch dim"]:
    """Pooled features [batch, dim]."""
    _checks.count("dim", self.dim)
    shape = (feature_channels(features), self.dim)
    return pooling.tsmk(
      features,
      self.param("kernel", nn.initializers.glorot_uniform(), shape),
      self.param("bias", nn.initializers.zeros, shape[1:]),
      window=self.window,
      stop_attention_gradient=self.stop_attention_gradient,
      reduction=self.reduction,
      where=where,
    )
