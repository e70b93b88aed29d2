"""Names of files and folders that a file system allows, in what the explorer writes."""

import csv
import io

import pytest

from spherejax import plotting
from spherejax.explorer import _tables

NAMES = ["a,b", 'quo"te', "new\nline", "Größe", "byte\udcff", "$x^2$", "[1]*?", " "]


def test_tables_of_any_names(tmp_path):
  path = tmp_path / "files [1].csv"
  _tables.write_table(path, ("path", "label"), [(name, "1") for name in NAMES])
  text = path.read_text(encoding="utf-8", errors="surrogateescape")
  rows = list(csv.reader(io.StringIO(text, newline="")))
  assert rows == [["path", "label"], *([name, "1"] for name in NAMES)]


@pytest.mark.parametrize("name", NAMES)
def test_sheets_of_any_names(name, tmp_path):
  figure = plotting.training_curves({"a": [[3.0, 2.0]]}, ylabel="loss")
  figure.axes[0].set_title(_tables._short(name))
  assert plotting.save(figure, tmp_path / "sheet.png").exists()
