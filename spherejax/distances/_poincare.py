"""Distances and maps of the Poincaré ball {z : curvature |z|^2 < 1}."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from spherejax import _checks, _numerics
from spherejax.distances import _pairs
from spherejax.distances._pairs import Method


def _curvature(curvature: ArrayLike, dtype: jnp.dtype) -> Array:
  _checks.positive("curvature", curvature)
  return _checks.scalar("curvature", curvature, dtype)


def _squared_norm(x: Array, keepdims: bool = False) -> Array:
  return jnp.sum(x**2, axis=-1, keepdims=keepdims)


def _conformal(squared_norm: Array, curvature: Array) -> Array:
  """1 - curvature |z|^2, NaN outside the open ball."""
  gap = 1 - curvature * squared_norm
  return jnp.where(gap > 0, gap, jnp.nan)


def _distance(separation: Array, x_gap: Array, y_gap: Array, curvature: Array) -> Array:
  # arsinh keeps the digits of small distances, where arcosh(1 + u) returns 0.
  half = separation / jnp.sqrt(x_gap * y_gap)
  return 2 * half * _over_itself(jnp.arcsinh, jnp.sqrt(curvature) * half, -1 / 6)


def poincare(
  x: Float[ArrayLike, "*batch dim"],
  y: Float[ArrayLike, "*batch dim"],
  *,
  curvature: Real[ArrayLike, ""] = 1.0,
) -> Float[Array, "*batch"]:
  """Geodesic distance of matching points of the Poincaré ball.

      2/sqrt(c) arsinh( sqrt(c) |x - y| / sqrt((1 - c |x|^2) (1 - c |y|^2)) )

  with c the curvature parameter. The distance tends to 2 |x - y| as c -> 0.

  Args:
    x: [..., dim], floating, c |x|^2 < 1.
    y: [..., dim], floating, of the shape of `x`, c |y|^2 < 1.
    curvature: positive, may be traced. The curvature is minus this number.

  Returns:
    [...], dtype of the arguments. NaN where a point lies outside the open ball.

  Raises:
    TypeError: an argument is not floating.
    ValueError: the shapes differ, or a static curvature is not positive.

  Differentiable in: x, y, curvature; derivative 0 where x = y.

  Source: DIST 2.3, in the arsinh form, which is exact for close points.

  Example:
    >>> spherejax.distances.poincare(jnp.array([0.0, 0.0]), jnp.array([0.0, 0.5]))
    Array(1.0986123, dtype=float32)
  """
  x, y, dtype = _pairs.operands(x, y)
  c = _curvature(curvature, x.dtype)
  x_gap, y_gap = (_conformal(_squared_norm(z), c) for z in (x, y))
  return _distance(_numerics.norm(x - y), x_gap, y_gap, c).astype(dtype)


def pairwise_poincare(
  x: Float[ArrayLike, "n dim"],
  y: Float[ArrayLike, "m dim"] | None = None,
  *,
  curvature: Real[ArrayLike, ""] = 1.0,
  method: Method = "difference",
  block_size: int | None = None,
) -> Float[Array, "n m"]:
  """Geodesic distances of all pairs of points of the Poincaré ball.

      2/sqrt(c) arsinh( sqrt(c) |x_i - y_j| / sqrt((1 - c |x_i|^2) (1 - c |y_j|^2)) )

  Args:
    x: [n, dim], floating, c |x|^2 < 1.
    y: [m, dim], floating, c |y|^2 < 1. None compares `x` with itself and sets the
      diagonal to exactly 0.
    curvature: positive, may be traced. The curvature is minus this number.
    method: "difference" (exact for close points) or "gram" (one matrix product;
      |x_i - y_j| below sqrt((4 + sqrt(dim)) eps) |x_i| becomes 0). Static.
    block_size: static. Rows per block of "difference", whose memory is
      block_size x m x dim; None takes all rows at once.

  Returns:
    [n, m], dtype of the arguments. NaN where a point lies outside the open ball.

  Raises:
    TypeError: an argument is not floating.
    ValueError: x or y is not a matrix, their row lengths differ, an unknown method,
      block_size below 1, or a static curvature that is not positive.

  Differentiable in: x, y, curvature; derivative 0 where points coincide.
  Cost: O(n m dim) time.

  Source: DIST 2.3.

  Example:
    >>> spherejax.distances.pairwise_poincare(jnp.array([[0.0, 0.0], [0.0, 0.5]]))
    Array([[0.       , 1.0986123],
           [1.0986123, 0.       ]], dtype=float32)
  """
  self_call = y is None
  x, y, dtype = _pairs.rows(x, y)
  c = _curvature(curvature, x.dtype)
  squares = _pairs.squared_distances(x, y, method, block_size)
  squares = _pairs.fill_diagonal(squares, 0) if self_call else squares
  x_gap, y_gap = (_conformal(_squared_norm(z), c) for z in (x, y))
  separation = _numerics.sqrt(squares)
  return _distance(separation, x_gap[:, None], y_gap[None], c).astype(dtype)


def mobius_add(
  x: Float[ArrayLike, "*batch dim"],
  y: Float[ArrayLike, "*batch dim"],
  *,
  curvature: Real[ArrayLike, ""] = 1.0,
) -> Float[Array, "*batch dim"]:
  """Möbius sum of matching points of the Poincaré ball.

      ((1 + 2c<x,y> + c|y|^2) x + (1 - c|x|^2) y) / (1 + 2c<x,y> + c^2 |x|^2 |y|^2)

  Args:
    x: [..., dim], floating, c |x|^2 < 1.
    y: [..., dim], floating, of the shape of `x`, c |y|^2 < 1.
    curvature: positive, may be traced.

  Returns:
    [..., dim], dtype of the arguments, inside the ball.

  Raises:
    TypeError: an argument is not floating.
    ValueError: the shapes differ, or a static curvature is not positive.

  Differentiable in: x, y, curvature.

  Source: DIST 2.3.

  Example:
    >>> spherejax.distances.mobius_add(jnp.array([0.5, 0.0]), jnp.array([0.5, 0.0]))
    Array([0.8, 0.        ], dtype=float32)
  """
  x, y, dtype = _pairs.operands(x, y)
  return _mobius_add(x, y, _curvature(curvature, x.dtype)).astype(dtype)


def _mobius_add(x: Array, y: Array, c: Array) -> Array:
  inner = jnp.sum(x * y, axis=-1, keepdims=True)
  x2, y2 = _squared_norm(x, keepdims=True), _squared_norm(y, keepdims=True)
  numerator = (1 + 2 * c * inner + c * y2) * x + (1 - c * x2) * y
  return numerator / (1 + 2 * c * inner + c**2 * x2 * y2)


def _over_itself(function: Callable[[Array], Array], x: Array, cubic: float) -> Array:
  """f(x) / x of an odd f(x) = x + cubic x^3 + ..., smooth at 0."""
  near = jnp.abs(x) < float(jnp.finfo(x.dtype).eps) ** 0.25
  far = jnp.where(near, 0.5, x)
  return jnp.where(near, 1 + cubic * jnp.where(near, x, 0) ** 2, function(far) / far)


def poincare_exp(
  base: Float[ArrayLike, "*batch dim"],
  tangent: Float[ArrayLike, "*batch dim"],
  *,
  curvature: Real[ArrayLike, ""] = 1.0,
) -> Float[Array, "*batch dim"]:
  """Exponential map: the point reached from `base` along a tangent vector.

      exp_x(v) = x (+) tanh(sqrt(c) |v| / (1 - c |x|^2)) v / (sqrt(c) |v|)

  with (+) the Möbius sum; exp_x(0) = x.

  Args:
    base: [..., dim], floating, inside the ball.
    tangent: [..., dim], floating, of the shape of `base`.
    curvature: positive, may be traced.

  Returns:
    [..., dim], dtype of the arguments. NaN where `base` lies outside the ball. A long
    tangent ends on the boundary by rounding: see `poincare_project`.

  Raises:
    TypeError: an argument is not floating.
    ValueError: the shapes differ, or a static curvature is not positive.

  Differentiable in: base, tangent, curvature, also at a zero tangent.

  Source: DIST 2.3.

  Example:
    >>> spherejax.distances.poincare_exp(jnp.array([0.0, 0.0]), jnp.array([1.0, 0.0]))
    Array([0.7615942, 0.       ], dtype=float32)
  """
  x, v, dtype = _pairs.operands(base, tangent, ("base", "tangent"))
  c = _curvature(curvature, x.dtype)
  gap = _conformal(_squared_norm(x, keepdims=True), c)
  # Far beyond where tanh is 1 the size may overflow: only the direction counts.
  size = jnp.sqrt(c) * _numerics.norm(v, keepdims=True) / gap
  far = size > float(jnp.finfo(x.dtype).max) ** 0.25
  near = jnp.where(far, 0, v)
  size = jnp.sqrt(c) * _numerics.norm(near, keepdims=True) / gap
  moved = _over_itself(jnp.tanh, size, -1 / 3) / gap * near
  boundary = _numerics.normalize(jnp.where(far, v, 0)) / jnp.sqrt(c)
  return _mobius_add(x, jnp.where(far, boundary, moved), c).astype(dtype)


def poincare_log(
  base: Float[ArrayLike, "*batch dim"],
  point: Float[ArrayLike, "*batch dim"],
  *,
  curvature: Real[ArrayLike, ""] = 1.0,
) -> Float[Array, "*batch dim"]:
  """Logarithmic map: the tangent vector at `base` that leads to `point`.

      log_x(y) = (1 - c |x|^2) / sqrt(c) artanh(sqrt(c) |w|) w / |w|,  w = (-x) (+) y

  It is the inverse of `poincare_exp`; log_x(x) = 0.

  Args:
    base: [..., dim], floating, inside the ball.
    point: [..., dim], floating, of the shape of `base`, inside the ball.
    curvature: positive, may be traced.

  Returns:
    [..., dim], dtype of the arguments. NaN where an argument lies outside the ball.

  Raises:
    TypeError: an argument is not floating.
    ValueError: the shapes differ, or a static curvature is not positive.

  Differentiable in: base, point, curvature, also where both points coincide.

  Source: DIST 2.3.

  Example:
    >>> spherejax.distances.poincare_log(jnp.array([0.0, 0.0]), jnp.array([0.5, 0.0]))
    Array([0.54930615, 0.        ], dtype=float32)
  """
  x, y, dtype = _pairs.operands(base, point, ("base", "point"))
  c = _curvature(curvature, x.dtype)
  gap, other = (_conformal(_squared_norm(z, keepdims=True), c) for z in (x, y))
  # With u = y - x and g, h the two gaps, w = (g u - c |u|^2 x) / (g h + c |u|^2), and
  # artanh(sqrt(c) |w|) = arsinh(sqrt(c) |u| / sqrt(g h)). Near the boundary |w| itself
  # rounds to 1.
  step = y - x
  square = c * _squared_norm(step, keepdims=True)
  size = jnp.sqrt(c / (gap * other)) * _numerics.norm(step, keepdims=True)
  direction = (gap * step - square * x) / jnp.sqrt(other / gap * (gap * other + square))
  return (_over_itself(jnp.arcsinh, size, -1 / 6) * direction).astype(dtype)


def poincare_project(
  x: Float[ArrayLike, "*batch dim"], *, curvature: Real[ArrayLike, ""] = 1.0
) -> Float[Array, "*batch dim"]:
  """Moves points along their radius into the ball, slightly inside its boundary.

      x min(1, (1 - e) / (sqrt(c) |x|)),   e = 4e-3 (float32), 1e-5 (float64)

  The margin e keeps the distances of projected points finite in their type.

  Args:
    x: [..., dim], floating.
    curvature: positive, may be traced.

  Returns:
    [..., dim], dtype of `x`. Half-precision input uses the margin of float32.

  Raises:
    TypeError: x is not floating.
    ValueError: x has no axis, or a static curvature is not positive.

  Differentiable in: x, curvature; identity where x already lies inside.

  Source: DIST 2.3.

  Example:
    >>> spherejax.distances.poincare_project(jnp.array([0.0, 4.0]))
    Array([0.   , 0.996], dtype=float32)
  """
  points, _, dtype = _pairs.operands(x, x)
  c = _curvature(curvature, points.dtype)
  margin = 1e-5 if points.dtype == jnp.float64 else 4e-3
  radius = (1 - margin) / jnp.sqrt(c)
  inside = _numerics.norm(points, keepdims=True) <= radius
  projected = jnp.where(inside, points, radius * _numerics.normalize(points))
  return projected.astype(dtype)
