"""Redraws the charts of committed results from the numbers in their JSON.

python -m experiments.redraw                 # all of docs/results
python -m experiments.redraw retrieval       # one run
"""

import importlib
import json
import pathlib
import sys

from experiments.frame import pictures, study
from experiments.results_page import DOCS, title


def redraw(file: pathlib.Path) -> list[str]:
  """Draws a result's charts and lists them in its JSON; returns their files."""
  content = json.loads(file.read_text(encoding="utf-8"))
  declared = getattr(
    importlib.import_module(f"experiments.{content['experiment']}"), "STUDY", None
  )
  if declared is None:
    return []
  config = declared.presets[content["preset"]]
  # Rows of gains compare two variants, so charts leave them out.
  rows = [row for row in content["rows"] if " - " not in row["name"]]
  table = study.Table.of_rows(rows)
  charts = declared.charts(config, table)
  files = pictures.save(charts, file.parent / title(content), ".svg")
  others = [x for x in content["pictures"] if pathlib.Path(x).stem not in charts]
  for name in {*content["pictures"]} - {*files, *others}:
    (file.parent / title(content) / name).unlink(missing_ok=True)
  content["pictures"] = files + others
  file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
  return files


def main() -> None:
  """Draws the runs that the command names, or all."""
  names = sys.argv[1:] or sorted(x.stem for x in (DOCS / "results").glob("*.json"))
  for name in names:
    for file in redraw(DOCS / "results" / f"{name}.json"):
      print(f"{name}/{file}")


if __name__ == "__main__":
  main()
