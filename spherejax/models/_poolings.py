"""Pooling modules with parameters; each calls the function of its name."""

import dataclasses

import flax.linen as nn
import jax.numpy as jnp
from flax.typing import Initializer
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Real

from spherejax import _checks, pooling
from spherejax.pooling._gsp import Solver


class GeM(nn.Module):
  """Generalised-mean pooling with a learned power.

  Owns `power`, a scalar or [channels], and calls `spherejax.pooling.gem`.

  Attributes:
    power: start of the learned power, positive. 1 gives the mean; larger powers come
      nearer to the maximum.
    per_channel: static. True learns a power for each channel.

  Call: `(features, *, where=None)` with the shapes of `spherejax.pooling.gem`.

  Raises:
    ValueError: a power that is not positive; shapes do not match.

  Differentiable in: the power, features. Cost: O(batch tokens channels).

  Source: Radenovic et al. 2018, "Fine-tuning CNN image retrieval with no human
  annotation", which starts at 3.

  Example:
    >>> module = spherejax.models.GeM()
    >>> features = jnp.ones((1, 2, 2, 3))
    >>> variables = module.init(jax.random.key(0), features)
    >>> variables["params"]["power"]
    Array(3., dtype=float32)
  """

  power: Real[ArrayLike, ""] = 3.0
  per_channel: bool = False

  @nn.compact
  def __call__(
    self,
    features: Float[ArrayLike, "batch *positions channels"],
    *,
    where: Bool[ArrayLike, "batch *positions"] | None = None,
  ) -> Float[Array, "batch channels"]:
    """Pooled features [batch, channels]."""
    _checks.flag("per_channel", self.per_channel)
    _checks.positive("power", self.power)
    _checks.single("power", self.power)
    shape = jnp.shape(features)[-1:] if self.per_channel else ()
    power = self.param("power", nn.initializers.constant(self.power), shape)
    return pooling.gem(features, power=power, where=where)


class GSP(nn.Module):
  """Generalized sum pooling with learned prototypes.

  Owns `prototypes` [num_prototypes, channels] and calls `spherejax.pooling.gsp`. A mass
  of 1 is global average pooling with attributes. Until the prototypes are prepared, use
  `module.clone(mass=1.0)`, which has the same parameters.

  Attributes:
    num_prototypes: static. 64, or 128 for data sets with thousands of classes.
    mass: in (0, 1], share of the positions that is kept.
    inverse_temperature: not negative. 5 for pair and triplet losses, 0.5 for proxy
      losses.
    solver: static. "newton", or "fixed_point" for the paper's iteration.
    steps: static. Steps of the paper's iteration.
    init_prototypes: draws the prototypes at the start.

  Call: `(features, *, where=None)` with the shapes of `spherejax.pooling.gsp`;
  returns its `GSPResult`.

  Raises:
    TypeError: features not floating.
    ValueError: features without 3 or 4 axes; a mass outside (0, 1]; a negative
      inverse temperature; shapes do not match.

  Differentiable in: prototypes, features. Cost: O(batch tokens prototypes
  channels).

  Source: DML 5.2.2; Gurbuz, Sener, Alatan 2023, "Generalized sum pooling for metric
  learning". Glorot-uniform start as in the authors' implementation.

  Example:
    >>> module = spherejax.models.GSP(num_prototypes=4, mass=0.5)
    >>> features = jnp.ones((1, 2, 2, 3))
    >>> variables = jax.jit(module.init)(jax.random.key(0), features)
    >>> jax.jit(module.apply)(variables, features).weights
    Array([[[0.25, 0.25],
            [0.25, 0.25]]], dtype=float32)
  """

  num_prototypes: int = 64
  mass: Real[ArrayLike, ""] = 0.3
  inverse_temperature: Real[ArrayLike, ""] = 5.0
  solver: Solver = "newton"
  steps: int = 100
  init_prototypes: Initializer = nn.initializers.glorot_uniform()

  @nn.compact
  def __call__(
    self,
    features: Float[ArrayLike, "batch *positions channels"],
    *,
    where: Bool[ArrayLike, "batch *positions"] | None = None,
  ) -> pooling.GSPResult:
    """Pooled features, weights and attributes."""
    features = _checks.array("features", features, "floating", rank=(3, 4))
    _checks.count("num_prototypes", self.num_prototypes)
    prototypes = self.param(
      "prototypes",
      _checks.initializer(self, "init_prototypes"),
      (self.num_prototypes, features.shape[-1]),
    )
    return pooling.gsp(
      features,
      prototypes,
      mass=self.mass,
      inverse_temperature=self.inverse_temperature,
      solver=self.solver,
      steps=self.steps,
      where=where,
    )


def feature_channels(features: ArrayLike) -> int:
  """Channels of a checked map."""
  array = _checks.array("features", features, "floating", rank=(3, 4))
  return array.shape[-1]


def cleared(features: Array, where: ArrayLike | None) -> Array:
  """Sets masked features to 0, since NaN would reach a projection's gradient."""
  if where is None:
    return features
  mask = _checks.array("where", where)
  _checks.mask(mask, features.shape[:-1])
  return jnp.where(mask[..., None], features, 0)


class GSPGMP(nn.Module):
  """Generalized sum pooling plus maximum pooling, each after its own projection.

      pooled = gsp(W f_1 .. W f_n) + V max_j f_j

  Owns `projection` W and `max_projection` V, both [channels, dim] without bias, and the
  sum's prototypes [num_prototypes, dim]. The module projects the features itself: use
  `models.EmbeddingHead(dim, module, projection="none")`.

  Attributes:
    dim: static. Dimension of the result.
    gsp: the GSP module, with its prototypes, mass and inverse temperature.

  Call: `(features, *, where=None)` with the shapes of `spherejax.pooling.gsp`; returns
  its `GSPResult`, with `pooled` [batch, dim] and the sum's weights and attributes.

  Raises:
    TypeError: features not floating.
    ValueError: features without 3 or 4 axes; what `models.GSP` refuses; shapes do not
      match.

  Differentiable in: all parameters, features. Cost: O(batch tokens dim (channels +
  num_prototypes)).

  Source: DML 5.3.5 and figure 5.12(b), GSP+GMP; the projections as in the authors'
  implementation.

  Example:
    >>> module = spherejax.models.GSPGMP(2, spherejax.models.GSP(4, mass=0.5))
    >>> pool = jax.jit(module.init_with_output)
    >>> result, variables = pool(jax.random.key(0), jnp.ones((1, 4, 4, 3)))
    >>> result.pooled.shape, sorted(variables["params"])
    ((1, 2), ['gsp', 'max_projection', 'projection'])
  """

  dim: int = 128
  # A new instance per module: `nnx.bridge.ToNNX` takes class attributes for methods.
  gsp: GSP = dataclasses.field(default_factory=GSP)

  @nn.compact
  def __call__(
    self,
    features: Float[ArrayLike, "batch *positions channels"],
    *,
    where: Bool[ArrayLike, "batch *positions"] | None = None,
  ) -> pooling.GSPResult:
    """Pooled features; weights and attributes of the sum."""
    features = _checks.array("features", features, "floating", rank=(3, 4))
    _checks.count("dim", self.dim)
    _checks.function("gsp", self.gsp)
    features = cleared(features, where)

    def project(x: Array, name: str) -> Array:
      drawn = nn.initializers.glorot_uniform()
      return nn.Dense(self.dim, use_bias=False, kernel_init=drawn, name=name)(x)

    summed = self.gsp(project(features, "projection"), where=where)
    largest = project(pooling.gmp(features, where=where), "max_projection")
    return summed._replace(pooled=summed.pooled + largest)
