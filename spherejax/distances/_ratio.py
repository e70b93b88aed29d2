"""Distance-ratio transform: class probabilities from distances to the classes."""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Real

from spherejax import _checks, _numerics


def distance_ratio(
  squared_distances: Float[ArrayLike, "*batch classes"],
  *,
  exponent: Real[ArrayLike, ""],
  offset: Real[ArrayLike, ""] = 0.0,
  classes: Bool[ArrayLike, "*batch classes"]
  | Bool[ArrayLike, " classes"]
  | None = None,
) -> Float[Array, "*batch classes"]:
  """Logarithms of class probabilities inversely proportional to a power of distance.

      p_c = d_c^(-exponent) / sum_k d_k^(-exponent)

  The probability depends on the ratios of the distances alone, so it stays the same
  when all distances are multiplied by a factor. At a class's own point it is 1. No
  other form has both properties. m points at distance zero share the probability, 1 / m
  each.

  Args:
    squared_distances: [..., classes], floating, at least 0; d^2. Squares below the
      smallest normal number count as zero.
    exponent: positive, may be traced and learned.
    offset: added to the squared distances, at least 0; may be traced. 0 is exact; 1e-10
      and 1e-12 are used in the papers' implementations.
    classes: [classes] or [..., classes], boolean, True for classes that take part.
      None for all.

  Returns:
    [..., classes], dtype of `squared_distances`; -inf for a class that takes no part,
    and for the other classes if one is at distance zero.

  Raises:
    TypeError: squared_distances are not floating, classes not boolean.
    ValueError: `classes` has another shape, or a static exponent or offset out of
      range.

  Differentiable in: squared_distances, exponent, offset; derivatives are 0 in a row
  with a distance of zero. Cost: O(size).

  Source: DIST II eq. 5.

  Example:
    >>> squares = jnp.array([[1.0, 4.0], [0.0, 4.0]])
    >>> jnp.exp(spherejax.distances.distance_ratio(squares, exponent=2.0)).round(4)
    Array([[0.8, 0.2],
           [1. , 0. ]], dtype=float32)
  """
  squares = _checks.array("squared_distances", squared_distances, "floating")
  if squares.ndim == 0:
    raise ValueError("squared_distances must have a last axis of classes, got shape ()")
  _checks.positive("exponent", exponent)
  _checks.between("offset", offset, 0)
  wide = _numerics.upcast(squares)
  power = _checks.scalar("exponent", exponent, wide.dtype)
  if classes is None:
    mask = jnp.ones(wide.shape, bool)
  else:
    mask = _checks.array("classes", classes)
    row = mask.ndim == 1
    _checks.mask(mask, wide.shape[-1:] if row else wide.shape, "classes")
    mask = jnp.broadcast_to(
      jnp.expand_dims(mask, range(wide.ndim - mask.ndim)), wide.shape
    )
  wide = wide + _checks.scalar("offset", offset, wide.dtype)
  zero = mask & (wide < jnp.finfo(wide.dtype).tiny)
  zeros = jnp.sum(zero, axis=-1, keepdims=True, dtype=jnp.int32)
  usable = mask & (zeros == 0)
  logits = -power / 2 * jnp.log(jnp.where(usable, wide, 1))
  shared = jnp.where(zero, -jnp.log(zeros.astype(wide.dtype)), -jnp.inf)
  result = jnp.where(zeros > 0, shared, _numerics.log_softmax(logits, mask))
  return result.astype(squares.dtype)
