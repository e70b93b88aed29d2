"""Repulsion of prototypes: smooth forms of their largest cosine."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from spherejax import _checks, _numerics
from spherejax import distances as _distances


def gaussian_potential(
  prototypes: Float[ArrayLike, "classes dim"], *, t: Real[ArrayLike, ""] = 2.0
) -> Float[Array, ""]:
  """Gaussian potential (uniformity loss): logarithm of the mean pairwise kernel.

      L = log( 1 / (C (C - 1)) sum_{i != j} exp(2 t (cos(p_i, p_j) - 1)) )

  exp(2 t (cos - 1)) is exp(-t |p_i - p_j|^2) of unit rows. No set has a smaller value
  than the simplex, -2 t C / (C - 1). The kernel exerts no force between coinciding
  prototypes, and for C far above dim the minimisers for small t contain coinciding
  prototypes. `smooth_max_cosine` with growing t is the better objective there.

  Args:
    prototypes: [classes, dim], floating; rows are divided by their norm here (a zero
      row stays zero).
    t: positive, may be traced. With a small t only the sum of the prototypes counts,
      with a large t only the closest pair.

  Returns:
    Scalar, dtype of `prototypes`, accurate relative to its size for small t too. NaN
    for fewer than two rows.

  Raises:
    TypeError: prototypes not floating.
    ValueError: prototypes not a matrix, or a static t that is not positive.

  Differentiable in: prototypes, t. Cost: O(classes^2 dim).

  Source: DL2P eqs. 3-5; Wang and Isola 2020, "Understanding contrastive representation
  learning through alignment and uniformity on the hypersphere", section 4.1.2.

  Example:
    >>> spherejax.prototypes.gaussian_potential(jnp.array([[1.0, 0.0], [0.0, 2.0]]))
    Array(-4., dtype=float32)
  """
  rows, t, dtype = _arguments(prototypes, t)
  return _log_mean(rows, t).astype(dtype)


def smooth_max_cosine(
  prototypes: Float[ArrayLike, "classes dim"], *, t: Real[ArrayLike, ""]
) -> Float[Array, ""]:
  """Smooth upper bound of the largest cosine between two prototypes.

      F = 1 + 1 / (2 t) log sum_{i < j} exp(2 t (cos(p_i, p_j) - 1))
      max cos <= F <= max cos + log(C (C - 1) / 2) / (2 t)

  It has the same minimisers as `gaussian_potential` at the same t, on the scale of
  cosines.

  Args:
    prototypes: [classes, dim], floating; rows are divided by their norm here (a zero
      row stays zero).
    t: positive, may be traced.

  Returns:
    Scalar, dtype of `prototypes`. NaN for fewer than two rows.

  Raises:
    TypeError: prototypes not floating.
    ValueError: prototypes not a matrix, or a static t that is not positive.

  Differentiable in: prototypes, t. Cost: O(classes^2 dim).

  Source: textbook smoothing of a maximum; DL2P eq. 5 is its first term.

  Example:
    >>> points = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> spherejax.prototypes.smooth_max_cosine(points, t=100.0)
    Array(0.003466, dtype=float32)
  """
  rows, t, dtype = _arguments(prototypes, t)
  pairs = max(len(rows) * (len(rows) - 1) / 2, 1)
  return (1 + (_log_mean(rows, t) + jnp.log(pairs)) / (2 * t)).astype(dtype)


def repulsion(rows: Array, t: Array) -> Array:
  """[n, dim]: gradient of `smooth_max_cosine` along the sphere, for unit rows.

      sum_j q_ij p_j without its part along p_i,   q = softmax over pairs of 2 t cos

  Written by hand, because the optimisers spend their time here. Times 2 t it is the
  gradient of `gaussian_potential`.
  """
  score = _off_diagonal(2 * t * _numerics.product(rows, rows.T), -jnp.inf)
  weights = jnp.exp(score - jnp.max(score))
  pull = 2 * _numerics.product(weights, rows) / jnp.sum(weights)
  return along_sphere(rows, pull)


def along_sphere(rows: Array, gradient: Array) -> Array:
  """Removes the part of the gradient along each row."""
  return gradient - jnp.sum(gradient * rows, axis=1, keepdims=True) * rows


def max_cosine(rows: Array) -> Array:
  """Largest cosine between two of at least two unit rows."""
  return jnp.max(_off_diagonal(_numerics.product(rows, rows.T), -jnp.inf))


def _arguments(prototypes: ArrayLike, t: ArrayLike) -> tuple[Array, Array, jnp.dtype]:
  prototypes = _checks.array("prototypes", prototypes, "floating", rank=2)
  _checks.positive("t", t)
  rows = _numerics.upcast(prototypes)
  return rows, _checks.scalar("t", t, rows.dtype), prototypes.dtype


def _log_mean(rows: Array, t: Array) -> Array:
  """Gaussian potential, exact in float32 for every t."""
  if len(rows) < 2:
    return jnp.full((), jnp.nan, rows.dtype)
  score = 2 * t * (_distances.pairwise_cosine(rows) - 1)
  pairs = ~jnp.eye(len(rows), dtype=bool)
  largest = jax.lax.stop_gradient(jnp.max(_off_diagonal(score, -jnp.inf)))
  behind = jnp.where(pairs, score - largest, 0)
  number = len(rows) * (len(rows) - 1)
  # A mean near 1 is computed by its difference from 1, so that small t keeps digits.
  below = jnp.sum(jnp.expm1(behind)) / number
  mean = _numerics.masked_sum(jnp.exp(behind), pairs, None) / number
  close = below > -0.5
  logarithm = jnp.where(close, jnp.log1p(jnp.where(close, below, 0)), jnp.log(mean))
  return largest + logarithm


def _off_diagonal(matrix: Array, value: float) -> Array:
  return jnp.where(jnp.eye(len(matrix), dtype=bool), value, matrix)
