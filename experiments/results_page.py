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


def page(results: list[dict]) -> str:
  """The page's text."""
  parts = [HEADER]
  for content in results:
    name = content["experiment"]
    parts.append(
      f"## {name}\n\n`{content['command']}`: {content['seconds']:g} s on "
      f"{content['cores']} cores ({content['device']}), jax "
      f"{content['versions']['jax']}; [all settings and values](results/{name}.json).\n"
    )
    claims = [
      f"| `{claim['id']}` | {claim['paper']} | {claim['statement']} | "
      f"{claim['value']:.3f} | {_report.interval_text(claim['interval'])} | "
      f"{claim['n']} | {claim['verdict']} |"
      for claim in content["claims"]
    ]
    parts.append(
      "| claim | paper | statement | difference | 95 % interval | seeds | verdict |\n"
      "| --- | --- | --- | --- | --- | --- | --- |\n" + "\n".join(claims) + "\n"
    )
    rows = [
      f"| {row['name']} | {row['metric']} | {row['mean']:.3f} | "
      f"{_report.interval_text(row['interval'])} | "
      f"{'-' if row['paper'] is None else row['paper']} |"
      for row in content["rows"]
    ]
    parts.append(
      "| variant | measure | mean | 95 % interval | paper |\n"
      "| --- | --- | --- | --- | --- |\n" + "\n".join(rows) + "\n"
    )
  return "\n".join(parts)


def main() -> None:
  """Writes or checks the page."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--check", action="store_true", help="fail when it is stale")
  check = parser.parse_args().check
  files = sorted((DOCS / "results").glob("*.json"))
  text = page([json.loads(file.read_text()) for file in files])
  target = DOCS / "results.md"
  if not check:
    target.write_text(text)
  elif target.read_text() != text:
    sys.exit("docs/results.md is stale: run python -m experiments.results_page")


if __name__ == "__main__":
  main()
