"""Writes docs/results.md from the committed results of the experiments.

python -m experiments.results_page           # writes the page
python -m experiments.results_page --check   # fails when the page is stale
"""

import argparse
import fnmatch
import json
import pathlib
import re
import sys
import tomllib
import types
from collections.abc import Mapping
from typing import Any

from experiments.frame import results as report

DOCS = pathlib.Path(__file__).parents[1] / "docs"
TRIED = DOCS / "results" / "tried.toml"
DATA = DOCS / "results" / "data.toml"

Tried = Mapping[str, Mapping[str, str]]
"""By experiment and pattern of claims: what was tried where they did not come out."""

Data = Mapping[str, str]
"""By pattern of experiments: what they ran on. The first that matches counts."""

_GROWTH = "closed form, k = 200 / k = 10"
_SLOPES = "bytes a step, unrolled"
_CHANGES = "change of a weight from k = 25 to 100"

HEADER = """# Results

Every claim that was tested, with the figure, its 95 % interval over n seeds (or what
else its statement counts), the verdict and the command. A claim is reproduced when the
interval of its difference is above 0 and contradicted when it is below; a statement
about every seed, or about exact numbers, when each of its differences is. Otherwise it
is undecided, and the seeds are named that would decide if mean and deviation stayed as
they are. Where a claim was not reproduced, the page says what was tried.
Figures are of small data sets on a CPU and are not comparable with published ones; the
claim is what is tested. What stands for the papers' own is said with each experiment.
Minutes are those of the machine that is named with each, of two cores; `--help` of each
command has what shortens it, `--seeds` and `--steps` above all. This page is made by
`python -m experiments.results_page` from the files in `docs/results/`.
"""

_NONE: Mapping[str, Any] = types.MappingProxyType({})


def title(content: dict) -> str:
  """The experiment, and its preset where that is not the usual one."""
  usual = content["preset"] == "cpu"
  return content["experiment"] + ("" if usual else f"-{content['preset']}")


def missed(content: dict) -> list[str]:
  """Claims that did not come out."""
  return [x["id"] for x in content["claims"] if x["verdict"] != "reproduced"]


def attempts(content: dict, tried: Tried) -> str:
  """What was tried, for each missed claim; the other patterns say nothing."""
  lines = []
  for pattern, text in tried.get(title(content), {}).items():
    names = sorted({x for x in missed(content) if fnmatch.fnmatchcase(x, pattern)})
    lines.append(f"* {', '.join(f'`{name}`' for name in names)}: {text}")
  return "\nTried:\n\n" + "\n".join(lines) + "\n" if lines else ""


def check_tried(results: list[dict], tried: Tried) -> None:
  """Ends with a message unless each missed claim, and no other, has its note."""
  without = {title(content): missed(content) for content in results}
  for experiment, names in without.items():
    patterns = tried.get(experiment, {})
    for name in names:
      if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
        raise SystemExit(f"{TRIED} must say what was tried for {experiment}: {name}")
  for experiment, patterns in tried.items():
    for pattern in patterns:
      if not fnmatch.filter(without.get(experiment, []), pattern):
        raise SystemExit(
          f"{TRIED} has {experiment}: {pattern}, but no such claim is missed"
        )


def about(content: dict, data: Data) -> str:
  """What an experiment ran on; empty where nothing says so."""
  name = title(content)
  return next((x for key, x in data.items() if fnmatch.fnmatchcase(name, key)), "")


def check_data(results: list[dict], data: Data) -> None:
  """Ends with a message unless each experiment is told of, and each line is shown."""
  shown = set()
  for content in results:
    if not (text := about(content, data)):
      raise SystemExit(f"{DATA} must say what {title(content)} ran on")
    shown.add(text)
  for pattern, text in data.items():
    if text not in shown:
      raise SystemExit(
        f"{DATA} has {pattern}, but no such experiment stands on the page"
      )


def _cell(text: str) -> str:
  """In a table, whose cells end with a bar."""
  return text.replace("|", r"\|")


def _claims(content: dict, tried: Tried, data: Data) -> str:
  name = title(content)
  lines = [
    f"| `{claim['id']}` | {_cell(claim['paper'])} | {_cell(claim['statement'])} | "
    f"{report.number_text(claim['value'])} | "
    f"{report.interval_text(claim['interval'])} | {claim['n']} | "
    f"{report.verdict_text(claim)} |"
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
  ran_on = about(content, data)
  return head + (f"{ran_on}\n\n" if ran_on else "") + table + attempts(content, tried)


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
      f"| {title(content)} | {len(verdicts)} | "
      + " | ".join(str(verdicts.count(x)) for x in report.VERDICTS)
      + f" | {content['seconds'] / 60:.1f} "
      f"| {', '.join(f'`{name}`' for name in missed(content))} |"
    )
  overview = (
    f"| experiment | claims | {' | '.join(report.VERDICTS)} | minutes "
    "| not reproduced |\n"
    f"{'| --- ' * 7}|\n" + "\n".join(lines) + "\n"
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


def cost_section(file: pathlib.Path) -> str:
  """A table of the claims about cost (DML 5.3.4.4) in what `benchmarks.gsp` wrote.

  Raises:
    SystemExit: the file is no such result.
  """
  try:
    content = json.loads(file.read_text(encoding="utf-8"))
    lines = [
      f"| `{name}` | DML 5.3.4.4, figure 5.9 | {statement} | {difference:.3g} | "
      f"{'' if difference > 0 else 'not '}reproduced |"
      for name, statement, difference in cost_claims(content["rows"])
    ]
    head = (
      "### Cost of generalized sum pooling\n\n"
      f"`{content['command']}` on {content['machine']}; medians of paired repetitions, "
      "without an interval; all times stand in [Benchmarks](benchmarks.md).\n\n"
    )
  except (LookupError, StopIteration, TypeError, ValueError, OSError) as error:
    text = f"{file} is no result of benchmarks.gsp: {type(error).__name__}: {error}"
    raise SystemExit(text) from error
  return (
    head + "| claim | paper | statement | difference | verdict |\n"
    "| --- | --- | --- | --- | --- |\n" + "\n".join(lines) + "\n"
  )


def cost_claims(rows: list[dict[str, Any]]) -> list[tuple[str, str, float]]:
  """Name, statement and a difference that should be positive; of a whole run."""
  swept = next(row for row in rows if row["case"] == "steps")
  found = [
    (
      "cost-flat",
      "closed-form gradient: time at k = 200 < 1.5 of k = 10's (1.5 less the ratio)",
      1.5 - swept[_GROWTH],
    ),
    (
      "cost-unrolled",
      "differentiated through its steps: memory grows with k (least KiB a step)",
      min(swept[_SLOPES]) / 1024,
    ),
    (
      "k-enough",
      "weights of k = 25 and k = 100 differ by less than 1e-6 (1e-6 less the change)",
      1e-6 - max(swept[_CHANGES].values()),
    ),
  ]
  for row in rows:
    if row["case"].startswith("cost-ours"):
      sharpness, steps = re.findall(r"= ([\d.]+)", row["case"])
      found.append(
        (
          f"cost-ours-{sharpness}",
          f"b = {sharpness}: ours at most as slow as either form at the {steps} steps "
          "of a residual of 1e-6 (least theirs / ours, less 1)",
          min(row["ratio"].values()) - 1,
        )
      )
  return found


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
  tried = tomllib.loads(TRIED.read_text(encoding="utf-8"))
  check_tried(results, tried)
  data = tomllib.loads(DATA.read_text(encoding="utf-8"))
  check_data(results, data)
  cost = cost_section(DOCS / "benchmarks" / "gsp.json")
  text = page(results, tried, data, cost)
  target = DOCS / "results.md"
  if not check:
    target.write_text(text, encoding="utf-8")
  elif target.read_text(encoding="utf-8") != text:
    sys.exit("docs/results.md is stale: run python -m experiments.results_page")


if __name__ == "__main__":
  main()
