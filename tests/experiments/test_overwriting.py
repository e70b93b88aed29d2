"""No entry point replaces the results of other settings unless it is told to."""

import dataclasses
import json

import pytest

from experiments.frame import results
from tests.experiments.entries import NAMES, main, module, replace_run


@pytest.fixture
def started(monkeypatch):
  """Calls an entry point whose run is a stand-in; how often that has run."""
  runs = []

  def start(name, output, *arguments):
    def run(config, output, preset):
      runs.append(config)
      filled = getattr(module(name), "settings", None)
      return results.result(
        experiment=name, preset=preset, seconds=1.0, rows=[], claims=[],
        config=filled.resolved(config) if hasattr(filled, "resolved") else config,
      )  # fmt: skip

    replace_run(monkeypatch, run)
    main(name, "--preset", "smoke", "--output", output, *arguments)

  return start, runs


def other_setting(name):
  """An option that changes a setting that every preset has."""
  config = module(name).PRESETS["smoke"]
  for field in dataclasses.fields(config):
    value = getattr(config, field.name)
    if field.name in ("seed", "seeds", "neighbours"):
      return field.name, f"--{field.name}={value + 1}"
  raise AssertionError(f"{name} has no seed")


@pytest.mark.parametrize("name", NAMES)
def test_results_of_other_settings(name, tmp_path, started):
  start, runs = started
  setting, option = other_setting(name)
  output = tmp_path / "runs [1,2]*"
  start(name, output)
  start(name, output)  # the same command may run again
  assert len(runs) == 2
  before = (output / "results.json").read_bytes()
  with pytest.raises(SystemExit, match=rf"other settings \({setting} was .*--overwrit"):
    start(name, output, option)
  assert len(runs) == 2
  assert (output / "results.json").read_bytes() == before
  start(name, tmp_path / "another", option)
  start(name, output, option, "--overwrite")
  assert json.loads((output / "results.json").read_text()) != json.loads(before)


@pytest.mark.parametrize(
  ("content", "what"),
  [
    ('{"experiment": "gsp_map", "settings": {}}', "results of gsp_map"),
    ("[1, 2]", "a results.json of another kind"),
    ("not JSON", "a results.json of another kind"),
    ('{"experiment": "quickstart", "settings": 1}', "a results.json of another kind"),
    ('{"experiment": "quickstart", "settings": {}}', "and [0-9]+ more"),
  ],
)
def test_results_of_something_else(content, what, tmp_path, started):
  start, runs = started
  (tmp_path / "results.json").write_text(content)
  with pytest.raises(SystemExit, match=rf"holds .*{what}.*--overwrite"):
    start("quickstart", tmp_path)
  assert not runs
  start("quickstart", tmp_path, "--overwrite")
  start("quickstart", tmp_path)
  assert len(runs) == 2
