"""The benchmarks' page, from notes and from what was measured."""

import json
import pathlib
import subprocess

import numpy as np

import benchmarks.__main__ as every
from benchmarks import _measure, _page, gsp_accuracy

CONTENT = {
  "command": "python -m benchmarks.a",
  "machine": "2 cores of X",
  "versions": {"jax": "1.2"},
  "missing": ["torch"],
  "rows": [
    {
      "case": "n = 3 | 4",
      "milliseconds": {"ours": 1.234, "theirs": 20.0, "floor": 1.0},
      "compile_seconds": {"ours": 0.55, "theirs": 0.0, "floor": 0.1},
      "difference": {"ours": 0.0, "theirs": 3e-7},
      "ratio": {"theirs": 16.2, "floor": 0.81},
      "peak_mib": 12.5,
      "found": {"ours": {"rate": [1.0, 0.25]}},
      "targets": [
        {"other": "theirs", "ratio": 20.0, "met": False},
        {"other": "floor", "ratio": 0.5, "met": True},
      ],
    }
  ],
}


def test_notes_come_before_what_was_measured(tmp_path):
  (tmp_path / "a.md").write_text("## A\n\nNote.\n")
  (tmp_path / "a.json").write_text(json.dumps(CONTENT))
  other = CONTENT | {"missing": [], "rows": [{"what": "x", "equal": False}]}
  (tmp_path / "b.json").write_text(json.dumps(other))
  text = _page.page(("a", "none", "b"), tmp_path)
  assert text.startswith(_page.HEADER)
  note, table = text.index("Note."), text.index("`python -m benchmarks.a`")
  assert note < table < text.index("## b")
  assert "| n = 3 \\| 4 | ours | 1.23 |  |  |  | 0.6 |" in text
  assert "|  | theirs | 20 | 16.20 | 20 | **no** | 0.0 | 3e-07 |" in text
  assert "|  | floor | 1 | 0.81 | 0.5 | yes | 0.1 |" in text
  assert "Left out: torch." in text
  assert "| n = 3 \\| 4 | peak mib | 12.5 |" in text
  assert "| n = 3 \\| 4 | found, ours, rate | 1 0.25 |" in text
  assert "| x | **no** |" in text


def test_every_benchmark_is_run():
  files = (_page.DOCS.parent / "benchmarks").glob("[a-z]*.py")
  assert set(every.NAMES) == {path.stem for path in files}


def saved(rows, file):
  """Content of the file of these rows."""
  options = _measure.Options(smoke=True, json=file, repetitions=3, only="")
  _measure.save("a", rows, [], options)
  return json.loads(file.read_text())


def test_what_is_written_can_be_shown(tmp_path):
  written = saved(CONTENT["rows"], tmp_path / "a.json")
  assert {"jax", "numpy"} <= set(written["versions"])
  assert written["command"].startswith("python -m benchmarks.a")
  assert "| n = 3 \\| 4 | ours |" in _page.section(written)


def test_a_difference_that_is_no_number_is_none_that_agrees():
  nothing = np.array([1.0, np.nan])
  for pair in (nothing, np.ones(2)), (np.ones(2), nothing):
    assert np.isnan(_measure.relative_difference(*pair))
    assert np.isnan(_measure.relative_difference([pair[0], 1.0], [pair[1], 1.0]))
  assert _measure.relative_difference([np.ones(2), 3.0], [np.ones(2), 4.0]) == 0.25


def test_the_accuracy_of_gsp_can_be_shown(tmp_path):
  errors = gsp_accuracy.Errors(0.0, 1e-7, 0.0, 9)
  row = gsp_accuracy._row("float32", 0.25, {5.0: errors})
  shown = _page.section(saved([row], tmp_path / "a.json"))
  assert "| float32 | 0.25 | 0 1e-07 0 9 | yes |" in shown
  beyond = gsp_accuracy._row("float32", 0.25, {5.0: errors, 9.0: (0, 2e-5, 0, 9)})
  assert not beyond["within limits"]


def test_what_was_measured_beside_times_is_one_line_a_case_or_a_figure():
  timed = {"case": "c", "milliseconds": {}}
  rows = [timed | {"case": case, "memory": {"ours": 3, "theirs": 5}} for case in "ab"]
  assert _page._beside_times(rows)[0].splitlines() == [
    "| case | memory, ours | memory, theirs |",
    "| --- | --- | --- |",
    "| a | 3 | 5 |",
    "| b | 3 | 5 |",
  ]
  assert _page._beside_times([rows[0], timed])[0].splitlines()[2:] == [
    "| a | memory, ours | 3 |",
    "| a | memory, theirs | 5 |",
  ]
  assert _page._beside_times([timed]) == []


def test_a_benchmark_that_fails_leaves_what_ran_before(tmp_path, monkeypatch):
  (tmp_path / "losses.json").write_text(json.dumps(CONTENT))
  monkeypatch.setattr(_page, "FOLDER", tmp_path)
  monkeypatch.setattr(_page, "PAGE", tmp_path / "page.md")
  codes = {"losses": 1, "gsp": 0}

  def process(command, check):
    name = command[2].removeprefix("benchmarks.")
    pathlib.Path(command[-1]).write_text(json.dumps(CONTENT | {"command": name}))
    return subprocess.CompletedProcess(command, codes[name])

  monkeypatch.setattr(subprocess, "run", process)
  assert every.run(["losses", "gsp"]) == ["losses"]
  assert json.loads((tmp_path / "losses.json").read_text()) == CONTENT
  assert json.loads((tmp_path / "gsp.json").read_text())["command"] == "gsp"
  # A peer that was there then and is not now.
  aside, codes["losses"] = tmp_path / "runs", 0
  monkeypatch.setattr(every, "ASIDE", aside)
  whole = CONTENT | {"missing": []}
  (tmp_path / "losses.json").write_text(json.dumps(whole))
  assert every.run(["losses", "gsp"]) == []
  assert json.loads((tmp_path / "losses.json").read_text()) == whole
  assert json.loads((aside / "losses.json").read_text())["missing"] == ["torch"]
  assert [path.name for path in aside.iterdir()] == ["losses.json"]
