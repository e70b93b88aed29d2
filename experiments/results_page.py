"""Writes docs/results.md from the committed results of the experiments.

python -m experiments.results_page           # writes the page
python -m experiments.results_page --check   # fails when the page is stale
"""

import argparse
import json
import pathlib
import sys
import tomllib
import types
from collections.abc import Mapping
from typing import Any

from experiments.frame import cost_claims, results_notes
from experiments.frame import results as report
from experiments.frame.results_notes import DOCS, Data, Tried, title

HEADER = """# Results

Every claim that was tested, with the figure, its 95 % interval over n seeds (or what
else its statement counts), the verdict and the command. A difference holds when its
interval is above 0; a statement about every seed, or about exact numbers, when each of
its differences is, whatever their interval. A claim that did not come out says so, and
what was tried for it.
Figures are of small data sets on a CPU and are not comparable with published ones; the
claim is what is tested. What stands for the papers' own is said with each experiment.
Minutes are those of the machine that is named with each, of two cores; `--help` of each
command has what shortens it, `--seeds` and `--steps` above all. This page is made by
`python -m experiments.results_page` from the files in `docs/results/`.
"""

_NONE: Mapping[str, Any] = types.MappingProxyType({})


def _cell(text: str) -> str:
  """In a table, whose cells end with a bar."""
  return text.replace("|", r"\|")


def _claims(content: dict, tried: Tried, data: Data) -> str:
  name = title(content)
  lines = [
    f"| `{claim['id']}` | {_cell(claim['paper'])} | {_cell(claim['statement'])} | "
    f"{report.number_text(claim['value'])} | "
    f"{report.interval_text(claim['interval'])} | {claim['n']} | {claim['verdict']} |"
    for claim in content["claims"]
  ]
  head = (
    f"### {name}\n\n"
    f"`{content['command']}`: {content['seconds']:g} s on {content['cores']} cores "
    f"({content['device']}), jax {content['versions']['jax']}; "
    f"[all settings and values](results/{name}.json).\n\n"
  )
  table = (
    "| claim | paper | statement | difference | 95 % interval | n | verdict |\n"
    "| --- | --- | --- | --- | --- | --- | --- |\n" + "\n".join(lines) + "\n"
  )
  about = results_notes.about(content, data)
  return (
    head
    + (f"{about}\n\n" if about else "")
    + table
    + results_notes.attempts(content, tried)
  )


def _figures(content: dict) -> str:
  lines = [
    f"| {_cell(row['name'])} | {_cell(report.measure_text(row))} | "
    f"{report.number_text(row['mean'])} | "
    f"{report.interval_text(row['interval'])} | "
    f"{'-' if row['paper'] is None else row['paper']} |"
    for row in content["rows"]
  ]
  return (
    f"### Figures of {title(content)}\n\n"
    "| variant | measure | mean | 95 % interval | paper |\n"
    "| --- | --- | --- | --- | --- |\n" + "\n".join(lines) + "\n"
  )


def page(
  results: list[dict], tried: Tried = _NONE, data: Data = _NONE, cost: str = ""
) -> str:
  """The page's text: how many claims came out, each claim, each figure."""
  lines = []
  for content in results:
    verdicts = [claim["verdict"] for claim in content["claims"]]
    lines.append(
      f"| {title(content)} | {verdicts.count('reproduced')} of {len(verdicts)} "
      f"| {content['seconds'] / 60:.1f} "
      f"| {', '.join(f'`{name}`' for name in results_notes.missed(content))} |"
    )
  overview = (
    "| experiment | claims reproduced | minutes | not reproduced at this scale |\n"
    "| --- | --- | --- | --- |\n" + "\n".join(lines) + "\n"
  )
  return "\n".join(
    [
      HEADER,
      overview,
      "## Claims\n",
      *(_claims(content, tried, data) for content in results),
      *([cost] if cost else []),
      "## Figures\n",
      *map(_figures, results),
    ]
  )


def read(file: pathlib.Path) -> dict:
  """One result; ends with a message unless a page can be made of it."""
  try:
    content = json.loads(file.read_text(encoding="utf-8"))
    page([content])
  except Exception as error:  # what is missing shows in any way
    raise SystemExit(
      f"{file} is no result of an experiment: {type(error).__name__}: {error}"
    ) from error
  return content


def main() -> None:
  """Writes or checks the page."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--check", action="store_true", help="fail when it is stale")
  check = parser.parse_args().check
  results = [read(file) for file in sorted((DOCS / "results").glob("*.json"))]
  tried = tomllib.loads(results_notes.TRIED.read_text(encoding="utf-8"))
  results_notes.check_tried(results, tried)
  data = tomllib.loads(results_notes.DATA.read_text(encoding="utf-8"))
  results_notes.check_data(results, data)
  cost = cost_claims.section(DOCS / "benchmarks" / "gsp.json")
  text = page(results, tried, data, cost)
  target = DOCS / "results.md"
  if not check:
    target.write_text(text, encoding="utf-8")
  elif target.read_text(encoding="utf-8") != text:
    sys.exit("docs/results.md is stale: run python -m experiments.results_page")


if __name__ == "__main__":
  main()
