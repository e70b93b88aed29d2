"""Descriptor of the tiled selective match kernel, with norms as attention."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float

from spherejax import _checks, _numerics
from spherejax.pooling import _tokens
from spherejax.pooling._tokens import Reduction


def tsmk(
  features: Float[ArrayLike, "batch *positions channels"],
  kernel: Float[ArrayLike, "channels dim"],
  bias: Float[ArrayLike, " dim"],
  *,
  window: int = 3,
  stop_attention_gradient: bool = True,
  reduction: Reduction = "mean",
  where: Bool[ArrayLike, "batch *positions"] | None = None,
) -> Float[Array, "batch dim"]:
  """Smoothed and projected features, weighted by the norms of the raw ones.

      pooled = mean_j |x_j| (W s_j + b)

  with s_j the average over the existing, kept positions in a square window around j.

  Args:
    features: [batch, height, width, channels], floating; [batch, tokens, channels]
      for a window of 1.
    kernel: [channels, dim], floating, the transpose of W.
    bias: [dim], floating.
    window: static, odd. Side of the window; 1 does not smooth.
    stop_attention_gradient: static. True (DML's form) treats the norms as constants for
      the derivative, False (the original) differentiates them.
    reduction: static. "mean" (DML's form) or "sum" (the original); both agree once the
      embedding is divided by its norm.
    where: boolean, the shape of `features` without channels, True keeps; masked
      positions may be NaN. None keeps all.

  Returns:
    [batch, dim], dtype of `features`. 0 where nothing is kept; a zero feature has
    weight 0 and derivative 0.

  Raises:
    TypeError: features, kernel or bias not floating, where not boolean, window not a
      static integer, stop_attention_gradient not boolean.
    ValueError: shapes do not match, even window, a window above 1 for tokens, unknown
      reduction.

  Differentiable in: features, kernel, bias. Cost:
  O(batch tokens channels (window^2 + dim)).

  Source: Tolias, Jenicek, Chum 2020, "Learning and aggregating deep local descriptors
  for instance-level recognition", whose projection is a fixed whitening; DML 5.3.5.

  Example:
    >>> features = jnp.array([[[3.0, 4.0], [0.0, 1.0]]])
    >>> spherejax.pooling.tsmk(features, jnp.eye(2), jnp.zeros(2), window=1)
    Array([[ 7.5, 10.5]], dtype=float32)
  """
  _checks.flag("stop_attention_gradient", stop_attention_gradient)
  features = _checks.array("features", features)
  tokens, mask = _tokens.flatten(features, where)
  _checks.count("window", window)
  _checks.one_of("reduction", reduction, Reduction)
  if window % 2 == 0:
    raise ValueError(f"window must be odd, got {window}")
  if window > 1:
    _checks.expect("features", features, rank=4)
  kernel = _checks.array("kernel", kernel, "floating", rank=2)
  bias = _checks.array("bias", bias)
  shape = (tokens.shape[2], kernel.shape[1])
  _checks.shape("kernel", kernel, shape, f"features {features.shape}")
  _checks.expect("bias", bias, "floating")
  _checks.shape("bias", bias, shape[1:], f"kernel {shape}")
  if mask is None:
    mask = jnp.ones(tokens.shape[:2], bool)
  attention = _numerics.norm(tokens)
  if stop_attention_gradient:
    attention = jax.lax.stop_gradient(attention)
  smooth = tokens
  if window > 1:
    # Without a mask all images have the same windows.
    present = mask[:1] if where is None else mask
    total, number = (
      _window_sums(x.reshape(len(x), *features.shape[1:3], -1), window)
      for x in (tokens, present.astype(tokens.dtype))
    )
    smooth = (total / jnp.maximum(number, 1)).reshape(tokens.shape)
  # The result is linear in the smoothed features, so one projection per image suffices.
  mixed = _numerics.einsum("bn,bnc->bc", attention, smooth)
  pooled = _numerics.product(mixed, kernel.astype(mixed.dtype))
  pooled += jnp.sum(attention, axis=1)[:, None] * bias.astype(tokens.dtype)[None]
  if reduction == "mean":
    pooled /= _tokens.count(mask, tokens.dtype)[:, None]
  return pooled.astype(features.dtype)


def _window_sums(x: Array, window: int) -> Array:
  """Sum over the square window around each position of [b, h, w, c], 0 outside."""
  sides = (1, window, window, 1)
  return jax.lax.reduce_window(
    x, np.zeros((), x.dtype), jax.lax.add, sides, (1, 1, 1, 1), "SAME"
  )
