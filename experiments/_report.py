"""Results in one shape: rows with intervals, claims with verdicts, one JSON file."""

import dataclasses
import importlib.metadata
import json
import os
import pathlib
import platform
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np
import rich.console
import rich.table

import spherejax
from spherejax import metrics

REPRODUCED = "reproduced"
NOT_REPRODUCED = "not reproduced at this scale"
LIBRARIES = ("jax", "jaxlib", "flax", "optax", "numpy")


def row(
  name: str, metric: str, values: Iterable[float], *, paper: float | None = None
) -> dict[str, Any]:
  """One figure of a table: its value for each seed, mean and 95 % interval."""
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
) -> dict[str, Any]:
  """A claim that a difference is positive, with its verdict.

  It holds when the 95 % interval of the mean over seeds lies above 0; a claim that is
  stated for every seed holds when every difference is positive.
  """
  numbers = [float(value) for value in differences]
  interval = metrics.mean_interval(np.array(numbers))
  holds = min(numbers) > 0 if every_seed else interval.low > 0
  return {
    "id": name,
    "paper": paper,
    "statement": statement,
    "value": float(np.mean(numbers)),
    "values": numbers,
    "interval": _ends(interval),
    "n": len(numbers),
    "verdict": REPRODUCED if holds else NOT_REPRODUCED,
  }


def result(
  *,
  experiment: str,
  preset: str,
  config: Any,
  seconds: float,
  rows: list[dict[str, Any]],
  claims: list[dict[str, Any]],
  pictures: Sequence[str] = (),
) -> dict[str, Any]:
  """The whole result of a run, as it is written to `results.json`."""
  command = f"python -m experiments.{experiment}"
  versions = {name: importlib.metadata.version(name) for name in LIBRARIES}
  return {
    "experiment": experiment,
    "preset": preset,
    "command": command if preset == "cpu" else f"{command} --preset {preset}",
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


def write_json(content: dict[str, Any], path: pathlib.Path) -> None:
  """Writes the file whole or not at all: an earlier one survives a full disk."""
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = path.with_suffix(".partial")
  temporary.write_text(json.dumps(content, indent=1) + "\n")
  temporary.replace(path)


def write(content: dict[str, Any], output: pathlib.Path) -> None:
  """Writes `results.json` and `table.txt` and prints the table."""
  write_json(content, output / "results.json")
  with (output / "table.txt").open("w") as file:
    for console in (rich.console.Console(file=file, width=88), rich.console.Console()):
      for table in tables(content):
        console.print(table)
      console.print(
        f"{content['experiment']} ({content['preset']}): {content['seconds']} s on "
        f"{content['device']}, written to {output}"
      )


def tables(content: dict[str, Any]) -> list[rich.table.Table]:
  """The figures and the claims of a result as printable tables."""
  figures = rich.table.Table(title=content["experiment"])
  for heading in ("", "measure", "mean", "95 % interval", "seeds", "paper"):
    figures.add_column(
      heading, justify="left" if heading in ("", "measure") else "right"
    )
  for entry in content["rows"]:
    figures.add_row(
      entry["name"],
      entry["metric"],
      f"{entry['mean']:.3f}",
      interval_text(entry["interval"]),
      " ".join(f"{value:.3f}" for value in entry["values"]),
      "-" if entry["paper"] is None else f"{entry['paper']:g}",
    )
  verdicts = rich.table.Table(title="claims")
  for heading in ("claim", "difference", "95 % interval", "verdict"):
    verdicts.add_column(heading)
  for entry in content["claims"]:
    verdicts.add_row(
      f"{entry['id']}: {entry['statement']}",
      f"{entry['value']:.3f}",
      interval_text(entry["interval"]),
      entry["verdict"],
    )
  return [figures, verdicts]


def _ends(interval: metrics.Interval) -> list[float | None]:
  """Both ends; None where one seed gives none, as JSON knows no infinity."""
  return [float(x) if np.isfinite(x) else None for x in (interval.low, interval.high)]


def interval_text(interval: Sequence[float | None]) -> str:
  """An interval for a table; a dash where one seed gives none."""
  low, high = interval
  return "-" if low is None or high is None else f"[{low:.3f}, {high:.3f}]"
