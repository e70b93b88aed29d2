"""Measures of norm and count beside those of NCH, and its statements as claims."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from experiments.counting.measures import LEVEL, POINTS
from experiments.frame.study import Claim, Table
from experiments.published import figures

SUPERVISED, UNBIASED = "supervised", "supervised, no biases"
SIMCLR, RANDOM = "SimCLR", "random weights"
ON_GRIDS, IMAGE = "trained on grids", "the image itself"
NO_FILL = "photographs"
MODES = ("mixed", "single")
RHO = "correlation of norm and count"
Measures = Mapping[str, Mapping[str, float]]
"""Values by network and measure."""


def printed(config: Any, name: str, title: str) -> Mapping[str, float]:
  """Published figures of a row, if networks are alike and VOC comes from a folder."""
  alike = config.need_weights and (name != "voc" or config.voc_folder)
  return figures("norm_count").get(title, {}) if alike else {}


def add(table: Table, config: Any, name: str, fill: str, by_network: Measures) -> None:
  """Adds a seed's figures of one set and fill."""
  for network, measures in by_network.items():
    title = f"{name}, {network}, {fill}"
    table.add_all(title, measures, printed(config, name, title))


def add_verdicts(table: Table, config: Any, name: str) -> None:
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


def _of_row(config: Any, name: str, network: str, fill: str) -> Iterator[Claim]:
  """Claims of NCH 4 about one set, network and fill, if the paper trains it."""
  title = f"{name}, {network}, {fill}"

  def claim(
    key: str, text: str, *differences: tuple[str, float | str], place: str
  ) -> Claim:
    """Claims that all measures are above a number, or another measure, by seed."""

    def least(t: Table) -> np.ndarray:
      return np.min(
        [
          t.values(measure, title)
          - (t.values(reference, title) if isinstance(reference, str) else reference)
          for measure, reference in differences
        ],
        axis=0,
      )

    return Claim(f"{key}-{_id(title)}", f"{title}: {text}", least, f"NCH {place}")

  if network in (RANDOM, ON_GRIDS, IMAGE):
    if (network, fill) == (RANDOM, "zeros"):
      text = "control: correlation of norm and count > 0.9"
      yield claim("N7", text, (f"{RHO}, mixed", 0.9), place="control")
    return
  if fill == "random":
    yield claim(
      "N2", "the middle slope > 0 with p < 0.05 / 3, mixed and single",
      *((f"bound at 1/2, {mode}", 0.0) for mode in MODES), place="Table 1",
    )  # fmt: skip
  else:
    yield claim(
      "N1", "all three slopes > 0 with p < 0.05 / 3, mixed and single",
      *((f"bound, {mode}", 0.0) for mode in MODES), place="Table 1",
    )  # fmt: skip
  for key, classifier in (("N3", "nearest mean"), ("N4", "logistic regression")):
    text = f"normalising raises the accuracy of {classifier} [points]"
    yield claim(key, text, (f"{classifier}, change [points]", 0.0), place="Table 2")
  if fill == "random" or network == SIMCLR:
    return
  yield claim(
    "N5-accuracy", "few-shot accuracy with l2 > without",
    *((f"{shots}-shot, l2", f"{shots}-shot") for shots in config.shots),
    place="Table 3",
  )  # fmt: skip
  # The paper has 0.04 and 0.09 for photographs, 0.2 to 0.95 for grids.
  least = 0.0 if fill == NO_FILL else 0.5
  yield claim(
    "N5-correlation", f"mean correlation of norm and count in episodes > {least:g}",
    *((f"{shots}-shot, {RHO}", least) for shots in config.shots), place="Table 3",
  )  # fmt: skip
  yield claim(
    "N6", "cosine of one class with two counts > of two classes with one count",
    ("cosine of one class, two counts", "cosine of two classes, one count"),
    place="Result 1",
  )  # fmt: skip


def _id(title: str) -> str:
  """Joins the parts of a title for an id."""
  return "-".join(part.replace(" ", "_") for part in title.split(", "))


def claims(config: Any, table: Table) -> list[Claim]:
  """Statements of NCH 4 for each set, network and fill in the table."""
  statements = []
  for title in table.variants(f"{RHO}, mixed"):
    if " - " in title:
      continue
    rest, _, fill = title.rpartition(", ")
    name, _, network = rest.partition(", ")
    statements += _of_row(config, name, network, fill)
    if network == ON_GRIDS and fill == "zeros":
      supervised = f"{name}, {SUPERVISED}, {fill}"
      statements.append(
        Claim(
          f"N8-{name}",
          f"{name}: training on grids lowers the middle slope (zeros, single)",
          lambda t, supervised=supervised, other=title: t.gain(
            "s at 1/2, single", supervised, over=other
          ),
        )
      )
  return statements
