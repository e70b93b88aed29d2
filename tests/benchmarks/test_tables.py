"""Tables that pages have by hand are those of the measured files."""

import itertools
import json
import pathlib
import re

import pytest

import benchmarks.prototypes as prototypes_benchmark

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def rows_of(name):
  return json.loads((DOCS / "benchmarks" / f"{name}.json").read_text())["rows"]


def cells_of(page, heading):
  """[rows] of cells of the table with this heading."""
  lines = (DOCS / page).read_text().splitlines()
  head = next(k for k, line in enumerate(lines) if line.startswith(heading))
  rows = itertools.takewhile(lambda line: line.startswith("|"), lines[head + 2 :])
  return [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in rows]


def test_the_report_on_prototypes():
  rows = rows_of("prototypes")
  assert cells_of("prototypes.md", "| C, D |") == prototypes_benchmark.quality(rows)
  for row in rows:
    classes, dim = map(int, re.findall(r"\d+", row["case"]))
    reached = prototypes_benchmark.REACHED.get((dim, classes))
    if reached is not None:
      slack = prototypes_benchmark.SLACK.get((dim, classes), 2e-3)
      assert max(row["max_cosine"]["default"]) <= reached + slack, row["case"]


def test_the_errors_of_imported_weights():
  table = cells_of("weights.md", "| network | activations |")
  measured = {row["network"]: row for row in rows_of("weight_import")}
  assert {cells[0] for cells in table} == set(measured)
  for name, activations, *errors in table:
    row = measured[name]
    assert int(activations) == row["activations"]
    for told, found in zip(errors, (row["float32"], row["float64"]), strict=True):
      assert float(told) == pytest.approx(found, rel=0.05), name
