"""The benchmarks' page, from notes and from what was measured."""

import json

import benchmarks.__main__ as every
from benchmarks import _measure, _page

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
      "ratio": {"theirs": 16.2, "floor": 0.81},
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
  (tmp_path / "b.json").write_text(
    json.dumps(CONTENT | {"missing": [], "rows": [{"what": "x", "equal": False}]})
  )
  text = _page.page(("a", "none", "b"), tmp_path)
  assert text.startswith(_page.HEADER)
  note, table = text.index("Note."), text.index("`python -m benchmarks.a`")
  assert note < table < text.index("## b")
  assert "| n = 3 \\| 4 | ours | 1.23 |  |  |  | 0.6 |" in text
  assert "|  | theirs | 20 | 16.20 | 20 | **no** | 0.0 |" in text
  assert "|  | floor | 1 | 0.81 | 0.5 | yes | 0.1 |" in text
  assert "Not installed, so not compared: torch." in text
  assert "| x | **no** |" in text


def test_every_benchmark_is_run():
  found = {
    path.stem for path in _page.DOCS.parent.joinpath("benchmarks").glob("[a-z]*.py")
  }
  assert set(every.NAMES) == found


def test_what_is_written_can_be_shown(tmp_path):
  file = tmp_path / "a.json"
  options = _measure.Options(smoke=True, json=file, repetitions=3, only="")
  _measure.save("a", CONTENT["rows"], [], options)
  written = json.loads(file.read_text())
  assert {"jax", "numpy"} <= set(written["versions"])
  assert written["command"].startswith("python -m benchmarks.a")
  assert "| n = 3 \\| 4 | ours |" in _page.section(written)
