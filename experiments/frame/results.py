"""Results in one shape: rows with intervals, claims with verdicts, one JSON file."""

import collections
import dataclasses
import importlib.metadata
import json
import os
import pathlib
import platform
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np
import rich.console
import rich.table

import spherejax
from experiments.frame.settings import Settings, flat, option
from spherejax import metrics

VERDICTS = REPRODUCED, CONTRADICTED, UNDECIDED = (
  "reproduced",
  "contradicted",
  "undecided",
)
_MOST_SEEDS = 10_000  # more than anybody would try
LIBRARIES = ("jax", "jaxlib", "flax", "optax", "numpy")
Entry = dict[str, Any]
"""A row, a claim or a whole result, by the names of its JSON."""


def row(
  name: str, metric: str, values: Iterable[float], *, paper: float | None = None
) -> Entry:
  """Row of a table: a value for each seed, with mean and 95 % interval."""
  numbers = [float(value) for value in values]
  interval = metrics.mean_interval(np.array(numbers))
  return {
    "name": name,
    "metric": metric,
    "values": numbers,
    "mean": float(np.mean(numbers)),
    "interval": _ends(interval),
    "paper": paper,
  }


def claim(
  name: str,
  statement: str,
  differences: Iterable[float],
  *,
  paper: str,
  every_seed: bool = False,
) -> Entry:
  """A claim that a difference is positive, with its verdict.

  A claim is reproduced when the 95 % interval of the mean over seeds lies above 0, and
  contradicted when it lies below. A claim about every seed is reproduced when every
  difference is positive, and contradicted when none is. Otherwise the claim is
  undecided; "seeds to decide" is the number at which the interval would exclude 0 if
  mean and deviation stayed as they are. A claim whose difference is undefined (NaN) for
  a seed is undecided, and its statement says so.
  """
  numbers = [float(value) for value in differences]
  undefined = int(np.isnan(numbers).sum())
  if undefined:
    statement += f" (undefined: {undefined} of {len(numbers)} differences)"
  interval = metrics.mean_interval(np.array(numbers))
  holds = all(x > 0 for x in numbers) if every_seed else interval.low > 0
  below = every_seed and all(x <= 0 for x in numbers)
  verdict = CONTRADICTED if below or interval.high < 0 else UNDECIDED
  return {
    "id": name,
    "paper": paper,
    "statement": statement,
    "value": float(np.mean(numbers)),
    "values": numbers,
    "interval": _ends(interval),
    "n": len(numbers),
    "verdict": REPRODUCED if holds else verdict,
    "seeds to decide": None if holds or verdict != UNDECIDED else _deciding(numbers),
  }


def _deciding(values: Sequence[float]) -> int | None:
  """The least number of seeds whose interval excludes 0, at this mean and deviation.

  None if the deviation is unknown, the mean is 0, or it would take too many.
  """
  from scipy import stats  # takes long to import

  deviation = np.std(values, ddof=1) if len(values) > 1 else np.nan
  if not np.isfinite(deviation) or not np.mean(values):
    return None
  numbers = np.arange(2, _MOST_SEEDS + 1)
  half = stats.t.ppf(0.975, numbers - 1) * deviation / np.sqrt(numbers)
  enough = numbers[half < abs(np.mean(values))]
  return int(enough[0]) if enough.size else None


def verdict_text(entry: Entry) -> str:
  """The verdict; if it is open, also the number of seeds that would decide."""
  number = entry["seeds to decide"]
  return entry["verdict"] + (f" ({number} seeds would decide)" if number else "")


def result(
  *,
  experiment: str,
  preset: str,
  config: Settings,
  options: Sequence[str] = (),
  seconds: float,
  rows: list[Entry],
  claims: list[Entry],
  pictures: Sequence[str] = (),
) -> Entry:
  """Returns the whole result of a run, as it is written to `results.json`.

  `options` names the settings that are options; without names, all are.

  Raises ValueError if two claims share an id: no page or note could tell them apart.
  """
  counts = collections.Counter(entry["id"] for entry in claims)
  if repeated := [name for name, count in counts.items() if count > 1]:
    raise ValueError(
      f"every claim needs its own id; these occur more than once: {repeated}"
    )
  command = f"python -m experiments.{experiment}"
  command += "" if preset == "cpu" else f" --preset {preset}"
  versions = {name: importlib.metadata.version(name) for name in LIBRARIES}
  return {
    "experiment": experiment,
    "preset": preset,
    "command": command + _changes(experiment, preset, config, options),
    "settings": dataclasses.asdict(config),
    "versions": {"spherejax": spherejax.__version__, **versions},
    "python": platform.python_version(),
    "device": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
    "cores": os.cpu_count(),
    "seconds": round(seconds, 1),
    "rows": rows,
    "claims": claims,
    "pictures": list(pictures),
  }


def _changes(
  experiment: str, preset: str, config: Settings, options: Sequence[str]
) -> str:
  """Settings that differ from the preset, where the preset is known."""
  module = sys.modules.get(f"experiments.{experiment}", sys.modules["__main__"])
  preset_config = getattr(module, "PRESETS", {}).get(preset)
  if preset_config is None:
    return ""
  new, old = (dict(flat(dataclasses.asdict(x))) for x in (config, preset_config))
  parts, lines = [], []
  for name, value in new.items():
    if name in old and value == old[name]:
      continue
    if options and name not in options:
      value = "None" if value is None else value  # TOML has no null
      lines.append(f"{name} = {json.dumps(value)}")
    elif isinstance(value, bool):
      parts.append(option(name if value else f"no_{name}"))
    else:
      values = value if isinstance(value, (list, tuple)) else (value,)
      parts += [option(name), *(shlex.quote(f"{x}") for x in values)]
  parts += ["--config FILE  # with", ", ".join(lines)] if lines else []
  return "".join(f" {part}" for part in parts)


def write_json(content: object, path: pathlib.Path) -> None:
  """Writes the file whole or not at all: an earlier version survives a full disk."""
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = path.with_suffix(".partial")
  temporary.write_text(json.dumps(content, indent=1) + "\n")
  temporary.replace(path)


Summary = Callable[[Entry, pathlib.Path], Sequence[rich.console.RenderableType]]
"""Function from a result with claims and its folder to the text to print."""


def write(content: Entry, output: pathlib.Path, summary: Summary | None = None) -> None:
  """Writes `results.json`; writes and prints `table.txt`, a summary or all tables."""
  content = {name: standard(value) for name, value in content.items()}
  write_json(content, output / "results.json")
  if summary and content["claims"]:
    lines = summary(content, output)
  else:
    run = f"{content['experiment']} ({content['preset']}): {content['seconds']} s"
    lines = [*tables(content), f"{run} on {content['device']}, written to {output}"]
  with (output / "table.txt").open("w") as file:
    for console in (rich.console.Console(file=file, width=88), rich.console.Console()):
      for line in lines:
        console.print(line)


def standard(content: object) -> object:
  """Replaces NaN and infinity by None, since JSON has neither."""
  if isinstance(content, dict):
    return {name: standard(value) for name, value in content.items()}
  if isinstance(content, (list, tuple)):
    return [standard(value) for value in content]
  return None if isinstance(content, float) and not np.isfinite(content) else content


def tables(content: Entry) -> list[rich.table.Table]:
  """The figures and the claims of a result as printable tables."""
  figures = rich.table.Table("", "measure", title=content["experiment"])
  for heading in ("mean", "95 % interval", "seeds", "paper"):
    figures.add_column(heading, justify="right")
  for entry in content["rows"]:
    figures.add_row(
      *cells(entry),
      " ".join(map(number_text, entry["values"])),
      "-" if entry["paper"] is None else f"{entry['paper']:g}",
    )
  if any(entry["paper"] is not None for entry in content["rows"]):
    figures.caption = (
      "paper: of its own images and networks; comparable only where ours are the same"
    )
  headings = "claim", "difference", "95 % interval", "verdict"
  verdicts = rich.table.Table(*headings, title="claims")
  for entry in content["claims"]:
    verdicts.add_row(
      f"{entry['id']}: {entry['statement']}",
      number_text(entry["value"]),
      interval_text(entry["interval"]),
      verdict_text(entry),
    )
  return [figures, verdicts]


def _ends(interval: metrics.Interval) -> list[float | None]:
  """Ends of an interval; None where one seed gives no interval."""
  return [float(x) if np.isfinite(x) else None for x in (interval.low, interval.high)]


def cells(entry: Entry) -> tuple[str, ...]:
  """Name, measure with the note on it, mean and interval of a row, for a table."""
  measure = entry["metric"] + (f": {entry['note']}" if "note" in entry else "")
  mean, interval = number_text(entry["mean"]), interval_text(entry["interval"])
  return entry["name"], measure, mean, interval


def number_text(number: float | None) -> str:
  """A number for a table, with two digits if it is small; a dash for None."""
  if number is None:
    return "-"
  return f"{number:#.2g}" if 0 < abs(number) < 0.01 else f"{number:.3f}"


def interval_text(interval: Sequence[float | None]) -> str:
  """An interval for a table; a dash if one seed gives none."""
  low, high = interval
  if low is None or high is None:
    return "-"
  return f"[{number_text(low)}, {number_text(high)}]"
