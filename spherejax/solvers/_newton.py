"""Root of a scalar function inside a bracket, with implicit derivatives."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int, Real

from spherejax import _checks, _compiled


class RootResult(NamedTuple):
  """Root, and its convergence."""

  value: Float[Array, ""]
  """Root, differentiable in the arrays that the function closes over."""
  residual: Float[Array, ""]
  """|fn(value)|, not differentiated."""
  steps: Int[Array, ""]
  """Newton or bisection steps taken, not counting the two ends of the bracket."""
  converged: Bool[Array, ""]
  """True if the residual is at most `tol`."""


class _Search(NamedTuple):
  low: Array
  high: Array
  value: Array
  height: Array
  slope: Array
  checked_width: Array
  step: Array


def newton(
  fn: Callable[[Array], Array],
  bracket: tuple[Real[ArrayLike, ""], Real[ArrayLike, ""]],
  *,
  tol: Real[ArrayLike, ""] = 1e-6,
  max_steps: int = 64,
) -> RootResult:
  """Root of a scalar function inside a bracket, by safeguarded Newton steps.

      x <- x - fn(x) / fn'(x)

  A bisection replaces a step that leaves the bracket, and every third step if the
  bracket has not halved over three steps. So convergence is quadratic near a simple
  root and never slower than a few bisections per digit.

      dx = -d fn(x) / fn'(x)      implicit derivative at the root

  Args:
    fn: differentiable, scalar to scalar. May close over traced arrays.
    bracket: (low, high), low < high, between which `fn` changes its sign; may be
      traced. Not differentiated. A floating end determines the dtype.
    tol: positive, may be traced. Largest |fn(x)| that counts as a root.
    max_steps: static. Steps after the two ends and the middle are evaluated.

  Returns:
    RootResult(value, residual, steps, converged), scalars. Without a sign change,
    `value` is the better end of the bracket and `converged` is False (unless that end
    is a root). Nothing raises for non-convergence. The search also ends when no number
    lies between the ends of the bracket.

  Raises:
    ValueError: static ends not in order, static tol not positive, max_steps < 1,
      `fn` returns no scalar.
    TypeError: max_steps is not a static integer.

  Differentiable in: everything `fn` closes over, in forward and reverse mode,
  repeatedly; not in the bracket. Cost: one value and derivative of `fn` per step; the
  backward pass needs one more, whatever the number of steps.

  Source: safeguarded Newton as in W. Press et al., "Numerical Recipes", 9.4; the
  implicit function theorem.

  Example:
    >>> root = spherejax.solvers.newton(lambda x: x**2 - 2.0, (0.0, 2.0))
    >>> root.value, root.converged
    (Array(1.4142135, dtype=float32), Array(True, dtype=bool))
  """
  _checks.function("fn", fn)
  low, high = _checks.interval("bracket", bracket)
  _checks.positive("tol", tol)
  _checks.expect("tol", _checks.array("tol", tol), rank=0)
  _checks.count("max_steps", max_steps)
  for bound in (low, high):
    _checks.array("bracket", bound)
  _compiled.known(_check_order, low, high)
  dtype = jnp.result_type(low, high, float)
  low, high, tol = (
    jax.lax.stop_gradient(jnp.asarray(x, dtype)) for x in (low, high, tol)
  )

  height = jax.eval_shape(lambda x: _checks.array("what fn returns", fn(x)), low)
  if height.shape != ():
    raise ValueError(f"fn must return a scalar, got shape {height.shape}")

  def value_of(x: Array) -> Array:
    return jnp.asarray(fn(x), dtype)

  def solve(function: Callable[[Array], Array], start: Array):
    root, height, steps = _search(function, start, high, tol, max_steps)
    # custom_root gives integers in `aux` a tangent of the wrong type.
    return root, (height, steps.astype(dtype))

  # At a stationary point the implicit derivative does not exist: inf or NaN.
  value, (height, steps) = jax.lax.custom_root(
    value_of, low, solve, lambda linear, b: b / linear(jnp.ones_like(b)), has_aux=True
  )
  residual = jax.lax.stop_gradient(jnp.abs(height))
  steps = jax.lax.stop_gradient(steps).astype(jnp.int32)
  return RootResult(value, residual, steps, residual <= tol)


def _check_order(low: ArrayLike, high: ArrayLike) -> None:
  first, last = _checks.static_number(low), _checks.static_number(high)
  if first is not None and last is not None and not first < last:
    raise ValueError(f"bracket must be in order, low < high, got ({low}, {high})")


def _search(
  fn: Callable[[Array], Array], low: Array, high: Array, tol: Array, max_steps: int
) -> tuple[Array, Array, Array]:
  """Root, height of the function there, steps."""
  at_low, at_high = fn(low), fn(high)
  sign = jnp.where(at_high > at_low, 1, -1).astype(low.dtype)

  def evaluate(x: Array) -> tuple[Array, Array]:
    return jax.jvp(fn, (x,), (jnp.ones_like(x),))

  middle = low + (high - low) / 2
  search = _Search(
    low, high, middle, *evaluate(middle), high - low, jnp.zeros((), jnp.int32)
  )

  def unfinished(s: _Search) -> Array:
    splittable = (s.low < s.value) & (s.value < s.high)
    return (jnp.abs(s.height) > tol) & splittable & (s.step < max_steps)

  def advance(s: _Search) -> _Search:
    above = s.height * sign > 0
    low, high = jnp.where(above, s.low, s.value), jnp.where(above, s.value, s.high)
    width = high - low
    check = s.step % 3 == 2
    stalled = check & (width > s.checked_width / 2)
    guess = s.value - s.height / s.slope
    inside = (low < guess) & (guess < high)  # False for NaN
    value = jnp.where(inside & ~stalled, guess, low + width / 2)
    checked_width = jnp.where(check, width, s.checked_width)
    return _Search(low, high, value, *evaluate(value), checked_width, s.step + 1)

  end = jax.lax.while_loop(unfinished, advance, search)
  no_change = (at_low * at_high > 0) & (jnp.abs(end.height) > tol)
  candidates = jnp.stack([end.value, low, high])
  heights = jnp.stack([end.height, at_low, at_high])
  allowed = jnp.stack([~no_change, jnp.array(True), jnp.array(True)])
  best = jnp.argmin(jnp.where(allowed, jnp.abs(heights), jnp.inf))
  return candidates[best], heights[best], end.step
