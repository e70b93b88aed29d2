"""Convolutional block attention (CBAM), then the mean."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Real

from spherejax import _checks, _numerics
from spherejax.pooling import _tokens

_HIGHEST = jax.lax.Precision.HIGHEST


def cbam(
  features: Float[ArrayLike, "batch *positions channels"],
  reduce_kernel: Float[ArrayLike, "channels hidden"],
  expand_kernel: Float[ArrayLike, "hidden channels"],
  spatial_kernel: Float[ArrayLike, "size size 2"],
  *,
  reduce_bias: Real[ArrayLike, " hidden"] | None = None,
  expand_bias: Real[ArrayLike, " channels"] | None = None,
  normalize: Callable[[str, Array, Array], Array] | None = None,
  where: Bool[ArrayLike, "batch *positions"] | None = None,
) -> Float[Array, "batch channels"]:
  """Mean of a map after attention to its channels and then to its positions (CBAM).

      m = sigmoid(mlp(mean_j x_j) + mlp(max_j x_j))      mlp(u) = relu(u R + r) E + e
      y_j = m x_j                                        for each channel
      s = sigmoid(normalize(conv([mean_k y_jk, max_k y_jk])))
      mean_j s_j y_j                                     over the kept positions j

  with the kernels R, E and biases r, e. Masked positions are 0 in the convolution, like
  positions outside the map.

  Args:
    features: [batch, height, width, channels], floating; [batch, tokens, channels]
      with a spatial kernel of size 1.
    reduce_kernel: [channels, hidden], of the perceptron.
    expand_kernel: [hidden, channels], of the perceptron.
    spatial_kernel: [size, size, 2] with an odd size, applied to the mean and the
      maximum over the channels.
    reduce_bias: [hidden]. None adds nothing.
    expand_bias: [channels]. None adds nothing.
    normalize: function of (place, x, mask) that computes "normalize" above, for x
      [batch, height, width, 1], a mask of its shape and the place "positions". None
      normalises nothing. See `models.CBAM`.
    where: boolean, the shape of `features` without channels, True keeps; masked
      positions may be NaN. None keeps all.

  Returns:
    [batch, channels], dtype of `features`. 0 where nothing is kept.

  Raises:
    TypeError: features not floating, where not boolean.
    ValueError: shapes do not match; a kernel of even size, or larger than 1 for
      features without height and width.

  Differentiable in: features, kernels, biases; among ties of a maximum only the first
  gets its gradient. Cost: O(batch (positions (channels + size^2) + channels hidden)).

  Source: Woo et al. 2018, "CBAM: convolutional block attention module", with biases,
  batch normalisation and size 7; DML 5.3.5, whose released code has size 3 and neither
  biases nor normalisation.

  Example:
    >>> features = jnp.array([[[[1.0, 4.0], [3.0, 0.0]]]])
    >>> zero = jnp.zeros((2, 2))
    >>> spherejax.pooling.cbam(features, zero, zero, jnp.zeros((3, 3, 2)))
    Array([[0.5, 0.5]], dtype=float32)
  """
  if normalize is not None:
    _checks.function("normalize", normalize)
  features = _checks.array("features", features)
  tokens, mask = _tokens.flatten(features, where)
  dtype, channels = tokens.dtype, tokens.shape[2]
  reduce_kernel = _checks.array("reduce_kernel", reduce_kernel).astype(dtype)
  expand_kernel = _checks.array("expand_kernel", expand_kernel).astype(dtype)
  spatial_kernel = _checks.array("spatial_kernel", spatial_kernel).astype(dtype)
  _check_kernels(features, reduce_kernel, expand_kernel, spatial_kernel)
  hidden = reduce_kernel.shape[1]
  reduce_bias = _bias("reduce_bias", reduce_bias, hidden, dtype)
  expand_bias = _bias("expand_bias", expand_bias, channels, dtype)

  def perceptron(u):
    inner = _numerics.product(u, reduce_kernel) + reduce_bias[None]
    inner = jax.nn.relu(inner)
    return _numerics.product(inner, expand_kernel) + expand_bias[None]

  summaries = _tokens.mean(tokens, mask), _tokens.maximum(tokens, mask)
  of_channels = jax.nn.sigmoid(sum(map(perceptron, summaries)))
  tokens = tokens * of_channels[:, None]
  statistics = jnp.stack(
    [jnp.mean(tokens, axis=2), _tokens.first_maximum(tokens, 2)], axis=2
  )
  sides = features.shape[1:3] if features.ndim == 4 else (1, features.shape[1])
  logits = jax.lax.conv_general_dilated(
    statistics.reshape(-1, *sides, 2),
    spatial_kernel[..., None],
    window_strides=(1, 1),
    padding="SAME",
    dimension_numbers=("NHWC", "HWIO", "NHWC"),
    precision=_HIGHEST,
  )
  if normalize is not None:
    counted = jnp.ones(tokens.shape[:2], bool) if mask is None else mask
    logits = normalize("positions", logits, counted.reshape(logits.shape))
  of_positions = jax.nn.sigmoid(logits.reshape(*tokens.shape[:2], 1))
  return _tokens.mean(of_positions * tokens, mask).astype(features.dtype)


def _check_kernels(features, reduce_kernel, expand_kernel, spatial_kernel) -> None:
  _checks.expect("reduce_kernel", reduce_kernel, rank=2)
  hidden, channels = reduce_kernel.shape[1], features.shape[-1]
  of_features = f"features {features.shape}"
  _checks.shape("reduce_kernel", reduce_kernel, (channels, hidden), of_features)
  _checks.shape("expand_kernel", expand_kernel, (hidden, channels), "reduce_kernel")
  _checks.expect("spatial_kernel", spatial_kernel, rank=3)
  size = spatial_kernel.shape[0]
  _checks.shape("spatial_kernel", spatial_kernel, (size, size, 2))
  if size % 2 == 0:
    raise ValueError(f"spatial_kernel must have an odd size, got {size}")
  if size > 1 and features.ndim == 3:
    raise ValueError(
      f"features must have 4 axes for a spatial kernel of size {size}, got shape"
      f" {features.shape}"
    )


def _bias(name: str, bias: ArrayLike | None, size: int, dtype: jnp.dtype) -> Array:
  if bias is None:
    return jnp.zeros(size, dtype)
  bias = _checks.array(name, bias).astype(dtype)
  _checks.shape(name, bias, (size,))
  return bias
