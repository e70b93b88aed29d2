"""Writes docs/results.md from the committed results of the experiments.

python -m experiments.results_page           # writes the page
python -m experiments.results_page --check   # fails when the page is stale
"""

import argparse
import json
import pathlib
import sys

from experiments import _report

DOCS = pathlib.Path(__file__).parent.parent / "docs"
HEADER = """# Results

Every claim that was tested, with the figure, its 95 % interval over seeds, the verdict
and the command. A claim that did not come out says so. Figures are of small data sets
on a CPU and are not comparable with published ones; the claim is what is tested. This
page is made by `python -m experiments.results_page` from the files in `docs/results/`.
"""


def _title(content: dict) -> str:
  """The experiment, and its preset where that is not the usual one."""
  usual = content["preset"] == "cpu"
  return content["experiment"] + ("" if usual else f"-{content['preset']}")


def _cell(text: str) -> str:
  """In a table, whose cells end with a bar."""
  return text.replace("|", r"\|")


def _claims(content: dict) -> str:
  name = _title(content)
  lines = [
    f"| `{claim['id']}` | {_cell(claim['paper'])} | {_cell(claim['statement'])} | "
    f"{_report.number_text(claim['value'])} | "
    f"{_report.interval_text(claim['interval'])} | {claim['n']} | {claim['verdict']} |"
    for claim in content["claims"]
  ]
  return (
    f"### {name}\n\n"
    f"`{content['command']}`: {content['seconds']:g} s on {content['cores']} cores "
    f"({content['device']}), jax {content['versions']['jax']}; "
    f"[all settings and values](results/{name}.json).\n\n"
    "| claim | paper | statement | difference | 95 % interval | seeds | verdict |\n"
    "| --- | --- | --- | --- | --- | --- | --- |\n" + "\n".join(lines) + "\n"
  )


def _figures(content: dict) -> str:
  lines = [
    f"| {_cell(row['name'])} | {_cell(row['metric'])} | "
    f"{_report.number_text(row['mean'])} | "
    f"{_report.interval_text(row['interval'])} | "
    f"{'-' if row['paper'] is None else row['paper']} |"
    for row in content["rows"]
  ]
  return (
    f"### Figures of {_title(content)}\n\n"
    "| variant | measure | mean | 95 % interval | paper |\n"
    "| --- | --- | --- | --- | --- |\n" + "\n".join(lines) + "\n"
  )


def page(results: list[dict]) -> str:
  """The page's text: how many claims came out, each claim, each figure."""
  lines = []
  for content in results:
    verdicts = [claim["verdict"] for claim in content["claims"]]
    missed = [x["id"] for x in content["claims"] if x["verdict"] != "reproduced"]
    lines.append(
      f"| {_title(content)} | {verdicts.count('reproduced')} of {len(verdicts)} "
      f"| {', '.join(f'`{name}`' for name in missed)} |"
    )
  overview = (
    "| experiment | claims reproduced | not reproduced at this scale |\n"
    "| --- | --- | --- |\n" + "\n".join(lines) + "\n"
  )
  return "\n".join(
    [
      HEADER,
      overview,
      "## Claims\n",
      *map(_claims, results),
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
  files = sorted((DOCS / "results").glob("*.json"))
  text = page([read(file) for file in files])
  target = DOCS / "results.md"
  if not check:
    target.write_text(text, encoding="utf-8")
  elif target.read_text(encoding="utf-8") != text:
    sys.exit("docs/results.md is stale: run python -m experiments.results_page")


if __name__ == "__main__":
  main()
