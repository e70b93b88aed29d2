"""A study: its measures, the claims about them, and the command that runs it."""

import dataclasses
import pathlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from experiments.frame import command, pictures, results, settings

Config = TypeVar("Config", bound=settings.Settings)


class NotMeasured(LookupError):
  """Raised for a figure that these settings do not give."""


class Table:
  """Figures by variant and measure, one value per seed, in the order of addition."""

  def __init__(self) -> None:
    self._figures: dict[tuple[str, str], list[float]] = {}
    self._gains: list[tuple[str, str, str, float | None, str]] = []
    self._unlisted: set[tuple[str, str]] = set()
    self._extras: dict[tuple[str, str], results.Entry] = {}

  def add(
    self,
    variant: str,
    measure: str,
    values: ArrayLike,
    *,
    listed: bool = True,
    paper: float | None = None,
    note: str = "",
  ) -> None:
    """Appends values of one or more seeds; unlisted values serve only the claims."""
    at = variant, measure
    self._figures.setdefault(at, []).extend(map(float, np.atleast_1d(values)))
    self._extras[at] = {"paper": paper} | ({"note": note} if note else {})
    if not listed:
      self._unlisted.add(at)

  def add_all(
    self,
    variant: str,
    by_measure: Mapping[str, ArrayLike],
    printed: Mapping[str, float] = {},
    *,
    listed: bool = True,
    finite: bool = False,
  ) -> None:
    """Appends values by measure, with published ones beside them.

    If `finite`, values with NaN or infinity among them are not listed.
    """
    for measure, values in by_measure.items():
      shown = listed and not (finite and not np.isfinite(values).all())
      self.add(variant, measure, values, listed=shown, paper=printed.get(measure))

  def add_gain(
    self, measure: str, variant: str, *, over: str, paper: float, title: str = ""
  ) -> None:
    """Lists the gain of a variant over another one above all figures."""
    title = title or f"{variant} - {over}"
    self._gains.append((measure, variant, over, paper, title))

  def values(self, measure: str, variant: str) -> np.ndarray:
    """The values of all seeds; raises NotMeasured if these settings give none."""
    try:
      return np.array(self._figures[variant, measure])
    except KeyError:
      raise NotMeasured(f"{measure} of {variant} was not measured") from None

  def gain(self, measure: str, variant: str, *, over: str) -> np.ndarray:
    """The values of a variant less those of another one."""
    return self.values(measure, variant) - self.values(measure, over)

  def variants(self, measure: str) -> list[str]:
    """The variants that have this measure."""
    return [variant for variant, of in self._figures if of == measure]

  def measures(self) -> list[str]:
    """Measures that any variant has."""
    return list(dict.fromkeys(measure for _, measure in self._figures))

  def rows(self) -> list[results.Entry]:
    """The rows of the results: gains, then figures."""
    gains = [
      results.row(title, measure, self.gain(measure, variant, over=other), paper=paper)
      for measure, variant, other, paper, title in self._gains
    ]
    return gains + [
      results.row(*at, values) | self._extras[at]
      for at, values in self._figures.items()
      if at not in self._unlisted
    ]

  @classmethod
  def of_rows(cls, rows: Iterable[results.Entry]) -> "Table":
    """Rebuilds a table from the rows of written results."""
    table = cls()
    for row in rows:
      values = [np.nan if x is None else x for x in row["values"]]
      table.add(row["name"], row["metric"], values)
    return table


Measured = tuple[Table, Callable[[], pictures.Figures] | None]
"""A table, and the function that draws what needs more than the table."""
Difference = Callable[[Table], ArrayLike]
Statement = tuple[str, str, Difference]
"""Id, statement and difference of a claim."""
Placed = tuple[str, str, Difference, str]
"""Id, statement and difference of a claim, and its place in the source."""


@dataclasses.dataclass(frozen=True)
class Claim:
  """A statement about a table, and the differences that are positive where it holds."""

  id: str
  statement: str
  difference: Difference
  source: str = ""
  """Place in the paper; empty: the study's source."""
  every_seed: bool = False

  @classmethod
  def of_rows(
    cls, rows: Iterable[Statement | Placed], source: str = "", *, every_seed=False
  ) -> "list[Claim]":
    """Claims of one source."""
    return [cls(*row[:3], " ".join([source, *row[3:]]), every_seed) for row in rows]


@dataclasses.dataclass(frozen=True)
class Study(Generic[Config]):
  """Study behind one command, ``python -m experiments.<name>``."""

  name: str
  doc: str | None
  """Help text: the docstring of the study's file."""
  source: str
  """Paper and place of most claims."""
  presets: Mapping[str, Config]
  measure: Callable[[Config, pathlib.Path], Measured]
  """Function of settings and output folder."""
  claims: Sequence[Claim] | Callable[[Config, Table], Iterable[Claim]] = ()
  """Claims, or a function if statements depend on settings or figures."""
  charts: Callable[[Config, Table], pictures.Figures] = lambda *_: {}
  """Function of settings and table to plots of lines, which need only the results."""
  resolved: Callable[[Config], Config] = lambda config: config
  """Function that fills in open settings."""
  options: tuple[str, ...] = ()
  """Settings that are options of the command line; empty: all."""
  unused: Callable[[Config], settings.Unused] = lambda _: {}
  """Ineffective settings that no limit declares, by the reason."""
  short: bool = False
  """Whether compiling takes as long as training."""
  summary: results.Summary | None = None
  """Function that prints the result; None prints all tables."""
  others: Mapping[type, "Study"] = dataclasses.field(default_factory=dict)
  """Studies of settings of other types."""

  def of(self, config: settings.Settings) -> "Study":
    """The study of settings of this type; this one, unless `others` has it."""
    return self.others.get(type(config), self)

  def claimed(self, table: Table, config: Config) -> list[results.Entry]:
    """The claims about what was measured, with their verdicts."""
    claims = self.of(config).claims
    claims = claims(config, table) if callable(claims) else claims
    verdicts = []
    for claim in claims:
      try:
        values = np.atleast_1d(claim.difference(table))
      except NotMeasured:
        continue
      verdicts.append(
        results.claim(
          claim.id,
          claim.statement,
          values,
          paper=claim.source or self.source,
          every_seed=claim.every_seed,
        )
      )
    return verdicts

  def run(
    self, config: Config, output: pathlib.Path, preset: str = "cpu"
  ) -> results.Entry:
    """Measures, claims and draws; returns the whole result."""
    start, config, study = time.perf_counter(), self.resolved(config), self.of(config)
    table, draw = study.measure(config, output)
    files = pictures.save(study.charts(config, table), output, ".svg")
    files += pictures.save(draw() if draw else {}, output)
    return results.result(
      experiment=self.name,
      preset=preset,
      config=config,
      options=study.options,
      seconds=time.perf_counter() - start,
      rows=table.rows(),
      claims=self.claimed(table, config),
      pictures=files,
    )

  def main(self) -> None:
    preset, config, output = command.parse(
      self.presets,
      name=self.name,
      doc=self.doc,
      short=self.short,
      options=lambda config: self.of(config).options,
      unused=lambda config: self.of(config).unused(config),
      resolved=self.resolved,
    )
    results.write(self.run(config, output, preset), output, self.summary)
