"""Figures of norm and count, beside what NCH prints, and its statements as claims."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from experiments.counting import theory
from experiments.counting.measures import LEVEL, POINTS
from experiments.frame.study import Claim, NotMeasured, Table
from experiments.published import figures

SUPERVISED, UNBIASED = "supervised", "supervised, no biases"
SIMCLR, RANDOM = "SimCLR", "random weights"
ON_GRIDS, IMAGE = "trained on grids", "the image itself"
NO_FILL = "photographs"
MODES = ("mixed", "single")
RHO = "correlation of norm and count"
_PRIVATE = ("bound", "strict bound")

Measures = Mapping[str, Mapping[str, float]]
"""By network and measure."""


def printed(config: Any, name: str, title: str) -> Mapping[str, float]:
  """What the paper has for a row, if its networks are alike; of VOC for all years."""
  alike = config.need_weights and (name != "voc" or config.voc_folder)
  return figures("norm_count").get(title, {}) if alike else {}


def add(table: Table, config: Any, name: str, fill: str, found: Measures) -> None:
  """Adds a seed's figures of one set and fill."""
  for network, measures in found.items():
    title = f"{name}, {network}, {fill}"
    paper = printed(config, name, title)
    for measure, value in measures.items():
      listed = not measure.startswith(_PRIVATE)
      table.add(title, measure, value, listed=listed, paper=paper.get(measure))


def add_verdicts(table: Table, config: Any, name: str) -> None:
  """Adds at how many points slopes rise, and trained less random weights."""
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
      own, control = f"{name}, {network}, {fill}", f"{name}, {RANDOM}, {fill}"
      if {own, control} <= {*table.variants(measure)}:
        gain = table.gain(measure, own, over=control)
        table.add(f"{name}, {network} - {RANDOM}, {fill}", measure, gain)


def verdict(passes: np.ndarray) -> str:
  """Of [points, seeds]: "increasing", or the points that pass and with how many."""
  seeds = passes.shape[1]
  if passes.all():
    return "increasing"
  each = [
    point if own.all() else f"{point} ({own.sum()} of {seeds} seeds)"
    for point, own in zip(POINTS, passes, strict=True)
    if own.any()
  ]
  return f"at {', '.join(each)}" if each else "at none"


Difference = Callable[[Table, str], np.ndarray]
"""Of a network and a fill."""


def _more(measure: str, offset: float = 0) -> Difference:
  return lambda t, title: t.values(measure, title) - offset


def _apart(shot: str) -> Difference:
  """Lower end with l2 less the upper end without."""

  def difference(table: Table, title: str) -> np.ndarray:
    plain, wide, l2, l2_wide = (
      table.values(measure, title)
      for measure in (
        shot,
        f"{shot}, half-width",
        f"{shot}, l2",
        f"{shot}, l2, half-width",
      )
    )
    return (l2 - l2_wide) - plain - wide

  return difference


def _least(
  name: str,
  networks: Sequence[str],
  fills: Sequence[str],
  differences: Sequence[Difference],
) -> Callable[[Table], np.ndarray]:
  """The least of what was measured, for each seed."""

  def least(table: Table) -> np.ndarray:
    found = []
    for title in [f"{name}, {x}, {fill}" for x in networks for fill in fills]:
      for difference in differences:
        try:
          found.append(difference(table, title))
        except NotMeasured:
          continue
    if not found:
      raise NotMeasured(f"nothing of {name} was measured")
    return np.min(found, axis=0)

  return least


def _bounds(measure: str) -> list[Difference]:
  """That a bound is above 0, of both ways to count."""
  return [_more(f"{measure}, {mode}") for mode in MODES]


def _statements(
  nets: Sequence[str], still: Sequence[str], noisy: Sequence[str]
) -> dict[str, tuple[str, Sequence[str], Sequence[str], Sequence[Difference]]]:
  """Text, networks, fills and differences."""
  mean = [_more("nearest mean, change [points]")]
  one, two = "cosine of one class, two counts", "cosine of two classes, one count"
  shots = [f"{k}-shot" for k in (1, 5)]
  fills, networks = " and ".join(still), " and ".join(nets)
  return {
    "N1": (
      f"{networks}, {fills}: all three slopes > 0 with p < 0.05 / 3, mixed and single "
      "(least lower bound)",
      nets,
      still,
      _bounds("bound"),
    ),
    "N2": (
      f"{networks}, random fill: the middle slope > 0 with p < 0.05 / 3 for every seed",
      nets,
      noisy,
      _bounds("bound at 1/2"),
    ),
    "N3": (
      f"{networks}, {fills}: normalising raises the nearest mean's accuracy [points]",
      nets,
      still,
      mean,
    ),
    "N4": (
      f"{networks}, random fill: normalising does not lower it [points]",
      nets,
      noisy,
      mean,
    ),
    "N5-accuracy": (
      f"{networks}, {fills}, few-shot: accuracy with l2 > without, intervals apart",
      nets,
      still,
      [_apart(shot) for shot in shots],
    ),
    "N5-correlation": (
      f"{networks}, {fills}: mean correlation of norm and count in episodes > 0.5",
      nets,
      still,
      [_more(f"{shot}, {RHO}", 0.5) for shot in shots],
    ),
    "N6": (
      f"{networks}, {fills}: cosine of one class with two counts > of two classes with "
      "one count",
      nets,
      still,
      [lambda t, title: t.values(one, title) - t.values(two, title)],
    ),
    "N7": (
      "control: with zeros, random weights reach a correlation of norm and count > 0.9",
      [RANDOM],
      ["zeros"],
      [_more(f"{RHO}, mixed", 0.9)],
    ),
    "T1-simclr": (
      f"SimCLR, {fills}: all three slopes > 0 with p < .001, mixed and single",
      [SIMCLR],
      still,
      _bounds("strict bound"),
    ),
  }


def _of_set(name: str, titles: Sequence[str]) -> list[Claim]:
  """Of the networks and fills that there are: "set, network, fill"."""
  parts = [title.removeprefix(f"{name}, ").rpartition(", ") for title in titles]
  networks, there = {part[0] for part in parts}, {part[2] for part in parts}
  nets = [x for x in (SUPERVISED, UNBIASED) if x in networks]
  still, noisy = (
    [x for x in own if x in there] for own in (("zeros", "blur"), ("random",))
  )
  suffix = "" if name == "digits" else f"-{name}"
  made = {
    key: Claim(
      f"{key}{suffix}",
      f"{name}: {text}",
      _least(name, own, fills, differences),
      every_seed=key in ("N1", "N2"),
    )
    for key, (text, own, fills, differences) in _statements(nets, still, noisy).items()
    if {*own} & networks and {*fills} & there
  }
  if ON_GRIDS in networks:
    own, other = (f"{name}, {x}, zeros" for x in (SUPERVISED, ON_GRIDS))
    made["N8"] = Claim(
      f"N8{suffix}",
      f"{name}: training on grids lowers the middle slope (zeros, single)",
      lambda t: t.gain("s at 1/2, single", own, over=other),
    )
  return list(made.values())


def claims(config: Any, table: Table) -> list[Claim]:
  """What NCH proves, and the statements of NCH 4 for each set."""
  titles = table.variants(f"{RHO}, mixed")
  made = list(theory.CLAIMS)
  for name in config.sets:
    own = [x for x in titles if x.startswith(f"{name}, ") and " - " not in x]
    made += _of_set(name, own)
  return made
