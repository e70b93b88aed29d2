"""Fixed point of a contraction, with implicit derivatives."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.flatten_util
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int, PyTree, Real

from spherejax import _checks, _numerics

# Up to this many unknowns elimination solves the derivative's linear system (its matrix
# takes at most 256 KiB in float32); above, a Neumann series does.
_DENSE_UNKNOWNS = 256
_SERIES_TERMS = 10_000


class FixedPointResult(NamedTuple):
  """Fixed point, and its convergence."""

  value: PyTree[Float[Array, "..."]]
  """Fixed point, differentiable in the arrays that the function closes over."""
  residual: Float[Array, ""]
  """Largest entry of |fn(value) - value|, not differentiated."""
  steps: Int[Array, ""]
  """Evaluations of the function after the first."""
  converged: Bool[Array, ""]
  """True if the residual is at most `tol`."""


def fixed_point(
  fn: Callable[[Any], Any],
  init: PyTree[Real[ArrayLike, "..."]],
  *,
  tol: Real[ArrayLike, ""] = 1e-6,
  max_steps: int = 100,
) -> FixedPointResult:
  """Fixed point of a function by iteration, with implicit derivatives.

      x <- fn(x)   until   max |fn(x) - x| <= tol

      dx = (I - J)^-1 d fn(x),    J = Jacobian of fn at the fixed point

  Convergence is linear, at the rate of the spectral radius r of J; J need not be
  symmetric. Elimination solves the linear system of the derivative for up to 256
  unknowns. For more unknowns the Neumann series is summed until a term no longer
  changes the sum. Its relative error is about eps / (1 - r). The series needs as many
  products with J as the fixed point needs steps to full precision, at most 10,000. The
  derivative is taken at the value returned, so its error is of the order of that
  value's error.

  Args:
    fn: differentiable; maps a pytree of floating arrays to a pytree of the same
      structure, shapes and dtypes. May close over traced arrays.
    init: the pytree to start from. Not differentiated.
    tol: positive, may be traced. In the unit of the unknowns.
    max_steps: static. Largest number of evaluations of `fn` after the first.

  Returns:
    FixedPointResult(value, residual, steps, converged): `value` like `init`, the
    others scalars. Nothing raises for non-convergence or NaN: `converged` is False.

  Raises:
    ValueError: static tol not positive, max_steps < 1, `init` without entries, or
      `fn` changes structure, shape or dtype.
    TypeError: a leaf of `init` is not floating, max_steps is not a static integer.

  Differentiable in: everything `fn` closes over, in forward and reverse mode,
  repeatedly; not in `init`. Cost: one evaluation of `fn` per step; memory of the
  backward pass does not depend on the number of steps.

  Source: Banach's fixed-point theorem; the implicit function theorem.

  Example:
    >>> point = spherejax.solvers.fixed_point(jnp.cos, 1.0, tol=1e-6)
    >>> point.value, point.converged
    (Array(0.73908556, dtype=float32), Array(True, dtype=bool))
  """
  _checks.function("fn", fn)
  _checks.positive("tol", tol)
  _checks.count("max_steps", max_steps)
  # A loop needs an array of a fixed type, also for a Python number.
  init = jax.tree.map(lambda leaf: _checks.array("init", leaf), init)
  init = jax.tree.map(lambda leaf: leaf.astype(leaf.dtype), init)
  init = jax.lax.stop_gradient(init)
  for leaf in jax.tree.leaves(init):
    _checks.expect("init", leaf, "floating")
  flat, unravel = jax.flatten_util.ravel_pytree(init)
  if flat.size == 0:
    raise ValueError(f"init must have at least one entry, got {init!r}")
  _check_preserves(fn, init)
  tol = jax.lax.stop_gradient(_checks.scalar("tol", tol, flat.dtype))

  def gap(x: Array) -> Array:
    return jax.flatten_util.ravel_pytree(fn(unravel(x)))[0] - x

  def solve(gap_of: Callable[[Array], Array], start: Array):
    point, residual, steps = _iterate(gap_of, start, tol, max_steps)
    # custom_root gives integers in `aux` a tangent of the wrong type.
    return point, (residual, steps.astype(flat.dtype))

  value, (residual, steps) = jax.lax.custom_root(
    gap, flat, solve, _solve_linear, has_aux=True
  )
  residual = jax.lax.stop_gradient(residual)
  steps = jax.lax.stop_gradient(steps).astype(jnp.int32)
  return FixedPointResult(unravel(value), residual, steps, residual <= tol)


def _check_preserves(fn: Callable[[Any], Any], init: Any) -> None:
  """Raises unless `fn` maps the pytree to a pytree of the same kind."""
  out = jax.eval_shape(fn, init)
  kinds = [
    jax.tree.map(lambda leaf: f"{leaf.dtype}{list(leaf.shape)}", tree)
    for tree in (init, out)
  ]
  if kinds[0] != kinds[1]:
    raise ValueError(
      f"fn must return the type that it takes, {kinds[0]}, got {kinds[1]}"
    )


def _iterate(
  gap: Callable[[Array], Array], start: Array, tol: Array, max_steps: int
) -> tuple[Array, Array, Array]:
  """Fixed point, residual, steps; `gap(x)` is fn(x) - x."""

  def residual(difference: Array) -> Array:
    return jnp.max(jnp.abs(difference))

  def unfinished(state: tuple[Array, Array, Array]) -> Array:
    _, difference, step = state
    return (residual(difference) > tol) & (step < max_steps)

  def advance(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
    x, difference, step = state
    following = x + difference
    return following, gap(following), step + 1

  x, difference, steps = jax.lax.while_loop(
    unfinished, advance, (start, gap(start), jnp.zeros((), jnp.int32))
  )
  return x, residual(difference), steps


def _solve_linear(linear: Callable[[Array], Array], b: Array) -> Array:
  """Solves linear(u) = (J - I) u = b; linear in b, transposable, differentiable."""
  solve = _eliminate if b.size <= _DENSE_UNKNOWNS else _repeat
  return jax.lax.custom_linear_solve(linear, b, solve=solve, transpose_solve=solve)


def _eliminate(linear: Callable[[Array], Array], b: Array) -> Array:
  return _numerics.solve(jax.jacfwd(linear)(jnp.zeros_like(b)), b)


def _repeat(linear: Callable[[Array], Array], b: Array) -> Array:
  """Neumann series u <- J u - b, which converges wherever repeating fn does."""
  eps = float(jnp.finfo(b.dtype).eps)

  def unfinished(state: tuple[Array, Array, Array]) -> Array:
    u, change, step = state
    # inf > inf is False: a diverging series ends at once.
    growing = jnp.max(jnp.abs(change)) > eps * jnp.max(jnp.abs(u))
    return growing & (step < _SERIES_TERMS)

  def advance(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
    u, change, step = state
    u = u + change
    return u, linear(u) - b, step + 1

  start = (jnp.zeros_like(b), -b, jnp.zeros((), jnp.int32))
  return jax.lax.while_loop(unfinished, advance, start)[0]
