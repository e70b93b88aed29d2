"""DeLF pooling: sum of features, each weighted by its own score."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Real

from spherejax import _checks, _numerics
from spherejax.pooling import _tokens
from spherejax.pooling._tokens import Reduction


def delf(
  features: Float[ArrayLike, "batch *positions channels"],
  hidden_kernel: Float[ArrayLike, "channels hidden"],
  hidden_bias: Real[ArrayLike, " hidden"],
  score_kernel: Float[ArrayLike, " hidden"],
  score_bias: Real[ArrayLike, ""],
  *,
  reduction: Reduction = "sum",
  where: Bool[ArrayLike, "batch *positions"] | None = None,
) -> Float[Array, "batch channels"]:
  """Sum of the features, each weighted by the score that a network gives it (DeLF).

      sum_j a_j x_j,    a_j = softplus(relu(x_j W + b) w + c)    over the kept j

  The weights are positive and do not compete: each depends on its own feature only.

  Args:
    features: [batch, tokens, channels] or [batch, height, width, channels], floating.
    hidden_kernel: W, [channels, hidden].
    hidden_bias: b, [hidden].
    score_kernel: w, [hidden].
    score_bias: c, scalar.
    reduction: static. "sum", or "mean" over the kept positions; both agree after a
      normalisation to length 1.
    where: boolean, the shape of `features` without channels, True keeps; masked
      positions may be NaN. None keeps all.

  Returns:
    [batch, channels], dtype of `features`. 0 where nothing is kept.

  Raises:
    TypeError: features not floating, where not boolean.
    ValueError: features without 3 or 4 axes or without entries, shapes do not match,
      an unknown reduction.

  Differentiable in: features, kernels, biases. Cost: O(batch positions channels
  hidden).

  Source: Noh et al. 2017, "Large-scale image retrieval with attentive deep local
  features", which takes the sum and trains the scores on fixed features; DML 5.3.5,
  whose released code takes the mean and trains all parameters together.

  Example:
    >>> features = jnp.array([[[1.0, 4.0], [3.0, 0.0]]])
    >>> ones = jnp.ones(1)
    >>> spherejax.pooling.delf(features, jnp.zeros((2, 1)), ones, ones, -1.0)
    Array([[2.772589, 2.772589]], dtype=float32)
  """
  features = _checks.array("features", features)
  tokens, mask = _tokens.flatten(features, where)
  _checks.one_of("reduction", reduction, Reduction)
  hidden_kernel = _checks.array("hidden_kernel", hidden_kernel).astype(tokens.dtype)
  hidden_bias = _checks.array("hidden_bias", hidden_bias).astype(tokens.dtype)
  score_kernel = _checks.array("score_kernel", score_kernel).astype(tokens.dtype)
  score_bias = _checks.scalar("score_bias", score_bias, tokens.dtype)
  _checks.expect("score_kernel", score_kernel, rank=1)
  width = score_kernel.shape
  expected = (tokens.shape[2], *width)
  _checks.shape("hidden_kernel", hidden_kernel, expected, "features and score_kernel")
  _checks.shape("hidden_bias", hidden_bias, width, "score_kernel")
  hidden = _numerics.product(tokens, hidden_kernel)
  hidden += hidden_bias[None, None]
  scores = _numerics.product(jax.nn.relu(hidden), score_kernel)
  weighted = _numerics.softplus(scores + score_bias)[..., None] * tokens
  if reduction == "mean":
    return _tokens.mean(weighted, mask).astype(features.dtype)
  return jnp.sum(weighted, axis=1).astype(features.dtype)
