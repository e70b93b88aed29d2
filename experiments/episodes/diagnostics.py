"""What updates did over all checkpoints: means, shares, and tests of both losses."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy import stats

# Measures of an update, and the side of 1 on which each is proper.
PROPER = {
  "con_alpha": -1,
  "div_alpha": 1,
  "con_div": -1,
  "con_alpha by features": -1,
  "div_alpha by features": 1,
}
RATIOS = ("norm_ratio", "norm_ratio by features", *PROPER)

Series = Mapping[str, np.ndarray]
"""By measure [losses, seeds, checkpoints]; NaN where undefined."""


def mean_defined(values: np.ndarray) -> np.ndarray:
  """Over the last axis, of what is not NaN; NaN of nothing."""
  counts = np.sum(~np.isnan(values), axis=-1)
  sums = np.nansum(values, axis=-1)
  return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def geometric_mean(values: np.ndarray) -> np.ndarray:
  """Over the last axis, of what is defined; NaN of nothing."""
  logs = np.log(np.where(np.isfinite(values) & (values > 0), values, np.nan))
  return np.exp(mean_defined(logs))


def proper(series: Series, measure: str) -> np.ndarray:
  """[losses, seeds, checkpoints]: on the right side of 1; NaN where undefined."""
  values = series[measure]
  right = PROPER[measure] * (values - 1) > 0
  return np.where(np.isfinite(values), right, np.nan)


def shares(series: Series) -> dict[str, np.ndarray]:
  """[losses, seeds] by measure, of the checkpoints that are proper."""
  return {
    f"{measure} proper": mean_defined(proper(series, measure))
    for measure in PROPER
    if measure in series
  }


def ranks(first: np.ndarray, second: np.ndarray, alternative: str) -> float:
  """Mann-Whitney's p of two sets of values, those that are defined; NaN of nothing."""
  own = [x[np.isfinite(x)] for x in (first, second)]
  if not all(map(len, own)):
    return np.nan
  found: Any = stats.mannwhitneyu(own[0], own[1], alternative=alternative)
  return float(found.pvalue)


def fisher(first: np.ndarray, second: np.ndarray) -> float:
  """Fisher's exact p, two-sided, that two sets of 0, 1 and NaN are of one share."""
  own = [x[~np.isnan(x)] for x in (first, second)]
  if not all(map(len, own)):
    return np.nan
  found: Any = stats.fisher_exact([[int(np.sum(x == y)) for y in (0, 1)] for x in own])
  return float(found.pvalue)


def tests(series: Series) -> dict[str, np.ndarray]:
  """Of each seed, the two-sided tests of the article's Tables 3 to 10."""

  def of_seeds(test: Callable[..., float], values: np.ndarray) -> np.ndarray:
    return np.array([test(*pair) for pair in zip(*values, strict=True)])

  def both_sides(first: np.ndarray, second: np.ndarray) -> float:
    return ranks(first, second, "two-sided")

  found = {
    f"Mann-Whitney p, {measure}": of_seeds(both_sides, series[measure])
    for measure in RATIOS
    if measure in series
  }
  return found | {
    f"Fisher's p, {measure} proper": of_seeds(fisher, proper(series, measure))
    for measure in PROPER
    if measure in series
  }


def undefined(series: Series) -> dict[str, np.ndarray]:
  """[losses, seeds] by measure: checkpoints that means, shares and tests leave out."""
  return {
    f"checkpoints without {measure}": np.sum(~np.isfinite(series[measure]), axis=-1)
    for measure in RATIOS
    if measure in series
  }
