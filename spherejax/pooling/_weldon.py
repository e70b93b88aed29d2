"""WELDON pooling: mean of the highest and of the lowest values of each channel."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float

from spherejax import _checks
from spherejax.pooling import _tokens
from spherejax.pooling._tokens import Reduction


def weldon(
  features: Float[ArrayLike, "batch *positions channels"],
  *,
  num_highest: int = 3,
  num_lowest: int = 3,
  reduction: Reduction = "mean",
  where: Bool[ArrayLike, "batch *positions"] | None = None,
) -> Float[Array, "batch channels"]:
  """Mean of the highest plus mean of the lowest values of each channel (WELDON).

      mean of the k largest x_j + mean of the l smallest x_j      over the kept j

  for each channel, with k = `num_highest` and l = `num_lowest`. (k, l) = (1, 0) gives
  the maximum, (number of positions, 0) gives the mean.

  Args:
    features: [batch, tokens, channels] or [batch, height, width, channels], floating.
    num_highest: static, at least 1. If fewer positions are kept, all of them count.
    num_lowest: static, at least 0. If fewer positions are kept, all of them count.
    reduction: static. "mean", or "sum" for sums instead of the two means.
    where: boolean, the shape of `features` without channels, True keeps; masked
      positions may be NaN. None keeps all.

  Returns:
    [batch, channels], dtype of `features`. 0 where nothing is kept.

  Raises:
    TypeError: features not floating, where not boolean, a number not an integer.
    ValueError: features without 3 or 4 axes or without entries, shapes do not match,
      a number too small, an unknown reduction.

  Differentiable in: features; in a tie the first positions get the gradient. Cost: a
  partial sort of each channel.

  Source: Durand, Thome, Cord 2016, "WELDON: weakly supervised learning of deep
  convolutional neural networks"; DML 5.3.5, whose released code takes sums and adds
  every value that ties with the last.

  Example:
    >>> features = jnp.array([[[1.0], [5.0], [2.0], [3.0]]])
    >>> spherejax.pooling.weldon(features, num_highest=2, num_lowest=1)
    Array([[5.]], dtype=float32)
  """
  features = _checks.array("features", features)
  tokens, mask = _tokens.flatten(features, where)
  _checks.count("num_highest", num_highest)
  _checks.count("num_lowest", num_lowest, 0)
  _checks.one_of("reduction", reduction, Reduction)
  mask = jnp.ones(tokens.shape[:2], bool) if mask is None else mask
  mean = reduction == "mean"
  pooled = _highest(tokens, mask, num_highest, mean)
  if num_lowest:
    pooled -= _highest(-tokens, mask, num_lowest, mean)
  return pooled.astype(features.dtype)


def _highest(tokens: Array, mask: Array, number: int, mean: bool) -> Array:
  """Mean or sum [batch, channels] of the `number` largest kept values."""
  number = min(number, tokens.shape[1])
  compared = jnp.where(mask[..., None], tokens, -jnp.inf)
  values = jax.lax.top_k(jnp.swapaxes(compared, 1, 2), number)[0]
  valid = jnp.arange(number)[None] < jnp.sum(mask, axis=1, dtype=jnp.int32)[:, None]
  total = jnp.sum(jnp.where(valid[:, None], values, 0), axis=2)
  return total / _tokens.count(valid, tokens.dtype)[:, None] if mean else total
