"""One norm between l1 and l-infinity, and the convex hull of their balls.

All functions work along the last axis and take both radii. A projection is the root of
one piecewise linear function, found by bisection.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from spherejax import _checks, _numerics
from spherejax.distances import _lp

_HALVINGS = 60


class _Radii(NamedTuple):
  """Both radii, their ratio, its integer part and the weight beta of l1."""

  one: Array
  top: Array
  ratio: Array
  whole: Array
  beta: Array


def _radii(dim: int, epsilon_1: ArrayLike, epsilon_inf: ArrayLike, dtype) -> _Radii:
  _checks.positive("epsilon_1", epsilon_1)
  _checks.positive("epsilon_inf", epsilon_inf)
  first, last = _checks.static_number(epsilon_1), _checks.static_number(epsilon_inf)
  if first is not None and last is not None and not 1 < first / last < dim:
    raise ValueError(
      f"epsilon_1 / epsilon_inf must be in (1, {dim}), got {first:g} / {last:g}"
    )
  one = _checks.scalar("epsilon_1", epsilon_1, dtype)
  top = _checks.scalar("epsilon_inf", epsilon_inf, dtype)
  ratio = one / top
  return _Radii(one, top, ratio, jnp.floor(ratio), (ratio - 1) / (dim - 1))


def _operand(x: ArrayLike, name: str = "x") -> tuple[Array, jnp.dtype]:
  array = jnp.asarray(x)
  _checks.floating(name, array)
  if array.ndim == 0 or array.shape[-1] < 2:
    raise ValueError(
      f"{name} must have at least 2 entries in its last axis, got shape {array.shape}"
    )
  return _numerics.upcast(array), array.dtype


def combined_norm(
  x: Float[ArrayLike, "*batch dim"],
  *,
  epsilon_1: Real[ArrayLike, ""],
  epsilon_inf: Real[ArrayLike, ""],
) -> Float[Array, "*batch"]:
  """The norm whose ball of radius epsilon_1 meets those of l1 and l-infinity.

      N(x) = beta |x|_1 + (1 - beta) |x|_inf,
      beta = (epsilon_1 - epsilon_inf) / (epsilon_inf (dim - 1))

  {N <= epsilon_1} contains the l1 ball of radius epsilon_1 and the l-infinity ball of
  radius epsilon_inf, touches both, and is their hull for dim = 2: robustness to one
  attack in this ball is robustness in both.

  Args:
    x: [..., dim], floating, dim at least 2. Of a difference it is the distance.
    epsilon_1: radius of the l1 ball; may be traced.
    epsilon_inf: of the l-infinity ball, epsilon_inf < epsilon_1 < dim epsilon_inf; may
      be traced.

  Returns:
    [...], dtype of `x`.

  Raises:
    TypeError: x not floating.
    ValueError: dim below 2, or static radii out of order.

  Differentiable in: x and both radii; derivative 0 at 0.

  Source: DIST appendix A.

  Example:
    >>> spherejax.distances.combined_norm(
    ...   jnp.array([1.0, 0.5, 0.0]), epsilon_1=2.0, epsilon_inf=1.0)
    Array(1.25, dtype=float32)
  """
  x, dtype = _operand(x)
  beta = _radii(x.shape[-1], epsilon_1, epsilon_inf, x.dtype).beta
  one, top = _lp.lp_norm(x, norm="l1"), _lp.lp_norm(x, norm="linf")
  return (beta * one + (1 - beta) * top).astype(dtype)


def hull_gauge(
  x: Float[ArrayLike, "*batch dim"],
  *,
  epsilon_1: Real[ArrayLike, ""],
  epsilon_inf: Real[ArrayLike, ""],
) -> Float[Array, "*batch"]:
  """The norm whose unit ball is the convex hull of an l1 and an l-infinity ball.

      |x|_H = (sum_{i <= k} |x|_(i) + a |x|_(k+1)) / epsilon_1,
      k + a = epsilon_1 / epsilon_inf,  k integer, 0 <= a < 1

  |x|_(i) is the i-th largest size.

  Args:
    x: [..., dim], floating, dim at least 2.
    epsilon_1: radius of the l1 ball; may be traced.
    epsilon_inf: of the l-infinity ball, epsilon_inf < epsilon_1 < dim epsilon_inf; may
      be traced.

  Returns:
    [...], dtype of `x`; at most 1 in the hull. Never below
    `combined_norm` / epsilon_1, which it equals for dim = 2.

  Raises:
    TypeError: x not floating.
    ValueError: dim below 2, or static radii out of order.

  Differentiable in: x and both radii. Cost: one sort.

  Source: DIST appendix A; the closed form is own, from the dual ball.

  Example:
    >>> spherejax.distances.hull_gauge(
    ...   jnp.array([1.0, 0.5, 0.25]), epsilon_1=3.0, epsilon_inf=2.0)
    Array(0.4166667, dtype=float32)
  """
  x, dtype = _operand(x)
  radii = _radii(x.shape[-1], epsilon_1, epsilon_inf, x.dtype)
  ordered = -jnp.sort(-jnp.abs(jnp.where(x == 0, 0, x)), axis=-1)
  return (jnp.sum(ordered * _hull_weights(radii, x), axis=-1) / radii.one).astype(dtype)


def _hull_weights(radii: _Radii, x: Array) -> Array:
  """Of the largest sizes in order: 1 for the first k, then the rest of kappa."""
  place = jnp.arange(x.shape[-1]).astype(x.dtype).reshape([1] * (x.ndim - 1) + [-1])
  return jnp.clip(radii.ratio - place, 0, 1)


def combined_direction(
  gradient: Float[ArrayLike, "*batch dim"],
  *,
  epsilon_1: Real[ArrayLike, ""],
  epsilon_inf: Real[ArrayLike, ""],
) -> Float[Array, "*batch dim"]:
  """The point of the unit ball of `combined_norm` farthest along a gradient.

      s = sign(g) / (1 + beta (m - 1)) on the m largest |g|,
      m = argmax_m sum_{i <= m} |g|_(i) / (1 + beta (m - 1))

  <g, s> is the dual norm of g. Times epsilon_1 it is the linear minimisation over the
  ball, up to the sign.

  Args:
    gradient: [..., dim], floating, dim at least 2.
    epsilon_1: radius of the l1 ball; may be traced.
    epsilon_inf: of the l-infinity ball, epsilon_inf < epsilon_1 < dim epsilon_inf; may
      be traced.

  Returns:
    [..., dim], dtype of `gradient`; the smallest m among equals, 0 for a zero gradient.

  Raises:
    TypeError: gradient not floating.
    ValueError: dim below 2, or static radii out of order.

  Differentiable in: nothing. Cost: one sort.

  Source: own, from DIST appendix A.

  Example:
    >>> spherejax.distances.combined_direction(
    ...   jnp.array([3.0, -2.0, 0.1]), epsilon_1=2.0, epsilon_inf=1.0)
    Array([ 0.6666667, -0.6666667,  0.       ], dtype=float32)
  """
  x, dtype = _operand(gradient, "gradient")
  beta = _radii(x.shape[-1], epsilon_1, epsilon_inf, x.dtype).beta
  sizes = jnp.abs(x)
  order = jnp.argsort(-sizes, axis=-1)
  sums = jnp.cumsum(jnp.take_along_axis(sizes, order, -1), axis=-1)
  place = jnp.arange(x.shape[-1]).astype(x.dtype)
  best = jnp.argmax(sums / (1 + beta * place.reshape([1] * (x.ndim - 1) + [-1])), -1)
  best = best[..., None]
  chosen = jnp.argsort(order, axis=-1) <= best
  step = jnp.where(chosen, jnp.sign(x), 0) / (1 + beta * best.astype(x.dtype))
  return step.astype(dtype)


def hull_direction(
  gradient: Float[ArrayLike, "*batch dim"],
  *,
  epsilon_1: Real[ArrayLike, ""],
  epsilon_inf: Real[ArrayLike, ""],
) -> Float[Array, "*batch dim"]:
  """The point of the hull of an l1 and an l-infinity ball farthest along a gradient.

      <g, s> = max(epsilon_1 |g|_inf, epsilon_inf |g|_1)

  Args:
    gradient: [..., dim], floating, dim at least 2.
    epsilon_1: radius of the l1 ball; may be traced.
    epsilon_inf: of the l-infinity ball, epsilon_inf < epsilon_1 < dim epsilon_inf; may
      be traced.

  Returns:
    [..., dim], dtype of `gradient`: a corner of one of the balls, the lowest index
    among equals; 0 for a zero gradient.

  Raises:
    TypeError: gradient not floating.
    ValueError: dim below 2, or static radii out of order.

  Differentiable in: nothing. Cost: O(dim).

  Source: DIST appendix A.

  Example:
    >>> spherejax.distances.hull_direction(
    ...   jnp.array([3.0, 2.0, 0.1]), epsilon_1=2.0, epsilon_inf=1.0)
    Array([2., 0., 0.], dtype=float32)
  """
  x, dtype = _operand(gradient, "gradient")
  radii = _radii(x.shape[-1], epsilon_1, epsilon_inf, x.dtype)
  sizes, signs = jnp.abs(x), jnp.sign(x)
  first = jax.nn.one_hot(jnp.argmax(sizes, axis=-1), x.shape[-1], dtype=x.dtype)
  by_one = radii.one * jnp.max(sizes, axis=-1) >= radii.top * jnp.sum(sizes, axis=-1)
  corner = jnp.where(by_one[..., None], radii.one * first, radii.top)
  return (signs * corner).astype(dtype)


def project_combined(
  x: Float[ArrayLike, "*batch dim"],
  *,
  epsilon_1: Real[ArrayLike, ""],
  epsilon_inf: Real[ArrayLike, ""],
) -> Float[Array, "*batch dim"]:
  """Euclidean projection onto the ball {combined_norm <= epsilon_1} around 0.

      sign(x) min(max(|x| - s, 0), t),    s, t >= 0 one number each

  Args:
    x: [..., dim], floating, dim at least 2.
    epsilon_1: radius of the l1 ball; may be traced.
    epsilon_inf: of the l-infinity ball, epsilon_inf < epsilon_1 < dim epsilon_inf; may
      be traced.

  Returns:
    [..., dim], dtype of `x`; in the ball up to rounding, x itself where it is inside.
    Clipped to a box around 0 it stays in the ball.

  Raises:
    TypeError: x not floating.
    ValueError: dim below 2, or static radii out of order.

  Differentiable in: nothing. Cost: O(dim), 60 times.

  Source: own, from DIST appendix A and Moreau's decomposition.

  Example:
    >>> spherejax.distances.project_combined(
    ...   jnp.array([2.0, 1.5, 0.0]), epsilon_1=2.0, epsilon_inf=1.0).round(4)
    Array([1.4      , 1.1999999, 0.       ], dtype=float32)
  """
  x, dtype = _operand(x)
  radii = _radii(x.shape[-1], epsilon_1, epsilon_inf, x.dtype)
  sizes, scale, units = _in_units(x, radii)
  return (jnp.sign(x) * scale * _onto_combined(sizes, units)).astype(dtype)


def project_hull(
  x: Float[ArrayLike, "*batch dim"],
  *,
  epsilon_1: Real[ArrayLike, ""],
  epsilon_inf: Real[ArrayLike, ""],
) -> Float[Array, "*batch dim"]:
  """Euclidean projection onto the convex hull of an l1 and an l-infinity ball.

      sign(x) (|x| - min(max(|x| - t, 0), s)),    s, t >= 0 one number each

  Args:
    x: [..., dim], floating, dim at least 2.
    epsilon_1: radius of the l1 ball; may be traced.
    epsilon_inf: of the l-infinity ball, epsilon_inf < epsilon_1 < dim epsilon_inf; may
      be traced.

  Returns:
    [..., dim], dtype of `x`; in the hull up to rounding, x itself where it is inside.
    Clipped to a box around 0 it stays in the hull.

  Raises:
    TypeError: x not floating.
    ValueError: dim below 2, or static radii out of order.

  Differentiable in: nothing. Cost: two sorts and O(dim), 120 times.

  Source: own, from DIST appendix A and Moreau's decomposition.

  Example:
    >>> spherejax.distances.project_hull(
    ...   jnp.array([2.0, 1.5, 0.0]), epsilon_1=2.0, epsilon_inf=1.0).round(4)
    Array([1.25, 0.75, 0.  ], dtype=float32)
  """
  x, dtype = _operand(x)
  radii = _radii(x.shape[-1], epsilon_1, epsilon_inf, x.dtype)
  sizes, scale, units = _in_units(x, radii)
  return (jnp.sign(x) * scale * _onto_hull(sizes, units)).astype(dtype)


def inscribed_radius(
  dim: int,
  *,
  epsilon_1: Real[ArrayLike, ""],
  epsilon_inf: Real[ArrayLike, ""],
  norm: str,
  hull: bool = False,
) -> Float[Array, ""]:
  """Radius of the largest ball of a norm in the combined ball, or in the hull.

      combined: epsilon_1 / (1 + (dim - 1) beta^q)^(1/q)
      hull:     epsilon_1 / (k + a^q)^(1/q),    k + a = epsilon_1 / epsilon_inf

  with 1/p + 1/q = 1: what robustness in one region says about l_p.

  Args:
    dim: static, at least 2.
    epsilon_1: radius of the l1 ball; may be traced.
    epsilon_inf: of the l-infinity ball, epsilon_inf < epsilon_1 < dim epsilon_inf; may
      be traced.
    norm: "linf", "l2" or "l1". Static.
    hull: whether the region is the hull. Static.

  Returns:
    Scalar in the default type; epsilon_1 for l1 and epsilon_inf for l-infinity.

  Raises:
    TypeError: dim that is no static integer.
    ValueError: dim below 2, an unknown norm, or static radii out of order.

  Differentiable in: both radii.

  Source: DIST appendix A; for the hull Croce and Hein 2020, "Provable robustness
  against all adversarial l_p-perturbations for p >= 1".

  Example:
    >>> spherejax.distances.inscribed_radius(
    ...   784, epsilon_1=1.0, epsilon_inf=0.1, norm="l2")
    Array(0.95197, dtype=float32)
  """
  _checks.count("dim", dim, 2)
  _checks.one_of("norm", norm, _lp.NORMS)
  radii = _radii(dim, epsilon_1, epsilon_inf, jnp.result_type(float))
  if norm != "l2":
    return radii.one if norm == "l1" else radii.top
  if hull:
    return radii.one / jnp.sqrt(radii.whole + (radii.ratio - radii.whole) ** 2)
  return radii.one / jnp.sqrt(1 + (dim - 1) * radii.beta**2)


def _excess(sizes: Array, threshold: Array) -> Array:
  """Sum of what exceeds the threshold."""
  return jnp.sum(jnp.maximum(sizes - threshold, 0), axis=-1, keepdims=True)


def _turn(low_side: Callable[[Array], Array], high: Array) -> Array:
  """The upper end of the last bracket in [0, high] where `low_side` turns False."""

  def halve(_, ends):
    low, high = ends
    middle = (low + high) / 2
    below = low_side(middle)
    return jnp.where(below, middle, low), jnp.where(below, high, middle)

  return jax.lax.fori_loop(0, _HALVINGS, halve, (jnp.zeros_like(high), high))[1]


def _in_units(x: Array, radii: _Radii) -> tuple[Array, Array, _Radii]:
  """Sizes and radii in a unit above the largest of each vector, and that."""
  sizes = jnp.abs(jax.lax.stop_gradient(x))
  largest = jnp.maximum(jnp.max(sizes, axis=-1, keepdims=True), radii.top)
  scale = jnp.ldexp(jnp.ones_like(largest), jnp.frexp(largest)[1])  # divides exactly
  units = radii._replace(one=radii.one / scale, top=radii.top / scale)
  return sizes / scale, scale, units


def _onto_combined(sizes: Array, radii: _Radii) -> Array:
  beta = radii.beta

  def at(upper: Array) -> Array:
    """Sizes above `upper` cut, whose sum says how much is cut below."""
    lower = _excess(sizes, upper) * beta / (1 - beta)
    return jnp.clip(sizes - lower, 0, jnp.maximum(upper - lower, 0))

  def norm(v: Array) -> Array:
    total, top = (f(v, axis=-1, keepdims=True) for f in (jnp.sum, jnp.max))
    return beta * total + (1 - beta) * top

  moved = at(_turn(lambda c: norm(at(c)) <= radii.one, jnp.ones_like(radii.one)))
  shrink = jnp.minimum(1, radii.one / norm(moved))
  return jnp.where(norm(sizes) <= radii.one, sizes, moved * shrink)


def _onto_hull(sizes: Array, radii: _Radii) -> Array:
  one, ratio = radii.one, radii.ratio

  def cut(level: Array) -> Array:
    """What the largest lose when those behind them end at `level`."""
    return (_excess(sizes, level) - one) / ratio + level

  def too_low(level: Array) -> Array:
    return _excess(sizes, level + cut(level)) < one - ratio * level

  def gauge(v: Array) -> Array:
    ordered = -jnp.sort(-v, axis=-1)
    return jnp.sum(ordered * _hull_weights(radii, v), axis=-1, keepdims=True)

  ends = jnp.ones_like(one)
  flat = too_low(0 * ends)  # otherwise the hull's face is one of the l1 ball
  level = jnp.where(flat, _turn(too_low, ends), 0)
  by_one = _turn(lambda t: _excess(sizes, t) > one, ends)
  loss = jnp.where(flat, cut(level), by_one)
  moved = sizes - jnp.clip(sizes - level, 0, loss)
  shrink = jnp.minimum(1, one / gauge(moved))
  return jnp.where(gauge(sizes) <= one, sizes, moved * shrink)
