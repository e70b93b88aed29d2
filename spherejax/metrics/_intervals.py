"""Confidence intervals of means over seeds, on the host in double precision."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Real

from spherejax import _checks


class Interval(NamedTuple):
  """Mean and the interval around it, as plain numbers ready for JSON.

  Attributes:
    mean: of the values.
    low: lower end, -inf for one value.
    high: upper end, inf for one value.
    n: number of values.
  """

  mean: float
  low: float
  high: float
  n: int


def mean_interval(
  values: Real[ArrayLike, " seeds"] | Sequence[float | int], *, confidence: float = 0.95
) -> Interval:
  """Student's interval of the mean of independent runs.

      mean +- t_{(1 + confidence) / 2, n - 1} s / sqrt(n),
      s^2 = sum_i (values_i - mean)^2 / (n - 1)

  Args:
    values: [seeds], one number for each run, concrete.
    confidence: probability that the interval covers the mean of normally distributed
      numbers, in (0, 1).

  Returns:
    Interval. A single value tells nothing about the spread: its interval is (-inf,
    inf). A NaN among the values makes mean and ends NaN, so that no comparison holds.

  Raises:
    TypeError: values not numbers, or confidence not a static number.
    ValueError: values do not have exactly one axis, are empty, or confidence outside
      (0, 1).

  Differentiable in: nothing (runs on the host).

  Source: Student 1908, "The probable error of a mean".

  Example:
    >>> mean, low, high, n = spherejax.metrics.mean_interval([0.70, 0.72, 0.74])
    >>> f"{mean:.2f} [{low:.2f}, {high:.2f}] of {n}"
    '0.72 [0.67, 0.77] of 3'
  """
  from scipy import stats

  figures = _figures("values", values)
  _checks.between("confidence", confidence, 0, 1, low_open=True, high_open=True)
  confidence = _checks.static("confidence", confidence)
  n = len(figures)
  mean = float(figures.mean())
  if n == 1:
    half = math.nan if math.isnan(mean) else math.inf
  else:
    quantile = float(stats.t.ppf((1 + confidence) / 2, n - 1))
    half = quantile * float(figures.std(ddof=1)) / math.sqrt(n)
  return Interval(mean, mean - half, mean + half, n)


def paired_interval(
  first: Real[ArrayLike, " seeds"] | Sequence[float | int],
  second: Real[ArrayLike, " seeds"] | Sequence[float | int],
  *,
  confidence: float = 0.95,
) -> Interval:
  """Student's interval of the mean difference of paired runs, first minus second.

      mean_interval(first - second)

  Runs are paired when run i of both shares its seed: data, order, initialisation.
  The claim first > second is supported when `low > 0`.

  Args:
    first: [seeds], results of one method.
    second: [seeds], results of the other, in the same order.
    confidence: as in `mean_interval`.

  Returns:
    Interval of the difference.

  Raises:
    TypeError: first or second not numbers, or confidence not a static number.
    ValueError: shapes differ, or as `mean_interval`.

  Differentiable in: nothing (runs on the host).

  Source: Student 1908, "The probable error of a mean" (its paired example).

  Example:
    >>> gain = spherejax.metrics.paired_interval([0.7, 0.8, 0.9], [0.6, 0.69, 0.81])
    >>> gain.low > 0
    True
  """
  first, second = _figures("first", first), _figures("second", second)
  _checks.shape("second", second, first.shape, "first")
  return mean_interval(first - second, confidence=confidence)


def _figures(name: str, values: ArrayLike | Sequence[float | int]) -> np.ndarray:
  figures = _checks.numbers_of(name, values)
  _checks.expect(name, figures, rank=1)
  if not figures.size:
    raise ValueError(f"{name} must hold at least one figure, got shape {figures.shape}")
  return figures
