"""Every entry point refuses what it cannot use before it starts, and names it."""

import copy
import dataclasses
import importlib
import pathlib
import typing

import pytest

import experiments
from experiments import _cli

FOLDER = pathlib.Path(experiments.__file__).parent
NAMES = sorted(
  path.stem
  for path in FOLDER.glob("[a-z]*.py")
  if hasattr(importlib.import_module(f"experiments.{path.stem}"), "PRESETS")
)


def module(name):
  return importlib.import_module(f"experiments.{name}")


def refusal(name, capsys, *arguments):
  """What the experiment says to such a command line, without a frame and breaks."""
  presets = module(name).PRESETS
  with pytest.raises(SystemExit) as stopped:
    _cli.parse(
      presets, name=name, doc="", default=next(iter(presets)), arguments=arguments
    )
  printed = "".join(capsys.readouterr())
  said = printed if isinstance(stopped.value.code, int) else str(stopped.value.code)
  assert stopped.value.code not in (0, None)
  return " ".join(said.replace("│", " ").split())


def option(field):
  return f"--{field.name.replace('_', '-')}"


def fields_of(name, kind):
  """The first fields of a type, in the default settings."""
  config = next(iter(module(name).PRESETS.values()))
  types = typing.get_type_hints(type(config))
  return [
    field
    for field in dataclasses.fields(config)
    if types[field.name] is kind or typing.get_origin(types[field.name]) is kind
  ]


@pytest.mark.parametrize("name", NAMES)
def test_command_line(name, capsys):
  assert "'no such'" in refusal(name, capsys, "--preset", "no such")
  assert "no-such-option" in refusal(name, capsys, "--no-such-option", "1")
  assert "stray" in refusal(name, capsys, "stray")
  assert "--output" in refusal(name, capsys, "--output")
  wrong = {int: ("abc", "2.5"), float: ("abc",), typing.Literal: ("no such",)}
  for kind, texts in wrong.items():
    for field in fields_of(name, kind)[:1]:
      for text in texts:
        said = refusal(name, capsys, option(field), text)
        assert option(field) in said
        assert text in said
  for field in fields_of(name, float)[:1]:
    said = refusal(name, capsys, option(field), "nan")
    assert said == f"{option(field)} must be at least {said.split()[-3]} got nan"


@pytest.mark.parametrize("name", NAMES)
def test_every_number_has_a_least_value(name):
  for config in module(name).PRESETS.values():
    for field in dataclasses.fields(config):
      value = getattr(config, field.name)
      single = value[0] if isinstance(value, tuple) and value else value
      if isinstance(single, bool) or not isinstance(single, (int, float)):
        continue
      worse = (-1, *value[1:]) if isinstance(value, tuple) else -1
      wrong = copy.copy(config)
      object.__setattr__(wrong, field.name, worse)  # past checks of its own
      with pytest.raises(SystemExit, match=rf"^{option(field)} must be .*, got -1$"):
        _cli._check_numbers(wrong, config)
    _cli._check_numbers(config, config)


def test_output_that_is_no_folder(tmp_path):
  (tmp_path / "file").write_text("")
  with pytest.raises(SystemExit, match=r"--output .*file cannot be written to: "):
    _cli._prepare(tmp_path / "file")
  with pytest.raises(SystemExit, match=r"--output .*below cannot be written to: "):
    _cli._prepare(tmp_path / "file" / "below")
  _cli._prepare(tmp_path / "new" / "folder")
  assert not list((tmp_path / "new" / "folder").iterdir())
