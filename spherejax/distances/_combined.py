"""Norms for l1 and l-infinity together: the combined norm, and the norm of the hull.

All functions work along the last axis and take both radii.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from spherejax import _checks, _compiled, _numerics
from spherejax.distances import _lp
from spherejax.distances._lp import Norm


class Radii(NamedTuple):
  """Radii of the two balls, their ratio and the weight beta of l1."""

  l1: Array
  top: Array
  ratio: Array
  beta: Array


def radii_of(dim: int, epsilon_1: ArrayLike, epsilon_inf: ArrayLike, dtype) -> Radii:
  """Checked radii, and the numbers that follow from them."""
  _checks.positive("epsilon_1", epsilon_1)
  _checks.positive("epsilon_inf", epsilon_inf)
  _compiled.known(functools.partial(_check_ratio, dim), epsilon_1, epsilon_inf)
  l1 = _checks.scalar("epsilon_1", epsilon_1, dtype)
  top = _checks.scalar("epsilon_inf", epsilon_inf, dtype)
  ratio = l1 / top
  return Radii(l1, top, ratio, (ratio - 1) / (dim - 1))


def _check_ratio(dim: int, epsilon_1: ArrayLike, epsilon_inf: ArrayLike) -> None:
  first, last = _checks.static_number(epsilon_1), _checks.static_number(epsilon_inf)
  if first is not None and last is not None and not 1 < first / last < dim:
    raise ValueError(
      f"epsilon_1 / epsilon_inf must be in (1, {dim}), got {first:g} / {last:g}"
    )


def operand(x: ArrayLike, name: str = "x") -> tuple[Array, jnp.dtype]:
  """Checked vectors in their computing type, and their own type."""
  array = _checks.array(name, x, "floating")
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
  """Norm whose ball of radius epsilon_1 touches the l1 and the l-infinity ball.

      N(x) = beta |x|_1 + (1 - beta) |x|_inf,
      beta = (epsilon_1 - epsilon_inf) / (epsilon_inf (dim - 1))

  {N <= epsilon_1} contains the l1 ball of radius epsilon_1 and the l-infinity ball of
  radius epsilon_inf, touches both, and is their hull for dim = 2. Robustness in this
  ball is robustness in both.

  Args:
    x: [..., dim], floating, dim at least 2. For a difference the norm is the distance.
    epsilon_1: radius of the l1 ball; may be traced.
    epsilon_inf: radius of the l-infinity ball, epsilon_inf < epsilon_1 < dim
      epsilon_inf; may be traced.

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
  x, dtype = operand(x)
  beta = radii_of(x.shape[-1], epsilon_1, epsilon_inf, x.dtype).beta
  l1, top = _lp.lp_norm(x, norm="l1"), _lp.lp_norm(x, norm="linf")
  return (beta * l1 + (1 - beta) * top).astype(dtype)


def hull_gauge(
  x: Float[ArrayLike, "*batch dim"],
  *,
  epsilon_1: Real[ArrayLike, ""],
  epsilon_inf: Real[ArrayLike, ""],
) -> Float[Array, "*batch"]:
  """Norm whose unit ball is the convex hull of an l1 and an l-infinity ball.

      |x|_H = (sum_{i <= k} |x|_(i) + a |x|_(k+1)) / epsilon_1,
      k + a = epsilon_1 / epsilon_inf,  k integer, 0 <= a < 1

  |x|_(i) is the i-th largest absolute value.

  Args:
    x: [..., dim], floating, dim at least 2.
    epsilon_1: radius of the l1 ball; may be traced.
    epsilon_inf: radius of the l-infinity ball, epsilon_inf < epsilon_1 < dim
      epsilon_inf; may be traced.

  Returns:
    [...], dtype of `x`; at most 1 in the hull. Never below
    `combined_norm` / epsilon_1, which it equals for dim = 2.

  Raises:
    TypeError: x not floating.
    ValueError: dim below 2, or static radii out of order.

  Differentiable in: x and both radii. Cost: one sort.

  Source: DIST appendix A; the closed form follows from the dual ball.

  Example:
    >>> spherejax.distances.hull_gauge(
    ...   jnp.array([1.0, 0.5, 0.25]), epsilon_1=3.0, epsilon_inf=2.0)
    Array(0.4166667, dtype=float32)
  """
  x, dtype = operand(x)
  radii = radii_of(x.shape[-1], epsilon_1, epsilon_inf, x.dtype)
  ordered = -jnp.sort(-jnp.abs(jnp.where(x == 0, 0, x)), axis=-1)
  return (jnp.sum(ordered * hull_weights(radii, x), axis=-1) / radii.l1).astype(dtype)


def hull_weights(radii: Radii, x: Array) -> Array:
  """Weights of the sizes in falling order: 1 for the first k, then a, then 0."""
  place = jnp.arange(x.shape[-1]).astype(x.dtype).reshape([1] * (x.ndim - 1) + [-1])
  return jnp.clip(radii.ratio - place, 0, 1)


def combined_direction(
  gradient: Float[ArrayLike, "*batch dim"],
  *,
  epsilon_1: Real[ArrayLike, ""],
  epsilon_inf: Real[ArrayLike, ""],
) -> Float[Array, "*batch dim"]:
  """Point of the unit ball of `combined_norm` that is farthest along a gradient.

      s = sign(g) / (1 + beta (m - 1)) on the m largest |g|,
      m = argmax_m sum_{i <= m} |g|_(i) / (1 + beta (m - 1))

  <g, s> is the dual norm of g. Times epsilon_1, s solves the linear minimisation over
  the ball, up to the sign.

  Args:
    gradient: [..., dim], floating, dim at least 2.
    epsilon_1: radius of the l1 ball; may be traced.
    epsilon_inf: radius of the l-infinity ball, epsilon_inf < epsilon_1 < dim
      epsilon_inf; may be traced.

  Returns:
    [..., dim], dtype of `gradient`; the smallest m among equals, 0 for a zero gradient.

  Raises:
    TypeError: gradient not floating.
    ValueError: dim below 2, or static radii out of order.

  Differentiable in: nothing. Cost: one sort.

  Source: derived from DIST appendix A.

  Example:
    >>> spherejax.distances.combined_direction(
    ...   jnp.array([3.0, -2.0, 0.1]), epsilon_1=2.0, epsilon_inf=1.0)
    Array([ 0.6666667, -0.6666667,  0.       ], dtype=float32)
  """
  x, dtype = operand(gradient, "gradient")
  beta = radii_of(x.shape[-1], epsilon_1, epsilon_inf, x.dtype).beta
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
  """Point of the hull of an l1 and an l-infinity ball farthest along a gradient.

      <g, s> = max(epsilon_1 |g|_inf, epsilon_inf |g|_1)

  Args:
    gradient: [..., dim], floating, dim at least 2.
    epsilon_1: radius of the l1 ball; may be traced.
    epsilon_inf: radius of the l-infinity ball, epsilon_inf < epsilon_1 < dim
      epsilon_inf; may be traced.

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
  x, dtype = operand(gradient, "gradient")
  radii = radii_of(x.shape[-1], epsilon_1, epsilon_inf, x.dtype)
  sizes, signs = jnp.abs(x), jnp.sign(x)
  first = jax.nn.one_hot(jnp.argmax(sizes, axis=-1), x.shape[-1], dtype=x.dtype)
  by_one = radii.l1 * jnp.max(sizes, axis=-1) >= radii.top * jnp.sum(sizes, axis=-1)
  corner = jnp.where(by_one[..., None], radii.l1 * first, radii.top)
  return (signs * corner).astype(dtype)


def inscribed_radius(
  dim: int,
  *,
  epsilon_1: Real[ArrayLike, ""],
  epsilon_inf: Real[ArrayLike, ""],
  norm: Norm,
  hull: bool = False,
) -> Float[Array, ""]:
  """Radius of the largest ball of a norm in the combined ball, or in the hull.

      combined: epsilon_1 / (1 + (dim - 1) beta^q)^(1/q)
      hull:     epsilon_1 / (k + a^q)^(1/q),    k + a = epsilon_1 / epsilon_inf

  with 1/p + 1/q = 1. It tells what robustness in the region implies for l_p.

  Args:
    dim: static, at least 2.
    epsilon_1: radius of the l1 ball; may be traced.
    epsilon_inf: radius of the l-infinity ball, epsilon_inf < epsilon_1 < dim
      epsilon_inf; may be traced.
    norm: "linf", "l2" or "l1". Static.
    hull: whether the region is the hull. Static.

  Returns:
    Scalar in the default type; epsilon_1 for l1 and epsilon_inf for l-infinity.

  Raises:
    TypeError: dim is not a static integer, hull not boolean.
    ValueError: dim below 2, an unknown norm, or static radii out of order.

  Differentiable in: both radii.

  Source: DIST appendix A; for the hull Croce and Hein 2020, "Provable robustness
  against all adversarial l_p-perturbations for p >= 1".

  Example:
    >>> spherejax.distances.inscribed_radius(
    ...   784, epsilon_1=1.0, epsilon_inf=0.1, norm="l2")
    Array(0.95197, dtype=float32)
  """
  _checks.flag("hull", hull)
  _checks.count("dim", dim, 2)
  _checks.one_of("norm", norm, Norm)
  radii = radii_of(dim, epsilon_1, epsilon_inf, jnp.result_type(float))
  if norm != "l2":
    return radii.l1 if norm == "l1" else radii.top
  if hull:
    whole = jnp.floor(radii.ratio)
    return radii.l1 / jnp.sqrt(whole + (radii.ratio - whole) ** 2)
  return radii.l1 / jnp.sqrt(1 + (dim - 1) * radii.beta**2)
