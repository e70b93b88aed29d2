"""Names of files and folders that a file system allows, in what experiments write."""

import csv
import dataclasses
import io
import json

import pytest

from experiments import embed
from experiments.embedding import answers
from spherejax import plotting

NAMES = ["a,b", 'quo"te', "new\nline", "Größe", "byte\udcff", "$x^2$", "[1]*?", " "]


def test_tables_of_any_names(tmp_path):
  path = tmp_path / "files [1].csv"
  answers.write_table(path, ("path", "label"), [(name, "1") for name in NAMES])
  text = path.read_text(encoding="utf-8", errors="surrogateescape")
  rows = list(csv.reader(io.StringIO(text, newline="")))
  assert rows == [["path", "label"], *([name, "1"] for name in NAMES)]


@pytest.mark.parametrize("name", NAMES)
def test_sheets_of_any_names(name, tmp_path):
  figure = plotting.training_curves({"a": [[3.0, 2.0]]}, ylabel="loss")
  figure.axes[0].set_title(answers._short(name))
  assert plotting.save(figure, tmp_path / "sheet.png").exists()


def test_a_whole_run_in_a_folder_of_any_name(tmp_path):
  """Model, kept parts, tables and pictures; a second run finds all of them."""
  config = dataclasses.replace(embed.PRESETS["smoke"], digits=16)
  output = tmp_path / "margins=[1,2]" / "-ü *?\\{b}\n~"
  first = embed.run(config, output, "smoke")
  part = next((output / "parts" / "images").glob("part-*.npz"))
  written = part.stat().st_mtime_ns
  again = embed.run(config, output, "smoke")
  assert part.stat().st_mtime_ns == written
  assert again["rows"] == first["rows"]
  assert json.loads((output / "results.json").read_text())["rows"] == first["rows"]
