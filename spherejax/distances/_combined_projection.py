"""Projections onto the combined ball of l1 and l-infinity, and onto their hull.

Bisection finds each as the root of a piecewise linear function.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from spherejax.distances import _combined

_HALVINGS = 60


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
    epsilon_inf: radius of the l-infinity ball, epsilon_inf < epsilon_1 < dim
      epsilon_inf; may be traced.

  Returns:
    [..., dim], dtype of `x`; in the ball up to rounding; x itself where it is inside.
    Clipping the result to a box around 0 keeps it in the ball.

  Raises:
    TypeError: x not floating.
    ValueError: dim below 2, or static radii out of order.

  Differentiable in: nothing. Cost: O(dim), 60 times.

  Source: derived from DIST appendix A and Moreau's decomposition.

  Example:
    >>> spherejax.distances.project_combined(
    ...   jnp.array([2.0, 1.5, 0.0]), epsilon_1=2.0, epsilon_inf=1.0).round(4)
    Array([1.4      , 1.1999999, 0.       ], dtype=float32)
  """
  return _projected(x, epsilon_1, epsilon_inf, _onto_combined)


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
    epsilon_inf: radius of the l-infinity ball, epsilon_inf < epsilon_1 < dim
      epsilon_inf; may be traced.

  Returns:
    [..., dim], dtype of `x`; in the hull up to rounding; x itself where it is inside.
    Clipping the result to a box around 0 keeps it in the hull.

  Raises:
    TypeError: x not floating.
    ValueError: dim below 2, or static radii out of order.

  Differentiable in: nothing. Cost: two sorts and O(dim), 120 times.

  Source: derived from DIST appendix A and Moreau's decomposition.

  Example:
    >>> spherejax.distances.project_hull(
    ...   jnp.array([2.0, 1.5, 0.0]), epsilon_1=2.0, epsilon_inf=1.0).round(4)
    Array([1.25, 0.75, 0.  ], dtype=float32)
  """
  return _projected(x, epsilon_1, epsilon_inf, _onto_hull)


def _projected(
  x: ArrayLike,
  epsilon_1: ArrayLike,
  epsilon_inf: ArrayLike,
  onto: Callable[[Array, _combined.Radii], Array],
) -> Array:
  """Projects vectors of any sign and scale, by a projection `onto` of sizes < 1."""
  x, dtype = _combined.operand(x)
  radii = _combined.radii_of(x.shape[-1], epsilon_1, epsilon_inf, x.dtype)
  x, radii = jax.lax.stop_gradient((x, radii))
  sizes, scale, units = _in_units(x, radii)
  return (jnp.sign(x) * scale * onto(sizes, units)).astype(dtype)


def _excess(sizes: Array, threshold: Array) -> Array:
  """Sum of the excesses over the threshold."""
  return jnp.sum(jnp.maximum(sizes - threshold, 0), axis=-1, keepdims=True)


def _turn(low_side: Callable[[Array], Array], high: Array) -> Array:
  """Upper end of the last bracket in [0, high] where `low_side` turns False."""

  def halve(_, ends):
    low, high = ends
    middle = (low + high) / 2
    below = low_side(middle)
    return jnp.where(below, middle, low), jnp.where(below, high, middle)

  return jax.lax.fori_loop(0, _HALVINGS, halve, (jnp.zeros_like(high), high))[1]


def _in_units(x: Array, radii: _combined.Radii) -> tuple[Array, Array, _combined.Radii]:
  """Sizes and radii in a unit above each vector's largest entry, and that unit."""
  sizes = jnp.abs(x)
  largest = jnp.maximum(jnp.max(sizes, axis=-1, keepdims=True), radii.top)
  scale = jnp.ldexp(jnp.ones_like(largest), jnp.frexp(largest)[1])  # divides exactly
  units = radii._replace(l1=radii.l1 / scale, top=radii.top / scale)
  return sizes / scale, scale, units


def _onto_combined(sizes: Array, radii: _combined.Radii) -> Array:
  beta = radii.beta

  def at(upper: Array) -> Array:
    """Cuts sizes above `upper`; their sum determines the cut of the smaller sizes."""
    lower = _excess(sizes, upper) * beta / (1 - beta)
    return jnp.clip(sizes - lower, 0, jnp.maximum(upper - lower, 0))

  def norm(v: Array) -> Array:
    total, top = (f(v, axis=-1, keepdims=True) for f in (jnp.sum, jnp.max))
    return beta * total + (1 - beta) * top

  moved = at(_turn(lambda c: norm(at(c)) <= radii.l1, jnp.ones_like(radii.l1)))
  shrink = jnp.minimum(1, radii.l1 / norm(moved))
  return jnp.where(norm(sizes) <= radii.l1, sizes, moved * shrink)


def _onto_hull(sizes: Array, radii: _combined.Radii) -> Array:
  l1, ratio = radii.l1, radii.ratio

  def cut(level: Array) -> Array:
    """Amount that the largest sizes lose when the next ones are cut to `level`."""
    return (_excess(sizes, level) - l1) / ratio + level

  def too_low(level: Array) -> Array:
    return _excess(sizes, level + cut(level)) < l1 - ratio * level

  def gauge(v: Array) -> Array:
    ordered = -jnp.sort(-v, axis=-1)
    return jnp.sum(ordered * _combined.hull_weights(radii, v), axis=-1, keepdims=True)

  ends = jnp.ones_like(l1)
  flat = too_low(0 * ends)  # otherwise the hull's face is a face of the l1 ball
  level = jnp.where(flat, _turn(too_low, ends), 0)
  by_one = _turn(lambda t: _excess(sizes, t) > l1, ends)
  loss = jnp.where(flat, cut(level), by_one)
  moved = sizes - jnp.clip(sizes - level, 0, loss)
  shrink = jnp.minimum(1, l1 / gauge(moved))
  return jnp.where(gauge(sizes) <= l1, sizes, moved * shrink)
