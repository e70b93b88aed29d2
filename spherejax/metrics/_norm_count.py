"""Regression of norms on numbers of objects, with slopes and tests."""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int, Integer

from spherejax import _checks, _numerics
from spherejax.metrics import _student

Covariance = Literal["estimated", "known"]
_PLACES = (0.25, 0.5, 0.75)


class NormCountRegression(NamedTuple):
  """Result of `norm_count_regression`; its numbers are NaN where not `valid`.

  Entry j of `counts`, `deviations` and `sizes` belongs to the j-th smallest count. The
  arrays are as long as the rows; entries after the last count have size 0.
  """

  coefficients: Float[Array, "3"]
  """b0, b1, b2 of b0 + b1 c + b2 c^2."""
  covariance: Float[Array, "3 3"]
  """Covariance of the coefficients."""
  points: Float[Array, "3"]
  """Counts at a quarter, a half and three quarters of the way from least to most."""
  slopes: Float[Array, "3"]
  """b1 + 2 b2 c at these points."""
  standard_errors: Float[Array, "3"]
  """Standard errors of the slopes."""
  p_values: Float[Array, "3"]
  """One-sided p-values: small for a slope above 0, above 1/2 for a slope below 0."""
  log_p_values: Float[Array, "3"]
  """Logarithms of the p-values, which do not underflow."""
  counts: Int[Array, " n"]
  """The different counts, ascending."""
  deviations: Float[Array, " n"]
  """Standard deviation of v by count, as the weights use it; NaN after the last."""
  sizes: Int[Array, " n"]
  """Number of rows with each count."""
  valid: Bool[Array, ""]
  """True with three different counts, enough rows and only finite norms."""


class _Groups(NamedTuple):
  """Groups of rows of equal count, in ascending order, with masked rows last."""

  order: Array  # [n], the rows, group by group
  member: Array  # [n], the group of each row in this order
  number: Array  # [n], the group of each row
  counts: Array  # [n], of each group
  sizes: Array  # [n], of each group, masked rows not counted


class _Variances(NamedTuple):
  """Variances of the norms within the counts."""

  of_rows: Array  # [n], positive, one over the weights
  deviations: Array  # [n], of each group
  scale: Array  # variance over `of_rows`: 1; 0 without noise; NaN if unknown


class _Fit(NamedTuple):
  """Weighted parabola in counts that are centred and scaled to deviation 1."""

  solution: Array  # [3]
  root: Array  # [3, 3], root root' is the inverse of X' W X
  residuals: Array  # [n]
  turn: Array  # [3, 3], to the coefficients of the counts themselves
  points: Array  # [3]
  slope_rows: Array  # [3, 3], from the solution to the slopes there


def norm_count_regression(
  norms: Float[ArrayLike, " n"],
  counts: Integer[ArrayLike, " n"],
  *,
  covariance: Covariance = "estimated",
  standardize: bool = True,
  where: Bool[ArrayLike, " n"] | None = None,
) -> NormCountRegression:
  """Weighted quadratic regression of norms on counts, with tests for a positive slope.

      v_i = b0 + b1 c_i + b2 c_i^2 + e_i,   e_i ~ N(0, sigma_c^2),   c = c_i
      b = argmin sum_i w_i (v_i - ...)^2,   w_i = 1 / variance of v within the count c_i
      c_q = c_min + q (c_max - c_min),   s_q = b1 + 2 b2 c_q,   q = 1/4, 1/2, 3/4
      T_q = s_q / se_q,   p_q = P(t_{n-3} > T_q) ("estimated") or P(Z > T_q) ("known")

  The null hypothesis is a slope of at most 0, the alternative a positive slope. The
  norm "increases" when all three p-values are small. Use `jax.vmap` for many
  regressions. Use ten or more rows per count: with four, a test at 5 % rejects 7 % of
  flat lines.

  Args:
    norms: [n], floating.
    counts: [n], integer.
    covariance: "known" trusts the variances in the weights: (sum_i w_i x_i x_i')^{-1}
      with x_i = (1, c_i, c_i^2). "estimated" multiplies this matrix by the mean
      weighted squared residual, as statistics packages do. Static.
    standardize: static. v = (norm - mean) / standard deviation, so that slopes are in
      standard deviations of the norm and comparable; False takes v = norm.
    where: [n], boolean, True keeps; masked rows may be NaN. None keeps all.

  Returns:
    `NormCountRegression`, dtype of `norms`. A count with one row or with equal norms
    takes the variance pooled over all counts; if this is 0, all weights are 1. The
    results are NaN and `valid` is False with fewer than three different counts, with at
    most three rows, with a norm that is NaN or infinite, and with "known" where no
    count occurs twice. Norms that are all equal have slopes 0 and p 1/2.

  Raises:
    TypeError: norms not floating, counts not integers, where not boolean, standardize
      not boolean.
    ValueError: shapes do not match, no row, or an unknown `covariance`.

  Differentiable in: nothing (test statistics). Cost: O(n log n).

  Source: NCH eqs. 19 to 22. Standardised norms and weights by the variances of each
  count are inferred from NCH tables 1 and 3.

  Example:
    >>> counts = jnp.array([1, 1, 2, 2, 3, 3, 4, 4])
    >>> norms = jnp.array([1.0, 1.2, 2.1, 1.9, 3.1, 3.0, 4.0, 3.9])
    >>> found = spherejax.metrics.norm_count_regression(
    ...   norms, counts, standardize=False)
    >>> [round(float(s), 2) for s in found.slopes], bool(found.p_values.max() < 1e-4)
    ([0.99, 0.96, 0.93], True)
  """
  _checks.flag("standardize", standardize)
  _checks.one_of("covariance", covariance, Covariance)
  values, counts, mask, dtype = _operands(norms, counts, where)
  finite = jnp.all(jnp.isfinite(values))
  # Relative to one norm, so that equal norms are exactly 0.
  origin = jnp.zeros_like(values[0]) if standardize else values[jnp.argmax(mask)]
  values = _standardized(values, mask) if standardize else values - origin
  values = jnp.where(mask, values, 0)
  groups = _groups(counts, mask)
  variances = _variances(values, mask, groups)
  fit = _fit(values, counts, mask, jnp.where(mask, 1 / variances.of_rows, 0))
  total = jnp.sum(mask)
  freedom = jnp.maximum(total - 3, 1).astype(values.dtype)
  scale = variances.scale
  if covariance == "estimated":
    scale = jnp.sum(mask * fit.residuals**2 / variances.of_rows) / freedom
  slopes = _numerics.product(fit.slope_rows, fit.solution)
  errors = jnp.sqrt(
    scale * jnp.sum(_numerics.product(fit.slope_rows, fit.root) ** 2, axis=1)
  )
  # Without noise a slope of 0 is flat, and any other slope is certain.
  ratio = jnp.where(slopes == 0, 0, slopes / errors)
  if covariance == "estimated":
    log_p = _student.log_student_survival(ratio, freedom)
  else:
    log_p = _student.log_normal_survival(ratio)
  turned = _numerics.product(fit.turn, fit.root)
  valid = (jnp.sum(groups.sizes > 0) >= 3) & (total > 3) & jnp.isfinite(scale)
  valid &= finite

  def figure(x: Array) -> Array:
    return jnp.where(valid, x, jnp.nan).astype(dtype)

  return NormCountRegression(
    coefficients=figure(_numerics.product(fit.turn, fit.solution).at[0].add(origin)),
    covariance=figure(scale * _numerics.product(turned, turned.T)),
    points=figure(fit.points),
    slopes=figure(slopes),
    standard_errors=figure(errors),
    p_values=figure(jnp.exp(log_p)),
    log_p_values=figure(log_p),
    counts=groups.counts,
    deviations=variances.deviations.astype(dtype),
    sizes=groups.sizes,
    valid=valid,
  )


def norm_count_correlation(
  norms: Float[ArrayLike, " n"],
  counts: Integer[ArrayLike, " n"],
  *,
  where: Bool[ArrayLike, " n"] | None = None,
) -> Float[Array, ""]:
  """Pearson's correlation of norm and count, for instance of a few-shot episode.

      rho = sum_i (v_i - mean v)(c_i - mean c) / ((n - 1) std(v) std(c))

  Use `jax.vmap` for thousands of episodes; `correlation` also gives a p-value.

  Args:
    norms: [n], floating.
    counts: [n], integer.
    where: [n], boolean, True keeps; masked rows may be NaN. None keeps all.

  Returns:
    Scalar in [-1, 1], dtype of `norms`; NaN where either side does not vary, so that
    an average can leave the episode out and count it.

  Raises:
    TypeError: norms not floating, counts not integers, where not boolean.
    ValueError: shapes do not match, or no row.

  Differentiable in: nothing (a statistic). Cost: O(n).

  Source: NCH table 3, which averages it over episodes.

  Example:
    >>> norms, counts = jnp.array([1.0, 2.0, 4.0]), jnp.array([1, 2, 3])
    >>> spherejax.metrics.norm_count_correlation(norms, counts)
    Array(0.982, dtype=float32)
  """
  values, counts, mask, dtype = _operands(norms, counts, where)
  v = _standardized(values, mask)
  counts = counts - counts[jnp.argmax(mask)]  # a large count loses its last digits
  c = _standardized(counts.astype(values.dtype), mask)
  varies = jnp.any(v != 0) & jnp.any(c != 0)
  rho = jnp.sum(v * c) / jnp.maximum(jnp.sum(mask) - 1, 1)
  finite = jnp.all(jnp.isfinite(values))
  rho = jnp.where(varies & finite, jnp.clip(rho, -1, 1), jnp.nan)
  return rho.astype(dtype)


def _operands(
  norms: ArrayLike, counts: ArrayLike, where: ArrayLike | None
) -> tuple[Array, Array, Array, jnp.dtype]:
  """Checked norms, 0 where masked, their counts and mask, and their original type."""
  norms = _checks.array("norms", norms, "floating", rank=1, empty=False)
  counts = _checks.integers("counts", counts)
  _checks.labels(counts, norms, "counts")
  mask = _checks.where_mask(where, norms.shape)
  return jnp.where(mask, _numerics.upcast(norms), 0), counts, mask, norms.dtype


def _standardized(values: Array, mask: Array) -> Array:
  """Scales kept rows to mean 0 and deviation 1 (ddof 1); all 0 if they are equal."""
  # Equal values differ by exactly 0 from one of them, but by rounding from their mean.
  moved = jnp.where(mask, values - values[jnp.argmax(mask)], 0)
  moved = moved / _numerics.unit(moved)  # squares neither overflow nor vanish
  total = jnp.maximum(jnp.sum(mask), 1)
  centred = jnp.where(mask, moved - jnp.sum(moved) / total, 0)
  spread = jnp.sqrt(jnp.sum(centred**2) / jnp.maximum(total - 1, 1))
  return _numerics.divide(centred, spread)


def _groups(counts: Array, mask: Array) -> _Groups:
  order = jnp.lexsort((counts, ~mask))
  sorted_counts, sorted_kept = counts[order], mask[order]
  differs = sorted_counts[1:] != sorted_counts[:-1]
  begins = differs | (sorted_kept[1:] != sorted_kept[:-1])
  member = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(begins)])
  sizes = _sums(sorted_kept.astype(jnp.int32), member)
  distinct = jnp.zeros_like(counts).at[member].set(sorted_counts)
  number = jnp.zeros_like(member).at[order].set(member)
  return _Groups(order, member, number, jnp.where(sizes > 0, distinct, 0), sizes)


def _sums(x: Array, member: Array) -> Array:
  return jax.ops.segment_sum(x, member, len(x), indices_are_sorted=True)


def _variances(values: Array, mask: Array, groups: _Groups) -> _Variances:
  """Estimates the variance of each count, pooled where a count tells nothing."""
  inside, member = mask[groups.order], groups.member
  v = values[groups.order]
  # Relative to the largest of the group, so equal norms have variance exactly 0.
  largest = jax.ops.segment_max(v, member, len(v), indices_are_sorted=True)
  moved = jnp.where(inside, v - largest[member], 0)
  means = _sums(moved, member) / jnp.maximum(groups.sizes, 1)
  squares = _sums(jnp.where(inside, moved - means[member], 0) ** 2, member)
  freedom = jnp.maximum(groups.sizes - 1, 0)
  # NaN where no count occurs twice.
  pooled = jnp.sum(squares) / jnp.sum(freedom)
  estimates = squares / jnp.maximum(freedom, 1)
  variances = jnp.where((freedom > 0) & (estimates > 0), estimates, pooled)
  noisy = pooled > 0
  return _Variances(
    jnp.where(noisy, variances, 1)[groups.number],
    jnp.where(groups.sizes > 0, jnp.sqrt(variances), jnp.nan),
    jnp.where(noisy, 1, pooled),
  )


def _fit(values: Array, counts: Array, mask: Array, weights: Array) -> _Fit:
  # Differences of the integers come first, so large counts lose no digits.
  least = jnp.min(jnp.where(mask, counts, jnp.iinfo(counts.dtype).max))
  most = jnp.max(jnp.where(mask, counts, jnp.iinfo(counts.dtype).min))
  above = jnp.where(mask, counts - least, 0).astype(values.dtype)
  middle = jnp.sum(above) / jnp.maximum(jnp.sum(mask), 1)
  spread = jnp.sqrt(
    jnp.sum(jnp.where(mask, above - middle, 0) ** 2) / jnp.maximum(jnp.sum(mask), 1)
  )
  u = jnp.where(mask, above - middle, 0) / spread
  design = jnp.stack([jnp.ones_like(u), u, u**2])
  lengths = jnp.sqrt(weights)
  root, basis = _triangular_root(design * lengths[None])
  solution = _numerics.product(root, _numerics.product(basis, values * lengths))
  steps = jnp.array(_PLACES, values.dtype) * (most - least).astype(values.dtype)
  zero, unit = jnp.zeros_like(spread), jnp.ones_like(spread)
  m = (middle + least.astype(values.dtype)) / spread
  turn = jnp.array(
    [[unit, -m, m**2], [zero, 1 / spread, -2 * m / spread], [zero, zero, 1 / spread**2]]
  )
  at = (steps - middle) / spread
  rows = jnp.stack([jnp.zeros_like(at), jnp.ones_like(at), 2 * at], axis=1) / spread
  return _Fit(
    solution,
    root,
    values - _numerics.product(solution, design),
    turn,
    steps + least.astype(values.dtype),
    rows,
  )


def _triangular_root(columns: Array) -> tuple[Array, Array]:
  """R^{-1} and Q' of three columns, given as rows: columns' = Q R.

  Written by hand: orthogonalising twice is as accurate as Householder's method, and
  libraries are slow for a batch of such small factorisations.
  """
  basis, upper = [], jnp.zeros((3, 3), columns.dtype)
  for number in range(3):
    vector = columns[number]
    for _ in range(2):
      for place, unit in enumerate(basis):
        share = jnp.sum(unit * vector)
        upper = upper.at[place, number].add(share)
        vector -= share * unit
    length = jnp.sqrt(jnp.sum(vector**2))
    upper = upper.at[number, number].set(length)
    basis.append(vector / length)
  (a, b, c), (_, d, e), (_, _, f) = upper
  zero = jnp.zeros_like(a)
  inverse = jnp.array(
    [
      [1 / a, -b / (a * d), (b * e - c * d) / (a * d * f)],
      [zero, 1 / d, -e / (d * f)],
      [zero, zero, 1 / f],
    ]
  )
  return inverse, jnp.stack(basis)
