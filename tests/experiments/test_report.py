"""What is printed of results, and how the paper's figures are told apart."""

import pytest

from experiments import _report


def test_a_note_stands_beside_its_measure(tmp_path):
  row = _report.row("net", "points", [3.0, 2.0]) | {"note": "at 1/4"}
  content = {"experiment": "some", "preset": "cpu", "seconds": 1.0, "device": "1 x cpu"}
  _report.write(content | {"rows": [row], "claims": []}, tmp_path)
  assert "points: at 1/4" in (tmp_path / "table.txt").read_text()


@pytest.mark.parametrize("paper", [None, 0.17])
def test_a_table_says_what_the_papers_figures_are_of(paper, tmp_path):
  content = {
    "experiment": "some",
    "preset": "cpu",
    "seconds": 1.0,
    "device": "1 x cpu",
    "rows": [_report.row("GSP", "MAP@R", [0.5, 0.25], paper=paper)],
    "claims": [_report.claim("gsp", "GSP > GAP", [0.1, 0.2], paper="DML 5.3.2")],
  }
  _report.write(content, tmp_path)
  text = (tmp_path / "table.txt").read_text()
  assert "0.375" in text
  assert ("0.17" in text) == (paper is not None)
  assert ("of its own images and networks" in text) == (paper is not None)
