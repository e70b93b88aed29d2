"""Measures of norm and count beside those of NCH, and its statements as claims."""

import functools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from experiments.counting.measures import LEVEL, POINTS, Figures
from experiments.counting.settings import Config
from experiments.frame.study import Claim, Table
from experiments.published import figures

SUPERVISED, UNBIASED = "supervised", "supervised, no biases"
SIMCLR, RANDOM = "SimCLR", "random weights"
ON_GRIDS, IMAGE = "trained on grids", "the image itself"
NO_FILL = "photographs"
MODES = ("mixed", "single")
RHO = "correlation of norm and count"


def printed(config: Config, name: str, title: str) -> Mapping[str, float]:
  """Published figures of a row, if networks are alike and VOC comes from a folder."""
  alike = config.need_weights and (name != "voc" or config.voc_folder)
  return figures("norm_count").get(title, {}) if alike else {}


def add(
  table: Table, config: Config, name: str, fill: str, by_network: Mapping[str, Figures]
) -> None:
  """Adds a seed's figures of one set and fill."""
  for network, measures in by_network.items():
    title = f"{name}, {network}, {fill}"
    table.add_all(title, measures, printed(config, name, title))


def add_verdicts(table: Table, config: Config, name: str) -> None:
  """Adds the number of points where slopes rise, and gains over random weights."""
  for mode in MODES:
    tests = [f"p at {point}, {mode}" for point in POINTS]
    for title in table.variants(tests[0]):
      if title.startswith(f"{name}, "):
        passes = np.array([table.values(test, title) for test in tests]) < LEVEL
        rising = f"points at which it rises, {mode}"
        paper = printed(config, name, title).get(rising)
        note = verdict(passes)
        table.add(title, rising, passes.sum(0), paper=paper, note=note)
  measure = f"{RHO}, mixed"
  for network in (SUPERVISED, UNBIASED, SIMCLR, ON_GRIDS):
    for fill in ("zeros", "blur", "random", NO_FILL):
      trained, control = f"{name}, {network}, {fill}", f"{name}, {RANDOM}, {fill}"
      if {trained, control} <= {*table.variants(measure)}:
        gain = table.gain(measure, trained, over=control)
        table.add(f"{name}, {network} - {RANDOM}, {fill}", measure, gain)


def verdict(passes: np.ndarray) -> str:
  """Sums up [points, seeds]: "increasing", or the points that pass, by seeds."""
  seeds = passes.shape[1]
  if passes.all():
    return "increasing"
  names = [
    point if row.all() else f"{point} ({row.sum()} of {seeds} seeds)"
    for point, row in zip(POINTS, passes, strict=True)
    if row.any()
  ]
  return f"at {', '.join(names)}" if names else "at none"


def _of_row(config: Config, name: str, network: str, fill: str) -> Iterator[Claim]:
  """Claims of NCH 4 about one set, network and fill, if the paper trains it."""
  title, shots = f"{name}, {network}, {fill}", [f"{x}-shot" for x in config.shots]
  trained, random = network not in (RANDOM, ON_GRIDS, IMAGE), fill == "random"
  complete = trained and not random and network != SIMCLR
  # The paper has 0.04 and 0.09 for photographs, 0.2 to 0.95 for grids.
  least = 0.0 if fill == NO_FILL else 0.5
  # Whether the paper has it, id, text, place, and measures with what they exceed.
  rows: list[tuple[bool, str, str, str, list[tuple[str, float | str]]]] = [
    ((network, fill) == (RANDOM, "zeros"), "N7",
     "control: correlation of norm and count > 0.9", "control",
     [(f"{RHO}, mixed", 0.9)]),
    (trained and random, "N2",
     "the middle slope > 0 with p < 0.05 / 3, mixed and single", "Table 1",
     [(f"bound at 1/2, {mode}", 0.0) for mode in MODES]),
    (trained and not random, "N1",
     "all three slopes > 0 with p < 0.05 / 3, mixed and single", "Table 1",
     [(f"bound, {mode}", 0.0) for mode in MODES]),
    *((trained, key, f"normalising raises the accuracy of {x} [points]", "Table 2",
       [(f"{x}, change [points]", 0.0)])
      for key, x in (("N3", "nearest mean"), ("N4", "logistic regression"))),
    (complete, "N5-accuracy", "few-shot accuracy with l2 > without", "Table 3",
     [(f"{x}, l2", x) for x in shots]),
    (complete, "N5-correlation",
     f"mean correlation of norm and count in episodes > {least:g}", "Table 3",
     [(f"{x}, {RHO}", least) for x in shots]),
    (complete, "N6",
     "cosine of one class with two counts > of two classes with one count", "Result 1",
     [("cosine of one class, two counts", "cosine of two classes, one count")]),
  ]  # fmt: skip
  ending = title.replace(", ", "-").replace(" ", "_")
  for stated, key, text, place, pairs in rows:
    if stated:
      above = functools.partial(_least, title, pairs)
      yield Claim(f"{key}-{ending}", f"{title}: {text}", above, f"NCH {place}")


def _least(
  title: str, pairs: Sequence[tuple[str, float | str]], table: Table
) -> np.ndarray:
  """Least of a row's measures, each less a number or another measure."""

  def value(x: float | str) -> np.ndarray:
    return table.values(x, title) if isinstance(x, str) else np.array(x)

  return np.min([value(x) - value(y) for x, y in pairs], axis=0)


def claims(config: Config, table: Table) -> Iterator[Claim]:
  """Statements of NCH 4 for each set, network and fill in the table."""
  for title in table.variants(f"{RHO}, mixed"):
    if " - " in title:
      continue
    rest, _, fill = title.rpartition(", ")
    name, _, network = rest.partition(", ")
    yield from _of_row(config, name, network, fill)
    if network == ON_GRIDS and fill == "zeros":
      supervised = f"{name}, {SUPERVISED}, {fill}"
      yield Claim(
        f"N8-{name}",
        f"{name}: training on grids lowers the middle slope (zeros, single)",
        lambda t, a=supervised, b=title: t.gain("s at 1/2, single", a, over=b),
      )
