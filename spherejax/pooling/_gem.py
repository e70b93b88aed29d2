"""Generalized-mean pooling."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Real

from spherejax import _checks, _numerics
from spherejax.pooling import _tokens

_FLOOR = 1e-6  # of the activations; Radenovic et al. 2018


def gem(
  features: Float[ArrayLike, "batch *positions channels"],
  *,
  power: Real[ArrayLike, " channels"] | Real[ArrayLike, ""] = 3.0,
  where: Bool[ArrayLike, "batch *positions"] | None = None,
) -> Float[Array, "batch channels"]:
  """Generalized-mean pooling: between the mean and the maximum of each channel.

      (mean_j max(x_j, 1e-6)^power)^(1/power)      over the kept positions j

  Power 1 gives the mean of the (clamped) map, a large power gives its maximum; the
  result never decreases with the power.

  Args:
    features: [batch, tokens, channels] or [batch, height, width, channels], floating.
    power: scalar or [channels], positive, may be traced, usually learned. There is no
      upper limit, since powers are taken of values divided by their maximum.
    where: boolean, the shape of `features` without channels, True keeps; masked
      positions may be NaN. None keeps all.

  Returns:
    [batch, channels], dtype of `features`. 0 where nothing is kept, NaN for a channel
    with a kept NaN. Undefined for a traced power that is not positive.

  Raises:
    TypeError: features not floating, where not boolean.
    ValueError: features without 3 or 4 axes or without entries, shapes do not match,
      static power not positive.

  Differentiable in: features (0 below 1e-6), power. Cost: one power per entry.

  Source: Radenovic, Tolias, Chum 2018, "Fine-tuning CNN image retrieval with no human
  annotation"; DML 5.3.5.

  Example:
    >>> spherejax.pooling.gem(jnp.array([[[1.0], [3.0]]]), power=2.0)
    Array([[2.236068]], dtype=float32)
  """
  features = _checks.array("features", features)
  tokens, mask = _tokens.flatten(features, where)
  _checks.positive("power", power)
  power = jnp.asarray(power, tokens.dtype)
  if power.ndim > 0:
    _checks.shape("power", power, tokens.shape[2:], f"features {features.shape}")
  power = jnp.broadcast_to(power, tokens.shape[2:])
  floor = jnp.asarray(_FLOOR, tokens.dtype)
  clamped = jnp.where(tokens <= floor, floor, tokens)  # NaN stays NaN
  if mask is None:
    mask = jnp.ones(tokens.shape[:2], bool)
  # The result does not depend on the divisor, so neither does the derivative.
  largest = jax.lax.stop_gradient(
    jnp.max(jnp.where(mask[..., None], clamped, floor), axis=1)
  )
  ratio = jnp.where(mask[..., None], clamped / largest[:, None], 0)
  powers = _numerics.power(ratio, power[None, None])
  mean = jnp.sum(powers, axis=1) / _tokens.count(mask, tokens.dtype)[:, None]
  return (largest * _numerics.power(mean, 1 / power[None])).astype(features.dtype)
