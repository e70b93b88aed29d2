"""Pooling modules with learned attention; each calls the function of its name."""

import functools

import flax.linen as nn
from flax.typing import Initializer
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Real

from spherejax import _checks, pooling
from spherejax.models import _kept_norm
from spherejax.models._kept_norm import Norm
from spherejax.models._poolings import feature_channels
from spherejax.pooling._tokens import Reduction

_GLOROT = nn.initializers.glorot_uniform()


def _glorot_to_one(key: Array, shape: tuple[int, ...]) -> Array:
  """Glorot-uniform weights of a layer with one output, without the output axis."""
  return _GLOROT(key, (*shape, 1))[..., 0]


def _reduced(channels: int, reduction: int) -> int:
  _checks.count("reduction", reduction)
  if channels % reduction:
    raise ValueError(f"reduction must divide {channels} channels, got {reduction}")
  return channels // reduction


class CBAM(nn.Module):
  """Mean of a map after attention to its channels and then to its positions.

  Owns the kernels, optional biases and an optional BatchNorm `positions`, and calls
  `spherejax.pooling.cbam`. `CBAM(reduction=1, kernel_size=3, use_bias=False,
  norm="none")` is the form of DML's released code.

  Attributes:
    reduction: static. Ratio of channels to hidden units of the perceptron; divides the
      channels.
    kernel_size: static, odd. Size of the convolution over positions; 1 also takes
      tokens.
    use_bias: static. True gives the perceptron biases.
    norm: static. "batch" normalises the result of the convolution, "none" does not.
    axis_name: static. Device axis over which BatchNorm averages its training
      statistics, with equal weight for each device; None takes this device's rows only.

  Call: `(features, *, where=None, train=False)` with the shapes of
  `spherejax.pooling.cbam`. With `train=True` and BatchNorm, the collection
  "batch_stats" must be mutable; masked positions do not count in it.

  Raises:
    TypeError: features not floating.
    ValueError: a reduction that does not divide the channels, an even kernel size, an
      unknown norm, shapes that do not match.

  Differentiable in: parameters, features. Cost: that of `spherejax.pooling.cbam`.

  Source: Woo et al. 2018, "CBAM: convolutional block attention module"; DML 5.3.5.
  Glorot-uniform start.

  Example:
    >>> module = spherejax.models.CBAM(reduction=2)
    >>> features = jnp.ones((1, 4, 4, 6))
    >>> pool = jax.jit(module.init_with_output)
    >>> pool(jax.random.key(0), features)[0].shape
    (1, 6)
  """

  reduction: int = 16
  kernel_size: int = 7
  use_bias: bool = True
  norm: Norm = "batch"
  axis_name: str | None = None

  @nn.compact
  def __call__(
    self,
    features: Float[ArrayLike, "batch *positions channels"],
    *,
    where: Bool[ArrayLike, "batch *positions"] | None = None,
    train: bool = False,
  ) -> Float[Array, "batch channels"]:
    """Pooled features [batch, channels]."""
    _checks.flag("use_bias", self.use_bias)
    channels = feature_channels(features)
    hidden = _reduced(channels, self.reduction)
    _checks.count("kernel_size", self.kernel_size)
    _checks.one_of("norm", self.norm, Norm)
    zeros = nn.initializers.zeros
    biases = {}
    if self.use_bias:
      biases["reduce_bias"] = self.param("reduce_bias", zeros, (hidden,))
      biases["expand_bias"] = self.param("expand_bias", zeros, (channels,))
    normalize = functools.partial(
      _kept_norm.batch_norm, train=train, axis_name=self.axis_name
    )
    return pooling.cbam(
      features,
      self.param("reduce_kernel", _GLOROT, (channels, hidden)),
      self.param("expand_kernel", _GLOROT, (hidden, channels)),
      self.param("spatial_kernel", _glorot_to_one, (*[self.kernel_size] * 2, 2)),
      **biases,
      normalize=normalize if self.norm == "batch" else None,
      where=where,
    )


class DeLF(nn.Module):
  """Sum of the features, each weighted by a learned score.

  Owns the kernels and biases of two layers and calls `spherejax.pooling.delf`.

  Attributes:
    hidden: static. Width of the hidden layer.
    reduction: static. "sum", or "mean" over positions as in DML's released code.

  Call: `(features, *, where=None)` with the shapes of `spherejax.pooling.delf`.

  Raises:
    TypeError: features not floating.
    ValueError: features without 3 or 4 axes, no hidden units, an unknown reduction,
      shapes that do not match.

  Differentiable in: parameters, features. Cost: O(batch positions channels hidden).

  Source: Noh et al. 2017, "Large-scale image retrieval with attentive deep local
  features"; DML 5.3.5. Glorot-uniform start.

  Example:
    >>> module = spherejax.models.DeLF(hidden=8)
    >>> features = jnp.ones((1, 4, 4, 6))
    >>> pool = jax.jit(module.init_with_output)
    >>> pool(jax.random.key(0), features)[0].shape
    (1, 6)
  """

  hidden: int = 512
  reduction: Reduction = "sum"

  @nn.compact
  def __call__(
    self,
    features: Float[ArrayLike, "batch *positions channels"],
    *,
    where: Bool[ArrayLike, "batch *positions"] | None = None,
  ) -> Float[Array, "batch channels"]:
    """Pooled features [batch, channels]."""
    _checks.count("hidden", self.hidden)
    zeros = nn.initializers.zeros
    return pooling.delf(
      features,
      self.param("hidden_kernel", _GLOROT, (feature_channels(features), self.hidden)),
      self.param("hidden_bias", zeros, (self.hidden,)),
      self.param("score_kernel", _glorot_to_one, (self.hidden,)),
      self.param("score_bias", zeros, ()),
      reduction=self.reduction,
      where=where,
    )


class SOLAR(nn.Module):
  """Generalized mean of features that have attended to each other.

  Owns four kernels, the scalar `power` and two BatchNorms, `queries` and `keys`, and
  calls `spherejax.pooling.solar`. `SOLAR(reduction=1, init_output=
  nn.initializers.glorot_uniform())` is the form of DML's released code.

  Attributes:
    reduction: static. Ratio of the channels to those of queries, keys and values;
      divides the channels.
    power: start of the learned power, positive.
    init_output: draws the output kernel at the start. At 0 the module starts as
      `GeM`.
    axis_name: static. Device axis over which BatchNorm averages its training
      statistics, with equal weight for each device; None takes this device's rows only.

  Call: `(features, *, where=None, train=False)` with the shapes of
  `spherejax.pooling.solar`. With `train=True` the collection "batch_stats" must be
  mutable; masked positions do not count in it.

  Raises:
    TypeError: features not floating.
    ValueError: a reduction that does not divide the channels, a power that is not
      positive, shapes that do not match.

  Differentiable in: parameters, features. Cost: that of `spherejax.pooling.solar`.

  Source: Ng et al. 2020, "SOLAR: second-order loss and attention for image retrieval";
  DML 5.3.5. Glorot-uniform start of the other kernels.

  Example:
    >>> module = spherejax.models.SOLAR()
    >>> features = jnp.ones((1, 4, 4, 6))
    >>> pool = jax.jit(module.init_with_output)
    >>> pool(jax.random.key(0), features)[0]
    Array([[1., 1., 1., 1., 1., 1.]], dtype=float32)
  """

  reduction: int = 2
  power: Real[ArrayLike, ""] = 3.0
  init_output: Initializer = nn.initializers.zeros
  axis_name: str | None = None

  @nn.compact
  def __call__(
    self,
    features: Float[ArrayLike, "batch *positions channels"],
    *,
    where: Bool[ArrayLike, "batch *positions"] | None = None,
    train: bool = False,
  ) -> Float[Array, "batch channels"]:
    """Pooled features [batch, channels]."""
    channels = feature_channels(features)
    inner = _reduced(channels, self.reduction)
    _checks.positive("power", self.power)
    _checks.single("power", self.power)
    return pooling.solar(
      features,
      self.param("query_kernel", _GLOROT, (channels, inner)),
      self.param("key_kernel", _GLOROT, (channels, inner)),
      self.param("value_kernel", _GLOROT, (channels, inner)),
      self.param(
        "output_kernel", _checks.initializer(self, "init_output"), (inner, channels)
      ),
      power=self.param("power", nn.initializers.constant(self.power), ()),
      normalize=functools.partial(
        _kept_norm.batch_norm, train=train, axis_name=self.axis_name
      ),
      where=where,
    )
