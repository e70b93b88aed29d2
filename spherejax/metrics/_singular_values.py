"""Ranks of a matrix, by counting singular values or by their entropy."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int, Real

from spherejax import _checks, _numerics


def numerical_rank(
  matrix: Float[ArrayLike, "*batch rows columns"],
  threshold: Real[ArrayLike, ""],
  *,
  where: Bool[ArrayLike, "*batch rows"] | None = None,
) -> Int[Array, "*batch"]:
  """Number of singular values that reach an absolute threshold.

      rank = #{j: sigma_j >= threshold}

  This rank falls when the matrix is scaled down, for instance by weight decay;
  `relative_rank` and `effective_rank` do not.

  Args:
    matrix: [..., rows, columns], floating: weights, or representations by rows.
    threshold: positive, in the unit of the matrix; may be traced.
    where: [..., rows], boolean, True keeps; masked rows may be NaN. None keeps all.

  Returns:
    [...], int32. 0 for a zero matrix, -1 for one with an entry that is not finite.

  Raises:
    TypeError: matrix not floating, where not boolean.
    ValueError: fewer than two axes, an empty one, shapes that do not match, or a
      static threshold that is not positive.

  Differentiable in: nothing. Cost: O(rows columns min(rows, columns)) time and O(rows
  columns) memory: no singular vectors. Singular values below about the rounding of the
  largest are noise: 1e-6 of the largest in float32. The smaller product `matrix.T @
  matrix` is not used, since its noise reaches 3e-4 of the largest. For reports pass
  float64 (`jax.enable_x64`).

  Source: SSL eq. 2, whose threshold is not stated, so that only the order of its
  ranks can be compared.

  Example:
    >>> spherejax.metrics.numerical_rank(jnp.diag(jnp.array([3.0, 1.0, 0.5])), 1.0)
    Array(2, dtype=int32)
  """
  _checks.positive("threshold", threshold)
  values = _singular_values(_checks.array("matrix", matrix), where)
  return _number_from(values, _checks.scalar("threshold", threshold, values.dtype))


def relative_rank(
  matrix: Float[ArrayLike, "*batch rows columns"],
  *,
  threshold: Real[ArrayLike, ""] = 0.1,
  where: Bool[ArrayLike, "*batch rows"] | None = None,
) -> Int[Array, "*batch"]:
  """Number of singular values that reach a share of the largest.

      rank = #{j: sigma_j >= threshold sigma_1}

  Args:
    matrix: [..., rows, columns], floating: weights, or representations by rows.
    threshold: in (0, 1]; may be traced.
    where: [..., rows], boolean, True keeps; masked rows may be NaN. None keeps all.

  Returns:
    [...], int32. 0 for a zero matrix, -1 for one with an entry that is not finite.

  Raises:
    TypeError: matrix not floating, where not boolean.
    ValueError: fewer than two axes, an empty one, shapes that do not match, or a
      static threshold outside (0, 1].

  Differentiable in: nothing. Cost: as `numerical_rank`.

  Source: SSL eq. 2 with a threshold that does not depend on the scale.

  Example:
    >>> spherejax.metrics.relative_rank(jnp.diag(jnp.array([3.0, 1.0, 0.1])))
    Array(2, dtype=int32)
  """
  _checks.between("threshold", threshold, 0, 1, low_open=True)
  values = _singular_values(_checks.array("matrix", matrix), where)
  share = _checks.scalar("threshold", threshold, values.dtype)
  return _number_from(values, share * values[..., :1])


def effective_rank(
  matrix: Float[ArrayLike, "*batch rows columns"],
  *,
  where: Bool[ArrayLike, "*batch rows"] | None = None,
) -> Float[Array, "*batch"]:
  """Exponential of the entropy of the singular values.

      rank = exp(-sum_j p_j log p_j),    p_j = sigma_j / sum_k sigma_k

  The effective rank needs no threshold. It is at most the rank, and equals the rank if
  all nonzero singular values are equal.

  Args:
    matrix: [..., rows, columns], floating: weights, or representations by rows.
    where: [..., rows], boolean, True keeps; masked rows may be NaN. None keeps all.

  Returns:
    [...], dtype of `matrix`, from 1 to the smaller of rows and columns; 0 for a zero
    matrix, NaN for one with an entry that is not finite.

  Raises:
    TypeError: matrix not floating, where not boolean.
    ValueError: fewer than two axes, an empty one, or shapes that do not match.

  Differentiable in: nothing. Cost: as `numerical_rank`.

  Source: Roy & Vetterli 2007, "The effective rank: a measure of effective
  dimensionality"; SSL figure 1 for the ranks of projectors.

  Example:
    >>> spherejax.metrics.effective_rank(jnp.diag(jnp.array([3.0, 1.0, 0.0])))
    Array(1.7547654, dtype=float32)
  """
  matrix = _checks.array("matrix", matrix)
  values = _singular_values(matrix, where)
  # Divided by the largest first, as the sum could overflow.
  shares = _numerics.divide(values, values[..., :1])
  shares = _numerics.divide(shares, jnp.sum(shares, axis=-1, keepdims=True))
  entropy = jnp.sum(jax.scipy.special.entr(shares), axis=-1)
  rank = jnp.where(values[..., 0] == 0, 0, jnp.exp(entropy))
  return rank.astype(matrix.dtype)


def log_singular_values(
  matrix: Float[ArrayLike, "*batch rows columns"],
  *,
  centre: bool = False,
  where: Bool[ArrayLike, "*batch rows"] | None = None,
) -> Float[Array, "*batch values"]:
  """Logarithms of the singular values, largest first.

  Args:
    matrix: [..., rows, columns], floating: weights, or representations by rows.
    centre: static. True subtracts the mean of the kept rows first.
    where: [..., rows], boolean, True keeps; masked rows may be NaN. None keeps all.

  Returns:
    [..., values], dtype of `matrix`, values the smaller of rows and columns; -inf for a
    singular value of 0. Values below the rounding of the largest are noise: in float32,
    those more than log(1e6) below the first.

  Raises:
    TypeError: matrix not floating, where not boolean, centre not boolean.
    ValueError: fewer than two axes, an empty one, or shapes that do not match.

  Differentiable in: nothing. Cost: as `numerical_rank`.

  Source: SSL figures 4 and 9, which do not centre.

  Example:
    >>> spherejax.metrics.log_singular_values(jnp.diag(jnp.array([1.0, 0.0])))
    Array([  0., -inf], dtype=float32)
  """
  _checks.flag("centre", centre)
  matrix = _checks.array("matrix", matrix)
  values = _singular_values(matrix, where, centre)
  return _numerics.log(values).astype(matrix.dtype)


def thin_svd(matrix: Array) -> tuple[Array, Array, Array]:
  """Thin SVD of a matrix; NaN throughout if an entry is not finite, on any solver."""
  finite = jnp.all(jnp.isfinite(matrix))
  left, values, right = jnp.linalg.svd(
    jnp.where(finite, matrix, 0), full_matrices=False
  )
  left, right = (jnp.where(finite, part, jnp.nan) for part in (left, right))
  return left, jnp.where(finite, values, jnp.nan), right


def _singular_values(
  matrix: Array, where: ArrayLike | None, centre: bool = False
) -> Array:
  """[..., smaller side], decreasing, at least float32; NaN where one is not finite."""
  _checks.expect("matrix", matrix, "floating")
  if matrix.ndim < 2 or 0 in matrix.shape[-2:]:
    raise ValueError(
      f"matrix must have two axes or more, the last two not empty, got shape "
      f"{matrix.shape}"
    )
  mask = _checks.where_mask(where, matrix.shape[:-1])
  rows = jnp.where(mask[..., None], _numerics.upcast(matrix), 0)
  if centre:
    number = jnp.sum(mask, axis=-1, dtype=jnp.int32)[..., None, None]
    mean = jnp.sum(rows, axis=-2, keepdims=True) / jnp.maximum(number, 1)
    rows = jnp.where(mask[..., None], rows - mean, 0)
  finite = jnp.all(jnp.isfinite(rows), axis=(-2, -1), keepdims=True)
  values = jnp.linalg.svd(
    jnp.where(finite, rows, 0), full_matrices=False, compute_uv=False
  )
  return jnp.where(finite[..., 0], values, jnp.nan)


def _number_from(values: Array, floor: Array) -> Array:
  reached = (values >= floor) & (values > 0)
  number = jnp.sum(reached, axis=-1, dtype=jnp.int32)
  return jnp.where(jnp.isnan(values[..., 0]), -1, number)
