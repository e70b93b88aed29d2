"""Figures printed in DIST, article IV, beside those of the same protocol."""

from experiments.published import figures

PROXIES, PROTOTYPES = "mean correlation, proxies", "mean correlation, prototypes"


def spearman(data: str, first: str, second: str) -> float | None:
  """The printed rank correlation of two measures; None where there is none."""
  printed = figures("dist_hierarchy")["spearman"]
  return printed.get(data, {}).get(first, {}).get(second)


def control(data: str, name: str, metric: str) -> float | None:
  """The printed mean correlation of untrained prototypes."""
  printed = figures("dist_hierarchy")["controls"]
  return printed.get(data, {}).get(name) if metric == PROTOTYPES else None
