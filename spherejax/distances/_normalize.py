"""Maps onto the unit sphere and into the unit ball, defined at zero too."""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from spherejax import _checks, _numerics


def _vectors(x: ArrayLike) -> Array:
  array = _checks.array("x", x, "floating")
  if array.ndim == 0:
    raise ValueError("x must have a last axis of components, got shape ()")
  return array


def l2_normalize(x: Float[ArrayLike, "*batch dim"]) -> Float[Array, "*batch dim"]:
  """Vectors divided by their Euclidean norm; the zero vector stays zero.

      l2_normalize(x) = x / |x|,    0 at x = 0

  Accurate for norms from 1e-37 to 1e37 in float32. Rows with NaN or inf become NaN.

  Args:
    x: [..., dim], floating.

  Returns:
    [..., dim], dtype of `x`. Norm 1, or 0 for a zero vector.

  Raises:
    TypeError: x is not floating.
    ValueError: x has no axis.

  Differentiable in: x; Jacobian (I - u u^T) / |x| with u = x / |x|, 0 at x = 0.

  Source: DIST 2.3.

  Example:
    >>> spherejax.distances.l2_normalize(jnp.array([3.0, 4.0]))
    Array([0.6, 0.8], dtype=float32)
  """
  x = _vectors(x)
  return _numerics.normalize(_numerics.upcast(x)).astype(x.dtype)


def l2_normalize_additive(
  x: Float[ArrayLike, "*batch dim"], *, offset: Real[ArrayLike, ""] = 1e-12
) -> Float[Array, "*batch dim"]:
  """Vectors divided by their norm plus a small constant.

      x / (|x| + offset),    0 at x = 0

  Differs from `l2_normalize` by a factor |x| / (|x| + offset) below 1.

  Args:
    x: [..., dim], floating.
    offset: positive, in the unit of `x`, may be traced.

  Returns:
    [..., dim], dtype of `x`.

  Raises:
    TypeError: x is not floating.
    ValueError: x has no axis, or a static offset is not positive.

  Differentiable in: x, offset; the derivative at x = 0 is 0 by convention.

  Source: DIST 2.3, which leaves the size of the constant open.

  Example:
    >>> spherejax.distances.l2_normalize_additive(jnp.array([3.0, 4.0]), offset=5.0)
    Array([0.3, 0.4], dtype=float32)
  """
  x = _vectors(x)
  _checks.positive("offset", offset)
  rows = _numerics.upcast(x)
  length = _numerics.norm(rows, keepdims=True)
  shrink = length / (length + _checks.scalar("offset", offset, rows.dtype))
  return (_numerics.normalize(rows) * shrink).astype(x.dtype)


def l2_normalize_clipped(
  x: Float[ArrayLike, "*batch dim"], *, floor: Real[ArrayLike, ""] = 1e-12
) -> Float[Array, "*batch dim"]:
  """Vectors divided by their norm or by a floor, whichever is larger.

      x / max(|x|, floor)

  This is the convention of other libraries, for comparisons. Its derivative at zero is
  1 / floor; that of `l2_normalize` is 0 there.

  Args:
    x: [..., dim], floating.
    floor: positive, in the unit of `x`, may be traced.

  Returns:
    [..., dim], dtype of `x`.

  Raises:
    TypeError: x is not floating.
    ValueError: x has no axis, or a static floor is not positive.

  Differentiable in: x, floor; Jacobian I / floor where |x| <= floor.

  Source: the normalisation of torch.nn.functional.normalize.

  Example:
    >>> spherejax.distances.l2_normalize_clipped(jnp.array([3.0, 4.0]), floor=10.0)
    Array([0.3, 0.4], dtype=float32)
  """
  x = _vectors(x)
  _checks.positive("floor", floor)
  rows = _numerics.upcast(x)
  floor = _checks.scalar("floor", floor, rows.dtype)
  outside = _numerics.norm(rows, keepdims=True) > floor
  return jnp.where(outside, _numerics.normalize(rows), rows / floor).astype(x.dtype)


def unit_ball(x: Float[ArrayLike, "*batch dim"]) -> Float[Array, "*batch dim"]:
  """Euclidean projection onto the unit ball: long vectors are shortened to norm 1.

      unit_ball(x) = x / max(|x|, 1)

  Idempotent and 1-Lipschitz. Short vectors keep their norm, so |u - v|^2 is not
  2 - 2 cos between its outputs.

  Args:
    x: [..., dim], floating.

  Returns:
    [..., dim], dtype of `x`. Norm at most 1.

  Raises:
    TypeError: x is not floating.
    ValueError: x has no axis.

  Differentiable in: x; identity where |x| <= 1 (|x| = 1 included), otherwise
  (I - u u^T) / |x|.

  Source: DML 3.2.4, where "l2 normalised" embeddings and proxies mean this projection.

  Example:
    >>> spherejax.distances.unit_ball(jnp.array([[3.0, 4.0], [0.3, 0.4]]))
    Array([[0.6, 0.8],
           [0.3, 0.4]], dtype=float32)
  """
  x = _vectors(x)
  rows = _numerics.upcast(x)
  inside = _numerics.norm(rows, keepdims=True) <= 1
  # The branch not taken divides by a norm of at least 1, so its gradient is finite.
  return jnp.where(inside, rows, _numerics.normalize(rows)).astype(x.dtype)
