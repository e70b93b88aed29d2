"""Multidimensional scaling on the sphere, by gradient steps."""

import functools
from typing import NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int, Key, Real

from spherejax import _checks, _compiled, _numerics

# A square that keeps the root of a zero distance smooth.
_SMOOTHING = 1e-12
# Converged: as near to exact as steps of this size come, or at a stationary point.
_EXACT, _FLAT = 1e-3, 0.1


class SphereMDSResult(NamedTuple):
  """Result of `sphere_mds`."""

  points: Float[Array, "n dim"]
  """Rows of length 1."""
  stress: Float[Array, ""]
  """Normalised stress of these points; 0 is an exact solution."""
  steps: Int[Array, ""]
  """Number of steps."""
  converged: Bool[Array, ""]
  """True if the stress is at most 1e-3, or no longer falls: moving every point by a
  small angle would change it relatively by less than 0.1 of that angle."""


def sphere_mds(
  distances: Float[ArrayLike, "n n"],
  dim: int,
  *,
  key: Key[ArrayLike, ""] | None = None,
  initial: Float[ArrayLike, "n dim"] | None = None,
  steps: int = 1000,
  learning_rate: Real[ArrayLike, ""] = 1e-3,
) -> SphereMDSResult:
  """Points of the unit sphere whose chords approximate given distances.

      min_W  |D_W - D|_F / |D|_F,   (D_W)_ij = sqrt(2 - 2 cos(W_i, W_j) + 1e-12)

  by Adam on the rows of W, which the objective normalises. The rows start at random, or
  at `initial`. This is not classical scaling, whose points leave the sphere. Where the
  matrix 1 - D^2 / 2 is positive definite and dim >= n, its Cholesky factor is an exact
  solution at once (`prototypes.hierarchical_prototypes`).

  Args:
    distances: [n, n], floating: chords in [0, 2], symmetric, 0 on the diagonal.
    dim: static. Length of the points.
    key: a typed key for random points; ignored with `initial`.
    initial: [n, dim], floating, the start. Need not be normalised.
    steps: static.
    learning_rate: positive, may be traced.

  Returns:
    SphereMDSResult(points, stress, steps, converged), dtype of `distances`. The stress
    is 0 where all distances are 0.

  Raises:
    TypeError: distances or initial not floating, dim or steps not static integers.
    ValueError: shapes do not match, neither or both of key and initial, or known
      distances that are not chords.

  Differentiable in: nothing. Cost: O(steps n^2 dim) time, one compilation per shape.

  Source: DIST IV eq. 13 ("MDS"): 1000 steps at 1e-3, and the points stay fixed when a
  network is trained towards them.

  Example:
    >>> distances = jnp.sqrt(2.0) * (1 - jnp.eye(3))  # of orthogonal points
    >>> key = jax.random.key(0)
    >>> result = spherejax.solvers.sphere_mds(distances, 3, key=key)
    >>> bool(result.stress < 1e-3)
    True
  """
  if key is not None:
    _checks.key("key", key)
  distances = _checks.array("distances", distances, "floating", rank=2)
  size = len(distances)
  _checks.shape("distances", distances, (size, size), "its rows")
  _compiled.known(_check_chords, distances)
  _checks.count("dim", dim)
  _checks.count("steps", steps, 0)
  _checks.positive("learning_rate", learning_rate)
  if (key is None) == (initial is None):
    raise ValueError("sphere_mds takes one of key and initial, got both or neither")
  wide = _numerics.upcast(distances)
  if key is not None:
    start = jax.random.normal(key, (size, dim), wide.dtype)
  else:
    start = _checks.array("initial", initial, "floating")
    _checks.shape("initial", start, (size, dim), "the distances and dim")
    start = start.astype(wide.dtype)
  rate = _checks.scalar("learning_rate", learning_rate, wide.dtype)
  wide, start, rate = jax.lax.stop_gradient((wide, start, rate))
  points, stress, converged = _descend(wide, start, rate, steps=steps)
  return SphereMDSResult(
    points.astype(distances.dtype),
    stress.astype(distances.dtype),
    jnp.asarray(steps),
    converged,
  )


def _check_chords(distances: ArrayLike) -> None:
  known = np.asarray(distances, np.float64)
  wrong = known[~((known >= 0) & (known <= 2 + 1e-5))]
  if wrong.size:
    raise ValueError(f"distances must be chords in [0, 2], got {wrong[0]:g}")
  if np.abs(known - known.T).max(initial=0) > 1e-5 or np.diagonal(known).any():
    raise ValueError("distances must be symmetric and 0 on the diagonal")


def _stress(free: Array, distances: Array) -> Array:
  points = _numerics.normalize(free)
  product = _numerics.product(points, points.T)
  # The diagonal is 0 by definition, despite rounding.
  square = jnp.where(jnp.eye(len(free), dtype=bool), 0, jax.nn.relu(2 - 2 * product))
  error = _numerics.norm(jnp.ravel(jnp.sqrt(square + _SMOOTHING) - distances))
  size = _numerics.norm(jnp.ravel(distances))
  return _numerics.divide(error, size)


@functools.partial(jax.jit, static_argnames=("steps",))
def _descend(
  distances: Array, start: Array, rate: Array, *, steps: int
) -> tuple[Array, Array, Array]:
  """Points, their stress, and whether it has converged; Adam from `start`."""

  def step(carry: tuple[Array, _numerics.AdamMoments], count: Array):
    free, moments = carry
    gradient = jax.grad(_stress)(free, distances)
    direction, moments = _numerics.adam(gradient, moments, count)
    return (free - rate * direction, moments), None

  # The paper normalises its random points first, which sets the size of the steps.
  free = _numerics.normalize(start)
  zero = jnp.zeros_like(free)
  counts = jnp.arange(1, steps + 1).astype(free.dtype)
  moments = _numerics.AdamMoments(zero, zero)
  (free, _), _ = jax.lax.scan(step, (free, moments), counts)
  points = _numerics.normalize(free)
  stress, gradient = jax.value_and_grad(_stress)(points, distances)
  slope = _numerics.norm(jnp.ravel(gradient)) * len(points) ** 0.5
  return points, stress, (stress <= _EXACT) | (slope <= _FLAT * stress)
