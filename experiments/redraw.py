"""Redraws the charts of committed results from the numbers in their JSON.

python -m experiments.redraw                 # all of docs/results
python -m experiments.redraw retrieval       # one run
python -m experiments.redraw statements      # the figure of docs/results.md
"""

import argparse
import importlib
import json
import math
import pathlib
import tomllib

from experiments.frame import pictures, study
from experiments.results_page import DOCS, STATEMENTS, tests_of, title
from spherejax import plotting

FILES = sorted((DOCS / "results").glob("*.json"))


def redraw(file: pathlib.Path) -> list[str]:
  """Draws a result's charts and lists them in its JSON; returns their files."""
  content = json.loads(file.read_text(encoding="utf-8"))
  declared = importlib.import_module(f"experiments.{content['experiment']}").STUDY
  config = declared.presets[content["preset"]]
  # Rows of gains compare two variants, so charts leave them out.
  rows = [row for row in content["rows"] if " - " not in row["name"]]
  table = study.Table.of_rows(rows)
  charts = declared.of(config).charts(config, table)
  files = pictures.save(charts, file.parent / title(content), ".svg")
  others = [x for x in content["pictures"] if pathlib.Path(x).stem not in charts]
  for name in {*content["pictures"]} - {*files, *others}:
    (file.parent / title(content) / name).unlink(missing_ok=True)
  content["pictures"] = files + others
  file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
  return files


def verdicts() -> dict[str, list[tuple[float, str]]]:
  """Difference over half-width, and verdict, of each claim of each statement.

  A claim without an interval has a difference of NaN.
  """
  results = [json.loads(file.read_text(encoding="utf-8")) for file in FILES]
  statements = tomllib.loads(STATEMENTS.read_text(encoding="utf-8"))["statement"]
  by_name = {}
  for number, statement in enumerate(statements, 1):
    points = []
    for _, claim in tests_of(statement, results):
      low, high = claim["interval"]
      half = math.nan if low is None else (high - low) / 2
      points.append((claim["value"] / half, claim["verdict"]))
    by_name[f"{statement['name']}  {number}"] = points
  return by_name


def main() -> None:
  """Draws the runs that the command names, or all and the statements."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  every = [*(x.stem for x in FILES), "statements"]
  parser.add_argument("runs", nargs="*", metavar="RUN", help="all by default")
  runs = parser.parse_args().runs
  if unknown := {*runs} - {*every}:
    parser.error(f"RUN must be one of {', '.join(every)}, got {', '.join(unknown)}")
  for name in runs or every:
    if name == "statements":
      figure = pictures.verdicts(verdicts())
      plotting.save(figure, DOCS / "results" / "statements.svg")
      continue
    for file in redraw(DOCS / "results" / f"{name}.json"):
      print(f"{name}/{file}")


if __name__ == "__main__":
  main()
