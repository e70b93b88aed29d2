"""SOLAR: second-order attention, then the generalized mean."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Real

from spherejax import _checks, _numerics
from spherejax.pooling import _tokens
from spherejax.pooling._gem import gem


def solar(
  features: Float[ArrayLike, "batch *positions channels"],
  query_kernel: Float[ArrayLike, "channels inner"],
  key_kernel: Float[ArrayLike, "channels inner"],
  value_kernel: Float[ArrayLike, "channels inner"],
  output_kernel: Float[ArrayLike, "inner channels"],
  *,
  power: Real[ArrayLike, ""] = 3.0,
  normalize: Callable[[str, Array, Array], Array] | None = None,
  where: Bool[ArrayLike, "batch *positions"] | None = None,
) -> Float[Array, "batch channels"]:
  """Generalized mean of features that have attended to each other (SOLAR).

      gem(x_j + sum_l a_jl x_l V O)                       over the kept positions
      a_jl = softmax_l(<relu(norm(x_j Q)), relu(norm(x_l K))> / sqrt(inner))

  with the kernels Q, K, V, O. With O = 0, where the original's training starts, it is
  `gem`.

  Args:
    features: [batch, tokens, channels] or [batch, height, width, channels], floating.
    query_kernel: Q, [channels, inner].
    key_kernel: K, [channels, inner].
    value_kernel: V, [channels, inner].
    output_kernel: O, [inner, channels].
    power: exponent of the generalized mean, scalar, positive, may be traced.
    normalize: function of (place, x, mask) that computes "norm" above, for x [batch,
      positions, inner], 0 where masked, a mask that broadcasts against x, and the
      places "queries" and "keys". None normalises nothing. See `models.SOLAR`.
    where: boolean, the shape of `features` without channels, True keeps; masked
      positions may be NaN. None keeps all.

  Returns:
    [batch, channels], dtype of `features`. 0 where nothing is kept.

  Raises:
    TypeError: features not floating, where not boolean.
    ValueError: features without 3 or 4 axes or without entries, shapes do not match,
      static power not positive.

  Differentiable in: features, kernels, power. Cost: O(batch positions (channels +
  positions) inner), memory O(batch positions^2).

  Source: Ng et al. 2020, "SOLAR: second-order loss and attention for image retrieval";
  DML 5.3.5.

  Example:
    >>> features = jnp.array([[[1.0], [3.0]]])
    >>> zero, one = jnp.zeros((1, 1)), jnp.ones((1, 1))
    >>> spherejax.pooling.solar(features, zero, zero, one, one, power=1.0)
    Array([[4.]], dtype=float32)
  """
  if normalize is not None:
    _checks.function("normalize", normalize)
  features = _checks.array("features", features)
  tokens, mask = _tokens.flatten(features, where)
  query_kernel, key_kernel, value_kernel, output_kernel = _kernels(
    tokens, query_kernel, key_kernel, value_kernel, output_kernel
  )

  if mask is None:
    mask = jnp.ones(tokens.shape[:2], bool)

  def projected(place: str, kernel: Array) -> Array:
    x = _numerics.product(tokens, kernel)
    x = x if normalize is None else normalize(place, x, mask[..., None])
    return jax.nn.relu(x)

  queries, keys = projected("queries", query_kernel), projected("keys", key_kernel)
  attention = _attention(queries, keys, mask)
  values = _numerics.product(tokens, value_kernel)
  attended = _numerics.product(attention, values)
  tokens += _numerics.product(attended, output_kernel)
  return gem(tokens, power=power, where=mask).astype(features.dtype)


def _attention(queries: Array, keys: Array, mask: Array) -> Array:
  """Weights [batch, queries, keys] that sum to 1 over the kept keys, else 0."""
  size = jnp.sqrt(jnp.asarray(queries.shape[2], queries.dtype))
  products = _numerics.einsum("bqc,bkc->bqk", queries, keys)
  logits, mask = products / size, mask[:, None]
  mask = jnp.broadcast_to(mask, logits.shape)
  total = _numerics.logsumexp(logits, mask, keepdims=True)
  return jnp.exp(jnp.where(mask, logits - total, -jnp.inf))


def _kernels(
  tokens: Array, query: ArrayLike, key: ArrayLike, value: ArrayLike, output: ArrayLike
) -> list[Array]:
  """The four kernels in the type of the features, their shapes checked."""
  kernels = {"query": query, "key": key, "value": value, "output": output}
  arrays = [
    _checks.array(f"{name}_kernel", kernel).astype(tokens.dtype)
    for name, kernel in kernels.items()
  ]
  _checks.expect("query_kernel", arrays[0], rank=2)
  shape = (tokens.shape[2], arrays[0].shape[1])
  for name, array in zip(("query", "key", "value"), arrays[:3], strict=True):
    _checks.shape(f"{name}_kernel", array, shape, "features and query_kernel")
  _checks.shape("output_kernel", arrays[3], shape[::-1], "the other kernels")
  return arrays
