"""Every benchmark refuses a wrong command line before it starts, and names it."""

import errno
import importlib
import os
import pathlib
import sys
from unittest import mock

import pytest

from benchmarks import __main__, _measure, _page

# Command lines and what of them the answer must name.
EVERY = {
  "unknown option": (("--no-such-option",), ("--no-such-option", "unrecognized")),
  "its value too": (("--no-such-option=1",), ("--no-such-option=1", "unrecognized")),
  "stray word": (("stray",), ("stray", "unrecognized")),
  "another stray word": (("--smoke", "1"), ("1", "unrecognized")),
  "a value for a switch": (("--smoke=1",), ("--smoke", "'1'")),
  "no file": (("--json",), ("--json", "expected one argument")),
  "an empty file": (("--json", ""), ("--json", "Is a directory")),
  "no folder": (("--json", "nowhere/a.json"), ("nowhere", "No such file")),
  "a folder": (("--json", "folder"), ("--json folder", "Is a directory")),
  "below a file": (("--json", "file/a.json"), ("file/a.json", "Not a directory")),
}
TIMED = {
  "text": (("--repetitions", "abc"), ("--repetitions", "'abc'", "int")),
  "a fraction": (("--repetitions", "7.5"), ("--repetitions", "'7.5'", "int")),
  "too few": (("--repetitions", "6"), ("--repetitions", "at least 7", "got 6")),
  "negative": (("--repetitions=-7",), ("--repetitions", "at least 7", "got -7")),
  "no number": (("--repetitions",), ("--repetitions", "expected one argument")),
}
CASES = {"no case": (("--only",), ("--only", "expected one argument"))}


@pytest.fixture
def refusal(capsys, monkeypatch, tmp_path):
  """Message that refuses a command line."""
  (tmp_path / "file").write_text("")
  (tmp_path / "folder").mkdir()
  monkeypatch.chdir(tmp_path)

  def said(main, *arguments):
    monkeypatch.setattr(sys, "argv", ["benchmark", *arguments])
    with pytest.raises(SystemExit) as stopped:
      main()
    printed = capsys.readouterr().err
    assert stopped.value.code not in (0, None)
    return printed if isinstance(stopped.value.code, int) else str(stopped.value.code)

  yield said
  assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


@pytest.mark.parametrize("name", __main__.NAMES)
def test_command_line(name, refusal, monkeypatch):
  main = importlib.import_module(f"benchmarks.{name}").main
  parse = mock.Mock(wraps=_measure.parse)
  monkeypatch.setattr(_measure, "parse", parse)
  for arguments, named in EVERY.values():
    said = refusal(main, *arguments)
    assert all(text in said for text in named), (arguments, said)
  for option, uses in (("timed", TIMED), ("cases", CASES)):
    for arguments, named in uses.values():
      said = refusal(main, *arguments)
      unknown = not parse.call_args.kwargs.get(option, True)
      assert all(text in said for text in (["unrecognized"] if unknown else named))


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EACCES])
def test_a_file_that_cannot_be_written(number, refusal, monkeypatch):
  refuse = mock.Mock(side_effect=OSError(number, os.strerror(number)))
  monkeypatch.setattr(pathlib.Path, "touch", refuse)
  said = refusal(lambda: _measure.parse(""), "--json", "a.json")
  assert f"--json a.json cannot be written: {os.strerror(number)}" in said


def test_an_interrupted_benchmark_leaves_what_ran_before(monkeypatch, tmp_path):
  (tmp_path / "gsp.json").write_text("before")
  interrupted = mock.Mock(side_effect=KeyboardInterrupt)
  monkeypatch.setattr(_page, "FOLDER", tmp_path)
  monkeypatch.setattr(__main__.subprocess, "run", interrupted)
  with pytest.raises(KeyboardInterrupt):
    __main__.run(["gsp"])
  assert (tmp_path / "gsp.json").read_text() == "before"


PAGE = {
  "unknown option": (("--no-such-option",), ("--no-such-option", "unrecognized")),
  "an option of one benchmark": (("--smoke",), ("--smoke", "unrecognized")),
  "stray word": (("gsp",), ("gsp", "unrecognized")),
  "no case": (("--only",), ("--only", "expected one argument")),
  "unknown benchmark": (("--only", "no such"), ("--only", "'no such'", "gsp_accuracy")),
  "a value for --page": (("--page=1",), ("--page", "'1'")),
  "a value for --check": (("--check=1",), ("--check", "'1'")),
  "stale": (("--check",), ("stale", "--page")),
}


@pytest.mark.parametrize("use", PAGE)
def test_command_line_of_all(use, refusal, monkeypatch):
  arguments, named = PAGE[use]
  monkeypatch.setattr(__main__, "run", lambda _: pytest.fail("it started"))
  monkeypatch.setattr(_page, "page", lambda *_: "another page")
  said = refusal(__main__.main, *arguments)
  assert all(text in said for text in named), said


@pytest.mark.parametrize("content", ["", "{", "[]", '{"rows": []}', "null"])
def test_a_damaged_result_is_named(content, refusal, monkeypatch, tmp_path):
  folder = tmp_path / "folder"
  (folder / "gsp.json").write_text(content)
  with pytest.raises(SystemExit, match=r"gsp\.json is no result of a benchmark: "):
    _page.page(("gsp",), folder)
