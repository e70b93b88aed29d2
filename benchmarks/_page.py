"""Builds `docs/benchmarks.md` from the benchmarks' results and their notes."""

import itertools
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from benchmarks import _measure

DOCS = pathlib.Path(__file__).parent.parent / "docs"
PAGE, FOLDER = DOCS / "benchmarks.md", DOCS / "benchmarks"
NO = "**no**"
_TIMED = ("case", "milliseconds", "compile_seconds", "difference", "ratio", "targets")
HEADER = """# Benchmarks

`python -m benchmarks` runs all benchmarks and writes this page; `python -m
benchmarks.gsp` runs one. In each repetition we time our code, the other libraries and
the floor (the minimum work that any implementation must do), after a warm-up of each. A
ratio is the median of theirs / ours over the repetitions. Compilation is listed
separately. For libraries that compile inside the call, it is the extra time of the
first call.

Results must agree before a time counts. "Differs by" is the largest difference from our
result, relative to the largest entry of its array. Everything runs in float32 on two
cores, torch on two threads. Each table names its machine, so compare ratios between
tables, not milliseconds.
"""


def page(names: tuple[str, ...], folder: pathlib.Path = FOLDER) -> str:
  """Joins each benchmark's note `NAME.md` and table `NAME.json`; the GPU's last."""
  parts = [HEADER]
  for name in names:
    note, results = folder / f"{name}.md", folder / f"{name}.json"
    if note.is_file():
      parts.append(note.read_text())
    if results.is_file():
      title = "" if note.is_file() else f"## {name}\n\n"
      parts.append(title + _section_of(results))
  gpu = folder / "gpu"
  if gpu.is_dir():
    parts.append((gpu / "README.md").read_text())
    parts += [
      _section_of(gpu / f"{n}.json") for n in names if (gpu / f"{n}.json").is_file()
    ]
  return "\n".join(parts)


def _section_of(results: pathlib.Path) -> str:
  """Returns the section for a results file; exits with a message if it is invalid."""
  try:
    return section(json.loads(results.read_text()))
  except Exception as error:  # a missing entry can raise any error
    raise SystemExit(
      f"{results} is no result of a benchmark: {type(error).__name__}: {error}"
    ) from error


def section(content: Mapping[str, Any]) -> str:
  """Section with the figures of a benchmark, the machine and the versions."""
  rows = content["rows"]
  versions = ", ".join(f"{name} {text}" for name, text in content["versions"].items())
  alike = itertools.groupby(rows, key=tuple)  # rows with the same figures
  tables = [_values(list(several)) for _, several in alike]
  if rows and "milliseconds" in rows[0]:
    times = _markdown(_measure.TIMES, [*_measure.times(rows, NO)])
    tables = [times, *_beside_times(rows)]
  said = [f"`{content['command']}` on {content['machine']} ({versions}):", *tables]
  said += [f"Left out: {peer}." for peer in content["missing"]]
  return "\n\n".join(said) + "\n"


def _beside_times(rows: list[dict[str, Any]]) -> list[str]:
  """Tables of figures other than times, such as memory, and whether targets are met.

  A line per case if all cases have the same figures; otherwise a line per figure.
  """
  filled = {
    row["case"]: dict(
      pair
      for key, entry in row.items()
      if key not in _TIMED
      for pair in _flat(key.replace("_", " "), entry)
    )
    for row in rows
  }
  filled = {case: figures for case, figures in filled.items() if figures}
  if len(filled) > 1 and len({tuple(figures) for figures in filled.values()}) == 1:
    return [_values([{"case": case} | figures for case, figures in filled.items()])]
  lines = [
    {"case": case, "what": name, "value": value}
    for case, figures in filled.items()
    for name, value in figures.items()
  ]
  return [_values(lines)] if lines else []


def _flat(name: str, entry: Any) -> list[tuple[str, Any]]:
  """Flattens nested values to names and single values."""
  if isinstance(entry, dict):
    return [x for k, v in entry.items() for x in _flat(f"{name}, {k}", v)]
  return [(name, entry)]


def _values(rows: list[dict[str, Any]]) -> str:
  heading = list(rows[0]) if rows else []
  return _markdown(
    heading, [[_measure.text(row[name], NO) for name in heading] for row in rows]
  )


def _markdown(heading: list[str], lines: list[list[str]]) -> str:
  escaped = [[cell.replace("|", "\\|") for cell in line] for line in lines]
  rule = ["---"] * len(heading)
  return "\n".join(f"| {' | '.join(line)} |" for line in (heading, rule, *escaped))
