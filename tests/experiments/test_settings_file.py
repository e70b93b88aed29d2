"""Settings of every command: at most twenty options, and a file for the others."""

import dataclasses
import json
import re
from unittest import mock

import pytest

from experiments.frame import results, settings
from tests.experiments.entries import NAMES, main, module, replace_run
from tests.experiments.test_wrong_uses import refusal


@pytest.fixture
def config_of(monkeypatch, tmp_path):
  """The settings that a command would run with."""
  monkeypatch.chdir(tmp_path)
  run = mock.Mock(return_value={})
  replace_run(monkeypatch, run)
  monkeypatch.setattr(results, "write", lambda *_: None)

  def parse(name, *arguments):
    main(name, *arguments)
    return run.call_args.args[0]

  return parse


def written(config):
  """Settings as the text of a file."""
  names = settings.chosen(type(config))
  values = dict(settings.flat(dataclasses.asdict(config)))
  return "\n".join(
    f"{name} = {json.dumps('None' if value is None else value)}"
    for name, value in values.items()
    if name.partition(".")[0] in names
  )


@pytest.mark.parametrize("name", NAMES)
def test_a_file_may_hold_every_setting(name, config_of, tmp_path):
  presets = module(name).PRESETS
  for preset, config in presets.items():
    (tmp_path / "all.toml").write_text(written(config))
    read = config_of(name, "--preset", preset, "--config", tmp_path / "all.toml")
    assert read == config
    assert type(read) is type(config)


@pytest.mark.parametrize("name", NAMES)
def test_help_has_few_options_and_names_the_other_settings(name, capsys):
  study, options = module(name).STUDY, set()
  for preset, config in module(name).PRESETS.items():
    with pytest.raises(SystemExit) as ended:
      main(name, "--preset", preset, "--help")
    assert ended.value.code == 0
    text = capsys.readouterr().out
    lines = [line.strip("│ ").split(" ")[0] for line in text.splitlines()]
    own = {*settings.chosen(type(config))} & {*study.of(config).options}
    given = {x.rstrip(",") for x in lines if re.match("--[a-z]", x)}
    assert given >= {settings.option(x) for x in own}
    assert len(given) <= 20
    assert len(lines) <= 100, "more than two screens of 50 lines"
    options |= own
    text = " ".join(text.split())
    missing = {*settings.chosen(type(config))} - own if own else ()
    assert all(f" {x}," in text or f" {x}." in text for x in missing)
  assert options == {*study.options} | {
    x for other in study.others.values() for x in other.options
  }


def test_options_replace_the_file_and_the_file_the_preset(config_of, tmp_path):
  file = tmp_path / "some.toml"
  file.write_text("seed = 7\ngsp_parts = []\nlosses = ['c1', 'ms']\nmass = 0.5\n")
  arguments = "--preset", "cars-gsp", "--config", file, "--seed", "9"
  assert config_of("retrieval", *arguments) == dataclasses.replace(
    module("retrieval").PRESETS["cars-gsp"],
    seed=9, gsp_parts=(), losses=("c1", "ms"), mass=0.5,
  )  # fmt: skip
  file.write_text("controls = false")
  assert not config_of("norm_count", "--config", file).controls
  file.write_text("[photographs]\nepochs = 3")
  read = config_of("robust_features", "--preset", "cifar10", "--config", file)
  assert read.photographs.epochs == 3


@pytest.mark.parametrize(
  ("text", "named"),
  [
    (None, ("cannot be read: No such file",)),
    ("steps", ("is not TOML",)),
    (b"\xff", ("is not TOML",)),
    ("step = 2", ("got 'step'; there is steps",)),
    ("qqqq = 2", ("got 'qqqq'; there is backbone, width,",)),
    ("inverse_temperature = 2.0", ("got 'inverse_temperature'",)),  # decided
    ("width = 'wide'", ("--width", "wide", "int")),
    ("width = 2.5", ("--width", "2.5", "int")),
    ("width = [1, 2]", ("2",)),
    ("convolution = 'fast'", ("--convolution", "nvalid choice", "'fast'")),
    ("frozen_norm = 1", ("--frozen_norm", "True", "False", "1")),
    ("width = -1", ("error: width must be at least 1, got -1",)),
    ("steps = 0", ("--steps must be at least 1, got 0",)),
    ("losses = ['c1', 'c1']", ("--losses must not name anything twice",)),
    ("mass = 0.5", ("mass does nothing without --gsp-methods",)),
    ("weight.decay = 2", ("decay",)),
  ],
)
def test_files_that_cannot_be_used(text, named, capsys, monkeypatch, tmp_path):
  replace_run(monkeypatch, lambda *_: pytest.fail("it started"))
  file = tmp_path / "some.toml"
  if text is not None:
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
  output = tmp_path / "new"
  said = refusal(
    "retrieval", capsys, "--preset", "smoke", "--output", output, "--config", file
  )
  assert all(x in said for x in named), said
  assert not output.exists()


@pytest.mark.parametrize(
  ("name", "word", "setting"),
  [
    ("retrieval", "--zero-shot=1", "zero_shot"),
    ("norm_count", "--no-need-all", "need_all"),
    ("robust_features", "--photographs.epochs", "photographs"),
  ],
)
def test_settings_that_are_no_options(name, word, setting, capsys):
  said = refusal(name, capsys, word)
  assert f"error: {setting} is no option: set it in the file of --config" in said


def test_the_command_names_settings_of_the_file():
  study = module("retrieval").STUDY
  config = dataclasses.replace(study.presets["smoke"], seed=3, width=5, zero_shot=0.0)
  content = results.result(
    experiment="retrieval", preset="smoke", config=config, options=study.options,
    seconds=1.0, rows=[], claims=[],
  )  # fmt: skip
  plain = "python -m experiments.retrieval --preset smoke --seed 3"
  assert content["command"] == f"{plain} --config FILE  # with width = 5"
