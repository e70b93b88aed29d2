"""The statements of DIST, article IV, as differences that should be positive.

Differences are paired: both sides have the seed, so the same division of the images,
the same first network and the same order of the batches. A claim is made where both
sides were trained.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from experiments.frame.study import Claim, NotMeasured, Table
from experiments.hierarchies import exact
from experiments.hierarchies.methods import SETTINGS
from experiments.hierarchies.settings import Config
from experiments.hierarchies.tables import BY_SEED
from experiments.published.dist_hierarchy import PROTOTYPES, PROXIES

KEEPS = 0.02  # a difference of top-1 that counts as none
NORMFACE, PROXYDR = "normface", "proxydr"


def title(name: str) -> str:
  """A setting in the table."""
  return SETTINGS[name].title


def gain(table: Table, measure: str, name: str, over: str) -> np.ndarray:
  """By how much a setting is above another one."""
  return table.gain(measure, title(name), over=title(over))


def claims(config: Config, _: Table) -> list[Claim]:
  """All of them; one seed has no interval and decides nothing, whichever its sign."""
  undecided = " (one seed: undecided)" if config.seeds == 1 else ""

  def claim(
    name: str,
    statement: str,
    difference: Callable[[Table], ArrayLike],
    source: str = "",
  ) -> Claim:
    return Claim(name, statement + undecided, difference, source)

  made = [
    claim(
      "K2",
      "mean correlation of the proxies: ProxyDR > NormFace, both standard",
      lambda t: gain(t, PROXIES, PROXYDR, NORMFACE),
    ),
    *(claim(*each) for loss in (NORMFACE, PROXYDR) for each in _of_trees(loss)),
    claim(
      "K6",
      f"top-1: NormFace and ProxyDR differ by less than {KEEPS}, both standard",
      lambda t: KEEPS - abs(gain(t, "top-1", PROXYDR, NORMFACE)),
    ),
    *(claim(*each) for each in _extremes(config)),
    claim(
      "K8",
      "AHD@5: ProxyDR < NormFace, both standard",
      lambda t: gain(t, "AHD@5", NORMFACE, PROXYDR),
    ),
    claim(
      "K9",
      "mean correlation of the proxies of ProxyDR: dynamic > standard",
      lambda t: gain(t, PROXIES, "proxydr-dynamic", PROXYDR),
    ),
  ]
  controls = (
    ("K10", "random weights"),
    ("K10-images", "random weights, images alone"),
    ("K10b", "normalised pixels"),
  )
  made += [
    claim(
      id_,
      f"mean correlation of the prototypes: {name} > random distances",
      lambda t, name=name: t.gain(PROTOTYPES, name, over="random distances"),
      "DIST IV, table 2",
    )
    for id_, name in controls
  ]
  made += [
    claim(
      f"K11-{measure}",
      f"over the settings, the proxies' mean correlation and {measure} have a "
      f"{'positive' if sign > 0 else 'negative'} rank correlation",
      lambda t, measure=measure, sign=sign: sign * t.values(measure, BY_SEED),
      "DIST IV, S2",
    )
    for measure, sign in (("AHD@5", -1), ("HP@5", 1), ("top-5", -1))
  ]
  return [*exact.CLAIMS, *made]


Parts = tuple[str, str, Callable[[Table], ArrayLike]]
"""Id, statement and difference of a claim."""


def _of_trees(loss: str) -> list[Parts]:
  """K3 to K6c: proxies laid out after the tree beside those that are learned."""
  tree, name = f"{loss}-mds", title(loss)
  better = [
    (
      f"K3-{measure}-{loss}",
      f"{measure} of {name}: better with MDS proxies than standard",
      lambda t, m=measure, sign=sign: sign * gain(t, m, tree, loss),
    )
    for measure, sign in (("AHD@5", -1), ("HP@5", 1), ("HS@250", 1))
  ]
  return [
    *better,
    (
      f"K4-{loss}",
      f"top-5 of {name}: lower with MDS proxies than standard",
      lambda t: gain(t, "top-5", loss, tree),
    ),
    (
      f"K5-{loss}",
      f"mean correlation of the prototypes of {name}: MDS > standard",
      lambda t: gain(t, PROTOTYPES, tree, loss),
    ),
    (
      f"K6c-{loss}",
      f"top-1 of {name}: with MDS proxies > standard - {KEEPS}",
      lambda t: gain(t, "top-1", tree, loss) + KEEPS,
    ),
  ]


def _extremes(config: Config) -> list[Parts]:
  """Claims of one setting against all the others: K6b and K7."""
  others = [name for name in config.settings if name not in ("softmax", "corr")]

  def least(table: Table, measure: str, own: str, sign: int) -> np.ndarray:
    rivals = [x for x in config.settings if x in others or x == "corr" != own]
    if not others:
      raise NotMeasured("no other setting was trained")
    return np.min([sign * gain(table, measure, x, own) for x in rivals], axis=0)

  return [
    (
      f"{id_}-{measure}",
      f"{measure}: {title(own)} has the {word} of {among}",
      lambda t, own=own, measure=measure, sign=sign: least(t, measure, own, sign),
    )
    for own, id_, among, measures in (
      ("softmax", "K6b", "all settings", ("HS@50", "HS@250", "AHS@250")),
      ("corr", "K7", "those of metric learning", ("top-5", "AHD@5", "HP@5")),
    )
    for measure in measures
    for sign, word in ((-1, "highest") if measure == "HP@5" else (1, "lowest"),)
  ]
