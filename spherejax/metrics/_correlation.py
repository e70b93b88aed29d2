"""Correlation of a few numbers, with p-values that may be exact."""

import itertools
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Real

from spherejax import _checks

Method = Literal["pearson", "spearman"]

_MOST = 8  # largest sample for which all permutations are tried
_SAME = 1e-12  # correlations that differ by less are equal


class Correlation(NamedTuple):
  """Result of `correlation`, as plain numbers ready for JSON.

  Attributes:
    value: in [-1, 1]; NaN where either side is constant.
    p_value: two-sided.
    n: number of pairs.
  """

  value: float
  p_value: float
  n: int


def correlation(
  first: Real[ArrayLike, " n"] | Sequence[float | int],
  second: Real[ArrayLike, " n"] | Sequence[float | int],
  *,
  method: Method = "pearson",
  exact: bool = False,
) -> Correlation:
  """Pearson's or Spearman's correlation of paired numbers, with its p-value.

      t = r sqrt((n - 2) / (1 - r^2)),    n - 2 degrees of freedom
      exact: share of the n! orders of `second` whose |r| is at least as large

  With five or six pairs the t distribution is far off for ranks: a perfect order of
  five pairs has p = 2/5! = 0.0167, not 0.

  Args:
    first: [n], concrete.
    second: [n], concrete.
    method: "pearson", or "spearman" (Pearson's of average ranks).
    exact: True computes p over all permutations, for at most 8 pairs.

  Returns:
    Correlation(value, p_value, n). p is NaN for fewer than three pairs or where r is
    NaN, and 0 at r = 1 or -1 if not exact.

  Raises:
    TypeError: first or second not numbers, exact not boolean.
    ValueError: shapes differ, an unknown method, or too many pairs for `exact`.

  Differentiable in: nothing (runs on the host, in float64).

  Source: DIST table 5.6, which uses the t distribution throughout.

  Example:
    >>> r = spherejax.metrics.correlation(
    ...   [1, 2, 3, 4, 5], [5, 4, 3, 2, 0], method="spearman", exact=True)
    >>> round(r.value, 4), round(r.p_value, 4)
    (-1.0, 0.0167)
  """
  _checks.flag("exact", exact)
  from scipy import stats

  _checks.one_of("method", method, Method)
  x, y = _checks.numbers_of("first", first), _checks.numbers_of("second", second)
  _checks.expect("first", x, rank=1)
  _checks.shape("second", y, x.shape, "first")
  n = len(x)
  if exact and n > _MOST:
    raise ValueError(f"exact=True takes at most {_MOST} pairs of numbers, got {n}")
  if method == "spearman":
    x, y = stats.rankdata(x), stats.rankdata(y)
  if n:  # relative to one figure first, so that constants become exactly 0
    x, y = x - x[0], y - y[0]
    x, y = x - x.mean(), y - y.mean()
    # The squares of unit-sized numbers neither overflow nor vanish.
    x, y = (z / (np.abs(z).max() or 1.0) for z in (x, y))
  size = np.linalg.norm(x) * np.linalg.norm(y)
  r = float(np.clip(x @ y / size, -1, 1)) if size > 0 else math.nan
  if n < 3 or math.isnan(r):
    return Correlation(r, math.nan, n)
  if exact:
    orders = np.array(list(itertools.permutations(range(n))))
    p = float(np.mean(np.abs(y[orders] @ x) / size >= abs(r) - _SAME))
  elif 1 - abs(r) < _SAME:
    p = 0.0
  else:
    p = float(2 * stats.t.sf(abs(r) * math.sqrt((n - 2) / (1 - r * r)), n - 2))
  return Correlation(r, p, n)
