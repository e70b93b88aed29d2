"""Global average and maximum pooling."""

from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float

from spherejax import _checks
from spherejax.pooling import _tokens


def gap(
  features: Float[ArrayLike, "batch *positions channels"],
  *,
  where: Bool[ArrayLike, "batch *positions"] | None = None,
) -> Float[Array, "batch channels"]:
  """Global average pooling: the mean feature of each map.

      mean_j x_j      over the kept positions j

  Args:
    features: [batch, tokens, channels] or [batch, height, width, channels], floating.
    where: boolean, the shape of `features` without channels, True keeps; masked
      positions may be NaN. None keeps all.

  Returns:
    [batch, channels], dtype of `features`. 0 where nothing is kept.

  Raises:
    TypeError: features not floating, where not boolean.
    ValueError: features without 3 or 4 axes or without entries, shapes do not match.

  Differentiable in: features. Cost: one read of the features.

  Source: Lin, Chen, Yan 2014, "Network in network"; DML chapter 4.

  Example:
    >>> spherejax.pooling.gap(jnp.array([[[1.0, 4.0], [3.0, 0.0]]]))
    Array([[2., 2.]], dtype=float32)
  """
  features = _checks.array("features", features)
  tokens, mask = _tokens.flatten(features, where)
  return _tokens.mean(tokens, mask).astype(features.dtype)


def gmp(
  features: Float[ArrayLike, "batch *positions channels"],
  *,
  where: Bool[ArrayLike, "batch *positions"] | None = None,
) -> Float[Array, "batch channels"]:
  """Global maximum pooling: the largest value of each channel.

      max_j x_j      over the kept positions j, for each channel

  Args:
    features: [batch, tokens, channels] or [batch, height, width, channels], floating.
    where: boolean, the shape of `features` without channels, True keeps; masked
      positions may be NaN. None keeps all.

  Returns:
    [batch, channels], dtype of `features`. 0 where nothing is kept.

  Raises:
    TypeError: features not floating, where not boolean.
    ValueError: features without 3 or 4 axes or without entries, shapes do not match.

  Differentiable in: features; in a tie only the first position gets the gradient. Cost:
  one read of the features.

  Source: Tolias, Sicre, Jegou 2016, "Particular object retrieval with integral
  max-pooling of CNN activations"; DML 5.3.5.

  Example:
    >>> spherejax.pooling.gmp(jnp.array([[[1.0, 4.0], [3.0, 0.0]]]))
    Array([[3., 4.]], dtype=float32)
  """
  features = _checks.array("features", features)
  tokens, mask = _tokens.flatten(features, where)
  return _tokens.maximum(tokens, mask).astype(features.dtype)


def gap_gmp(
  features: Float[ArrayLike, "batch *positions channels"],
  *,
  where: Bool[ArrayLike, "batch *positions"] | None = None,
) -> Float[Array, "batch channels"]:
  """Sum of global average and global maximum pooling.

      mean_j x_j + max_j x_j      over the kept positions j, for each channel

  Args:
    features: [batch, tokens, channels] or [batch, height, width, channels], floating.
    where: boolean, the shape of `features` without channels, True keeps; masked
      positions may be NaN. None keeps all.

  Returns:
    [batch, channels], dtype of `features`. 0 where nothing is kept.

  Raises:
    TypeError: features not floating, where not boolean.
    ValueError: features without 3 or 4 axes or without entries, shapes do not match.

  Differentiable in: features; among ties of the maximum only the first position gets
  its gradient. Cost: one read of the features.

  Source: Kim et al. 2020, "Proxy anchor loss for deep metric learning"; DML 5.3.5.

  Example:
    >>> spherejax.pooling.gap_gmp(jnp.array([[[1.0, 4.0], [3.0, 0.0]]]))
    Array([[5., 6.]], dtype=float32)
  """
  features = _checks.array("features", features)
  tokens, mask = _tokens.flatten(features, where)
  return (_tokens.mean(tokens, mask) + _tokens.maximum(tokens, mask)).astype(
    features.dtype
  )
