"""The statements of DIST, article IV, as differences that should be positive.

Differences are paired: both sides have the seed, so the same division of the images,
the same first network and the same order of the batches. A claim is made where both
sides were trained.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from experiments.frame import results
from experiments.hierarchies.methods import SETTINGS
from experiments.published.dist_hierarchy import PROTOTYPES, PROXIES

PAPER = "DIST IV"
KEEPS = 0.02  # a difference of top-1 that counts as none
# Measures in the Spearman tables, as in the article's supplement.
MEASURES = (
  "top-1", "top-5", "AHD@1", "AHD@5", "HP@5", "HS@50", "HS@250", "AHS@250",
  PROXIES, PROTOTYPES,
)  # fmt: skip

# For each setting, by seed: its figures.
Runs = Mapping[str, Mapping[int, Mapping[str, float]]]


def _paired(
  runs: Runs, names: list[str], difference: Callable[..., float]
) -> list[float]:
  """The difference for every seed that all settings have; none if one is missing."""
  if not all(name in runs for name in names):
    return []
  seeds = sorted(set.intersection(*(set(runs[name]) for name in names)))
  return [difference(*(runs[name][seed] for name in names)) for seed in seeds]


def _claim(
  name: str, statement: str, values: list[float], *, paper: str = PAPER
) -> dict[str, Any]:
  """A claim; one seed has no interval and decides nothing, whichever its sign."""
  if len(values) == 1:
    statement += " (one seed: undecided)"
  return results.claim(name, statement, values, paper=paper)


def claims(runs: Runs) -> list[dict[str, Any]]:
  """Every claim that the trained settings speak to, K2 to K11."""
  found = []

  def add(
    name: str, statement: str, names: list[str], difference: Callable[..., float]
  ) -> None:
    values = _paired(runs, names, difference)
    if values:
      found.append(_claim(name, statement, values))

  pair = ["normface", "proxydr"]
  add(
    "K2",
    "mean correlation of the proxies: ProxyDR > NormFace, both standard",
    pair,
    lambda n, p: p[PROXIES] - n[PROXIES],
  )
  for loss in pair:
    with_tree, title = [loss, f"{loss}-mds"], SETTINGS[loss].title
    for measure, sign in (("AHD@5", -1), ("HP@5", 1), ("HS@250", 1)):
      add(
        f"K3-{measure}-{loss}",
        f"{measure} of {title}: better with MDS proxies than standard",
        with_tree,
        lambda s, t, m=measure, sign=sign: sign * (t[m] - s[m]),
      )
    add(
      f"K4-{loss}",
      f"top-5 of {title}: lower with MDS proxies than standard",
      with_tree,
      lambda s, t: s["top-5"] - t["top-5"],
    )
    add(
      f"K5-{loss}",
      f"mean correlation of the prototypes of {title}: MDS > standard",
      with_tree,
      lambda s, t: t[PROTOTYPES] - s[PROTOTYPES],
    )
    add(
      f"K6c-{loss}",
      f"top-1 of {title}: with MDS proxies > standard - {KEEPS}",
      with_tree,
      lambda s, t: t["top-1"] - s["top-1"] + KEEPS,
    )
  add(
    "K6",
    f"top-1: NormFace and ProxyDR differ by less than {KEEPS}, both standard",
    pair,
    lambda n, p: KEEPS - abs(n["top-1"] - p["top-1"]),
  )
  found += _extremes(runs)
  add(
    "K8",
    "AHD@5: ProxyDR < NormFace, both standard",
    pair,
    lambda n, p: n["AHD@5"] - p["AHD@5"],
  )
  add(
    "K9",
    "mean correlation of the proxies of ProxyDR: dynamic > standard",
    ["proxydr", "proxydr-dynamic"],
    lambda s, d: d[PROXIES] - s[PROXIES],
  )
  return found


def _extremes(runs: Runs) -> list[dict[str, Any]]:
  """Claims of one setting against all the others: K6b and K7."""
  found = []
  others = [name for name in runs if name not in ("softmax", "corr")]
  if not others:
    return found
  for name, id_, measure, sign, word in (
    ("softmax", "K6b", "HS@50", 1, "lowest"),
    ("softmax", "K6b", "HS@250", 1, "lowest"),
    ("softmax", "K6b", "AHS@250", 1, "lowest"),
    ("corr", "K7", "top-5", 1, "lowest"),
    ("corr", "K7", "AHD@5", 1, "lowest"),
    ("corr", "K7", "HP@5", -1, "highest"),
  ):
    rivals = [*others, "corr"] if name == "softmax" and "corr" in runs else others
    values = _paired(
      runs,
      [name, *rivals],
      lambda own, *rest, m=measure, s=sign: min(s * (r[m] - own[m]) for r in rest),
    )
    if values:
      title = SETTINGS[name].title
      among = "all settings" if name == "softmax" else "those of metric learning"
      statement = f"{measure}: {title} has the {word} of {among}"
      found.append(_claim(f"{id_}-{measure}", statement, values))
  return found


def spearman(runs: Runs, seeds: list[int] | None = None) -> dict[str, dict[str, float]]:
  """Rank correlations over all runs but softmax: of three measures with every one."""
  from scipy import stats

  rows = [
    figures
    for name, of_seed in runs.items()
    for seed, figures in of_seed.items()
    if name != "softmax" and (seeds is None or seed in seeds)
  ]
  found = {}
  for first in (PROXIES, "top-1", "top-5"):
    found[first] = {
      second: float(
        stats.spearmanr([row[first] for row in rows], [row[second] for row in rows])[0]  # pyright: ignore[reportArgumentType]
      )
      for second in MEASURES
      if second != first
    }
  return found


def spearman_claims(runs: Runs) -> list[dict[str, Any]]:
  """K11: signs of the correlations with the proxies' mean correlation, by seed."""
  own = {name: of_seed for name, of_seed in runs.items() if name != "softmax"}
  if len(own) < 4:
    return []
  seeds = sorted(set.intersection(*(set(of_seed) for of_seed in own.values())))
  if not seeds:
    return []
  tables = [spearman(own, [seed])[PROXIES] for seed in seeds]
  return [
    _claim(
      f"K11-{measure}",
      f"over the settings, the proxies' mean correlation and {measure} have a "
      f"{'positive' if sign > 0 else 'negative'} rank correlation",
      [sign * table[measure] for table in tables],
      paper=f"{PAPER}, S2",
    )
    for measure, sign in (("AHD@5", -1), ("HP@5", 1), ("top-5", -1))
  ]


def control_claims(
  controls: Mapping[str, Mapping[str, list[float]]],
) -> list[dict[str, Any]]:
  """K10: untrained features and pixels follow the tree more than chance does."""
  found = []
  chance = np.array(controls["random distances"][PROTOTYPES])
  for name, id_ in (
    ("random weights", "K10"),
    ("random weights, images alone", "K10-images"),
    ("normalised pixels", "K10b"),
  ):
    if name in controls:
      found.append(
        _claim(
          id_,
          f"mean correlation of the prototypes: {name} > random distances",
          (np.array(controls[name][PROTOTYPES]) - chance).tolist(),
          paper=f"{PAPER}, table 2",
        )
      )
  return found
