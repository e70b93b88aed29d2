"""The table of `class_hierarchy`, and the statements of DIST, article IV, about it.

Differences should be positive. They are paired: both sides share the seed, hence the
division of the images, the initial network and the order of the batches. A claim is
made if both sides were trained.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from experiments.frame import frozen, images
from experiments.frame.study import Claim, NotMeasured, Statement, Table
from experiments.hierarchies import measures, training
from experiments.hierarchies.methods import SETTINGS
from experiments.hierarchies.runs import Config
from experiments.published import figures

ACCURACY = "validation top-1"
PROXIES, PROTOTYPES = "mean correlation, proxies", "mean correlation, prototypes"

# Measures in the Spearman tables, as in the article's supplement.
MEASURES = (
  "top-1", "top-5", "AHD@1", "AHD@5", "HP@5", "HS@50", "HS@250", "AHS@250",
  PROXIES, PROTOTYPES,
)  # fmt: skip
BY_SEED = f"rank correlation with {PROXIES}, of each seed"
# Figures by setting and seed.
Runs = Mapping[str, Mapping[int, Mapping[str, float]]]
FIRST, LAST = " after the first epoch", " after the last epoch"
APART = "epochs between the best accuracy and the highest correlation of prototypes"
EARLY = 0.3  # a correlation that is already high; the article has about 0.4
KEEPS = 0.02  # a difference of top-1 below this counts as none
NORMFACE, PROXYDR = "normface", "proxydr"
# Measures, with the sign of the better direction.
BETTER = {"AHD@5": -1, "HP@5": 1, "HS@250": 1}


def spearman(rows: Sequence[Mapping[str, float]], first: str) -> dict[str, float]:
  """Rank correlations of a measure with every other one, over runs."""
  from scipy import stats

  columns = {name: [row[name] for row in rows] for name in MEASURES}
  pairs = {name: (columns[first], columns[name]) for name in MEASURES if name != first}
  return {name: float(stats.spearmanr(*pair)[0]) for name, pair in pairs.items()}  # pyright: ignore[reportArgumentType]


def add_runs(
  table: Table,
  runs: Runs,
  controls: Sequence[Mapping[str, Mapping[str, float]]],
  related: training.Relations,
  config: Config,
) -> None:
  """Adds trained networks, controls, ceilings, and rank correlations of measures.

  The article's figures are added if the network is the same; those of trained networks
  only if training starts from ImageNet weights, as in the article.
  """
  network, printed = images.SOURCES[config.data].network, figures("dist_hierarchy")
  comparable = config.data if config.network == network else ""
  pretrained = comparable if config.weights else ""
  for name, of_seed in runs.items():
    for values in of_seed.values():
      table.add_all(title(name), values)
  for untrained in controls:
    for name, values in untrained.items():
      paper = printed["controls"].get(comparable, {}).get(name)
      table.add_all(name, values, {} if paper is None else {PROTOTYPES: paper})
  table.add_all("the tree", measures.ceilings(related))
  learned = [of_seed for name, of_seed in runs.items() if name != "softmax"]
  rows = [values for of_seed in learned for values in of_seed.values()]
  for first in (PROXIES, "top-1", "top-5") if len(rows) > 3 else ():
    published = printed["spearman"].get(pretrained, {}).get(first, {})
    table.add_all(f"rank correlation with {first}", spearman(rows, first), published)
  for seed in learned[0] if len(learned) > 3 else ():
    of_one = spearman([of_seed[seed] for of_seed in learned], PROXIES)
    table.add_all(BY_SEED, of_one, listed=False)


def add_curves(table: Table, curves: Mapping[str, list[training.Curves]]) -> None:
  """Adds the first and last values of ProxyDR's curves (article's figures 9 and 10)."""
  for name in (PROXYDR, f"{PROXYDR}-dynamic"):
    for run in curves.get(name, []):
      for quantity in (ACCURACY, PROXIES, PROTOTYPES):
        for number, place in ((0, FIRST), (-1, LAST)):
          table.add(title(name), quantity + place, run[quantity][number])
      best, highest = (np.argmax(run[x]) for x in (ACCURACY, PROTOTYPES))
      table.add(title(name), APART, abs(best - highest))


def title(name: str) -> str:
  return SETTINGS[name].title


def gain(table: Table, measure: str, name: str, over: str) -> np.ndarray:
  return table.gain(measure, title(name), over=title(over))


def more(measure: str, name: str, over: str) -> Callable[[Table], np.ndarray]:
  """The difference of a claim that one setting has more of a measure than another."""
  return lambda table: gain(table, measure, name, over)


def claims(config: Config, _: Table) -> list[Claim]:
  """Lists all claims; one seed has no interval and cannot decide any of them."""
  undecided = " (one seed: undecided)" if config.seeds == 1 else ""
  by_place: dict[str, list[Statement]] = {
    "": _of_settings(config),
    "DIST IV, figures 9 and 10": _of_curves(),
    "DIST IV, table 2": [
      (id_, f"mean correlation of the prototypes: {name} > random distances",
       lambda t, name=name: t.gain(PROTOTYPES, name, over="random distances"))
      for id_, name in _controls(config).items()
    ],
    "DIST IV, S2": [
      (f"K11-{measure}",
       f"over the settings, the proxies' mean correlation and {measure} have a {word} "
       "rank correlation",
       lambda t, m=measure, sign=sign: sign * t.values(m, BY_SEED))
      for measure, sign, word in (
        ("AHD@5", -1, "negative"), ("HP@5", 1, "positive"), ("top-5", -1, "negative")
      )
    ],
  }  # fmt: skip
  return [
    Claim(id_, text + undecided, difference, place)
    for place, rows in by_place.items()
    for id_, text, difference in rows
  ]


def _of_settings(config: Config) -> list[Statement]:
  """Claims of one setting over another, in the order of the article."""
  pair = PROXYDR, NORMFACE
  averaged = [(f"{x}{y}", f"{x}-ema{y}") for x in pair[::-1] for y in ("", "-dynamic")]
  return [
    ("K2", "mean correlation of the proxies: ProxyDR > NormFace, both standard",
     more(PROXIES, *pair)),
    *_of_trees(NORMFACE),
    *_of_trees(PROXYDR),
    ("K6", f"top-1: NormFace and ProxyDR differ by less than {KEEPS}, both standard",
     lambda t: KEEPS - abs(gain(t, "top-1", *pair))),
    *_extremes(config),
    # K2 and K8, where the article's text names no exception.
    ("K2-dynamic", "mean correlation of the proxies: ProxyDR > NormFace, both dynamic",
     more(PROXIES, "proxydr-dynamic", "normface-dynamic")),
    *((f"K8-{measure}".removesuffix("-AHD@5"),
       f"{measure}: ProxyDR {'<' if sign < 0 else '>'} NormFace, both standard",
       more(measure, *pair[::sign]))
      for measure, sign in BETTER.items()),
    *((f"K12-{better}", f"top-5: {title(better)} < {title(other)}",
       more("top-5", other, better))
      for other, better in averaged),
    *((f"K13-{loss}",
       f"top-5 of {title(loss)} with MDS proxies: dynamic < with a fixed scale",
       more("top-5", f"{loss}-mds", f"{loss}-mds-dynamic"))
      for loss in pair[::-1]),
    ("K9", "mean correlation of the proxies of ProxyDR: dynamic > standard",
     more(PROXIES, "proxydr-dynamic", PROXYDR)),
  ]  # fmt: skip


def _controls(config: Config) -> dict[str, str]:
  """Controls of the claims; a frozen network is pretrained and replaces the pixels."""
  if config.network == frozen.NETWORK:
    return {"K10-pretrained": "pretrained features"}
  return {
    "K10": "random weights",
    "K10-images": "random weights, images alone",
    "K10b": "normalised pixels",
  }


def _of_trees(loss: str) -> list[Statement]:
  """K3 to K6c: proxies laid out to follow the tree compared with learned proxies."""
  tree, name = f"{loss}-mds", title(loss)
  return [
    *((f"K3-{measure}-{loss}",
       f"{measure} of {name}: better with MDS proxies than standard",
       more(measure, *(tree, loss)[::sign]))
      for measure, sign in BETTER.items()),
    (f"K4-{loss}", f"top-5 of {name}: lower with MDS proxies than standard",
     more("top-5", loss, tree)),
    (f"K5-{loss}",
     f"mean correlation of the prototypes of {name}: MDS > standard",
     more(PROTOTYPES, tree, loss)),
    (f"K6c-{loss}", f"top-1 of {name}: with MDS proxies > standard - {KEEPS}",
     lambda t: gain(t, "top-1", tree, loss) + KEEPS),
  ]  # fmt: skip


def _of_curves() -> list[Statement]:
  """K14 to K19: curves of ProxyDR in figures 9 and 10, as the text describes them."""
  names = (PROXYDR, f"{PROXYDR}-dynamic")

  def rise(table: Table, quantity: str, setting: str) -> np.ndarray:
    first, last = (table.values(quantity + at, setting) for at in (FIRST, LAST))
    return last - first

  def of_one(name: str, x: str) -> list[Statement]:
    return [
      (f"K14-{name}",
       f"mean correlation of the prototypes of {x} after one epoch >= {EARLY}",
       lambda t: t.values(PROTOTYPES + FIRST, x) - EARLY),
      (f"K15-{name}",
       f"after one epoch: correlation of the prototypes of {x} > of its proxies",
       lambda t: t.values(PROTOTYPES + FIRST, x) - t.values(PROXIES + FIRST, x)),
      (f"K16-{name}",
       f"the proxies of {x} gain more correlation than the prototypes",
       lambda t: rise(t, PROXIES, x) - rise(t, PROTOTYPES, x)),
      (f"K17-{name}",
       f"{x}: best accuracy and highest correlation are at least an epoch apart",
       lambda t: t.values(APART, x) - 0.5),
    ]  # fmt: skip

  return [
    ("K18",
     f"top-1 in validation, last epoch: dynamic and standard differ by < {KEEPS}",
     lambda t: KEEPS - abs(gain(t, ACCURACY + LAST, *names[::-1]))),
    *(row for name in names for row in of_one(name, title(name))),
    ("K19", "correlation of the prototypes of ProxyDR dynamic: last epoch > first",
     lambda t: rise(t, PROTOTYPES, title(names[1]))),
  ]  # fmt: skip


def _extremes(config: Config) -> list[Statement]:
  """Claims of one setting against all the others: K6b and K7."""

  def least(table: Table, measure: str, setting: str, sign: int) -> np.ndarray:
    rivals = [x for x in config.settings if x not in ("softmax", setting)]
    if not {*rivals} - {"corr"}:
      raise NotMeasured("no other setting was trained")
    return np.min([sign * gain(table, measure, x, setting) for x in rivals], axis=0)

  return [
    (f"{id_}-{measure}",
     f"{measure}: {title(setting)} has the {word} of {among}",
     lambda t, x=setting, m=measure, sign=sign: least(t, m, x, sign))
    for setting, id_, among, measures in (
      ("softmax", "K6b", "all settings", ("HS@50", "HS@250", "AHS@250")),
      ("corr", "K7", "those of metric learning", ("top-5", "AHD@5", "HP@5")),
    )
    for measure in measures
    for sign, word in ((-1, "highest") if measure == "HP@5" else (1, "lowest"),)
  ]  # fmt: skip
