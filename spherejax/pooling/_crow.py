"""Cross-dimensional weighting (CroW) of a map's positions and channels."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Real

from spherejax import _checks, _numerics
from spherejax.pooling import _tokens

_HARD_OFFSET = 1e-6  # Kalantidis et al. 2016
_SOFT_OFFSET = 1e-16  # DML's released code


def crow(
  features: Float[ArrayLike, "batch *positions channels"],
  *,
  norm_order: Real[ArrayLike, ""] = 2.0,
  root: Real[ArrayLike, ""] = 2.0,
  soft: bool = False,
  where: Bool[ArrayLike, "batch *positions"] | None = None,
) -> Float[Array, "batch channels"]:
  """Sum of the features, weighted by strong positions and rare channels (CroW).

      i_k sum_j s_j x_jk      over the kept positions j, x after a relu
      s_j = (t_j / |t|_a)^(1/b),  t_j = sum_k x_jk
      i_k = log((D o + sum_h q_h) / (o + q_k)),  q_k = share of positions with x_jk > 0

  with D channels, norm order a, root b, offset o = 1e-6. A channel without activity has
  i_k = 0. The channel weights are constants for the derivative.

  Args:
    features: [batch, tokens, channels] or [batch, height, width, channels], floating.
      Negative entries count as 0.
    norm_order: a, positive, may be traced.
    root: b, positive, may be traced.
    soft: static. True for q_k = mean_j sigmoid(x_jk), which is differentiated, with
      o = 1e-16, and the mean over positions instead of the sum.
    where: boolean, the shape of `features` without channels, True keeps; masked
      positions may be NaN. None keeps all.

  Returns:
    [batch, channels], dtype of `features`. 0 where nothing is kept or all is 0.

  Raises:
    TypeError: features not floating, where not boolean, soft not boolean.
    ValueError: features without 3 or 4 axes or without entries, shapes do not match,
      a static norm order or root not positive.

  Differentiable in: features (0 where not positive), norm_order, root. Cost: O(batch
  positions channels).

  Source: Kalantidis, Mellina, Osindero 2016, "Cross-dimensional weighting for
  aggregated deep convolutional features"; DML 5.3.5, whose released code is the soft
  form. The q_k of the soft form lie in [0.5, 1), so the channel weights hardly differ.

  Example:
    >>> spherejax.pooling.crow(jnp.array([[[4.0, 0.0], [0.0, 3.0]]]))
    Array([[2.479879, 1.610729]], dtype=float32)
  """
  _checks.flag("soft", soft)
  features = _checks.array("features", features)
  tokens, mask = _tokens.flatten(features, where)
  _checks.positive("norm_order", norm_order)
  _checks.positive("root", root)
  norm_order = _checks.scalar("norm_order", norm_order, tokens.dtype)
  root = _checks.scalar("root", root, tokens.dtype)
  mask = jnp.ones(tokens.shape[:2], bool) if mask is None else mask
  number = _tokens.count(mask, tokens.dtype)[:, None]
  tokens = jax.nn.relu(tokens)
  pooled = jnp.sum(_strength(tokens, norm_order, root) * tokens, axis=1)
  if soft:
    active = jax.nn.sigmoid(tokens)
    rarity = _rarity(_tokens.mean(jnp.where(mask[..., None], active, 0), mask), True)
    return (rarity * pooled / number).astype(features.dtype)
  share = jnp.sum(tokens > 0, axis=1, dtype=jnp.int32).astype(tokens.dtype) / number
  return (_rarity(share, False) * pooled).astype(features.dtype)


def _strength(tokens: Array, norm_order: Array, root: Array) -> Array:
  """Weights of the positions [batch, positions, 1], for features of any scale."""
  totals = jnp.sum(tokens, axis=2)
  largest = jax.lax.stop_gradient(jnp.max(totals, axis=1, keepdims=True))
  totals = _numerics.divide(totals, largest)
  powers = jnp.sum(_numerics.power(totals, norm_order), axis=1, keepdims=True)
  norm = _numerics.power(powers, 1 / norm_order)
  return _numerics.power(_numerics.divide(totals, norm), 1 / root)[..., None]


def _rarity(share: Array, soft: bool) -> Array:
  """Weights of the channels [batch, channels], 0 for a channel that is never active."""
  offset = jnp.asarray(_SOFT_OFFSET if soft else _HARD_OFFSET, share.dtype)
  total = share.shape[1] * offset + jnp.sum(share, axis=1, keepdims=True)
  return jnp.where(share > 0, jnp.log(total / (offset + share)), 0)
