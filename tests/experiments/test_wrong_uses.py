"""Every entry point refuses what it cannot use before it starts, and names it."""

import copy
import dataclasses
import errno
import os
import re
import tempfile
import typing
from unittest import mock

import pytest

from experiments.frame import command, results, settings
from tests.experiments.entries import NAMES, main, module, replace_run

ENDS = {
  "interrupted": (KeyboardInterrupt(), "stopped; "),
  "no space": (
    OSError(errno.ENOSPC, "No space left on device", "kept.npz"),
    "OSError: [Errno 28] No space left on device: 'kept.npz'; ",
  ),
}
# What stands where the results shall go, and the reason that is given.
FOLDERS = {
  "a file": "File exists",
  "below a file": "Not a directory",
  "read-only": "Read-only file system",
  "full": "No space left on device",
}


def refusal(name, capsys, *arguments):
  """Message for a wrong command line, without frame and line breaks."""
  with pytest.raises(SystemExit) as stopped:
    main(name, *arguments)
  printed = "".join(capsys.readouterr())
  said = printed if isinstance(stopped.value.code, int) else str(stopped.value.code)
  assert stopped.value.code not in (0, None)
  return " ".join(said.replace("│", " ").split())


def option(field):
  return f"--{field.name.replace('_', '-')}"


def fields_of(name, kind):
  """The first field of a type in the default settings, in a list, or none."""
  config = next(iter(module(name).PRESETS.values()))
  options = module(name).STUDY.of(config).options
  # Of fields that are no options the type is annotated.
  types = typing.get_type_hints(type(config), include_extras=True)
  for field in dataclasses.fields(config):
    if options and field.name not in options:
      continue
    hint = types[field.name]
    limits = getattr(hint, "__metadata__", ())
    if limits and all(isinstance(limit, settings.Limit) for limit in limits):
      hint = hint.__origin__
    if kind in (hint, typing.get_origin(hint)):
      return [field]
  return []


# Command lines and what of them the answer must name.
ALWAYS = {
  "unknown preset": (("--preset", "no such"), ("--preset", "'no such'", "one of")),
  "empty preset": (("--preset", ""), ("--preset", "''", "one of")),
  "no preset": (("--preset",), ("--preset", "expected")),
  "unknown option": (("--no-such-option", "1"), ("--no-such-option", "nrecognized")),
  "stray word": (("stray",), ("stray", "nrecognized")),
  "no output": (("--output",), ("--output", "Missing value")),
}
# The first option of a type, wrong texts for it and what the answer must say.
BY_TYPE = {
  int: (("abc", "int"), ("2.5", "int"), ("", "int"), ("-1", "must be")),
  float: (("abc", "float"), ("nan", "at least"), ("-0.5", "at least")),
  typing.Literal: (("no such", "nvalid choice"),),
}


def command_lines(name):
  """(arguments, what the answer must name) of every wrong command line."""
  yield from ALWAYS.values()
  for kind, texts in BY_TYPE.items():
    for field in fields_of(name, kind):
      for text, allowed in texts:
        yield (f"{option(field)}={text}",), (option(field)[2:], text, allowed)


# Quickly all at the first entry points, every fifth at the others: see the frame.
SWEEP = [
  *(
    pytest.param(name, slice(None) if k < 2 else slice(k % 5, None, 5), id=name)
    for k, name in enumerate(NAMES)
  ),
  *(
    pytest.param(name, slice(None), id=f"{name}-all", marks=pytest.mark.slow)
    for name in NAMES[2:]
  ),
]


@pytest.mark.parametrize(("name", "which"), SWEEP)
def test_command_line(name, which, capsys, monkeypatch, tmp_path):
  monkeypatch.chdir(tmp_path)
  replace_run(monkeypatch, lambda *_: pytest.fail("it started"))
  lines, first = list(command_lines(name)), next(iter(module(name).PRESETS))
  for arguments, named in lines[which]:
    default = () if "--preset" in arguments else ("--preset", first)
    said = refusal(name, capsys, *default, *arguments)
    for text in named:
      assert text in said, (arguments, said)
  assert not list(tmp_path.iterdir())  # nothing was begun


def test_methods_are_choices(capsys):
  said = refusal("dynamic_assignment", capsys, "--preset", "cpu", "--methods", "PSD")
  assert "'PSD'" in said
  assert "DL2P" in said


# An experiment, its preset, settings that do nothing beside the others, of which those
# with "=" stand in a file, and the reason.
UNUSED = (
  ("norm_count cpu --supervised-weights file", "without stl10 or voc among --sets"),
  ("norm_count voc --grids 10", "without a set of objects"),
  ("norm_count table-1 --shots 1", "without episodes among --measures"),
  ("norm_count smoke --train-images 9", "without mnist or cifar10"),
  ("voronoi cpu --percent 50", "with --images digits"),
  ("voronoi full --train-images 2 --images mnist", "with --images mnist"),
  ("robust_features cifar10 --studies defences", "with --images cifar10"),
  ("robust_features digits photographs.percent=50", "with --images digits"),
  ("robust_features cpu noise=[1.0]", "with --images cifar10_16"),
  ("plankton cpu --folder x", "with --data ndsb_plankton"),
  ("plankton full --percent 50", "with --data folder"),
  ("plankton full seen_from=50", "with --seen article"),
  ("few_shot full --percent 50", "with --images cub"),
  ("few_shot omniglot --folder x", "with --images omniglot"),
  ("few_shot cpu --augment", "with --backbone efficientnet_lite0"),
  ("class_hierarchy cpu --data nabirds --percent 50", "with --data nabirds"),
  ("class_hierarchy cpu --folder x", "with --data"),
  ("class_hierarchy cpu --width 9", "with --network efficientnet_lite0"),
  ("ccp_proxies smoke --digit-images 2 2", "with --data gaussians"),
  ("ccp_proxies cpu --digit-images 2 2", "with --data cars196"),
  ("projector_collapse cpu warm_up=9", "with --at-once"),
  ("projector_collapse full probe_every=9", "with --no-at-once"),
  ("projector_collapse full --widths 9 9 9", "with --encoder resnet18"),
  ("projector_collapse smoke --image-size 9", "with --images digits"),
  ("projector_collapse long toy_seeds=9", "without --toys"),
  ("retrieval smoke mass=0.5", "without --gsp-methods"),
  ("retrieval smoke --memory-losses --memory-start 2", "without --memory-losses"),
  ("retrieval full memory=3", "with --methods c2 c2+ccp"),
  ("retrieval full --methods soft_triple weight=1.0", "--methods soft_triple"),
  ("retrieval full --methods c1+xbm zero_shot=0.2", "--methods c1+xbm"),
)


@pytest.mark.parametrize(("line", "reason"), UNUSED)
def test_an_unused_setting(line, reason, capsys, monkeypatch, tmp_path):
  name, preset, *arguments = line.split()
  replace_run(monkeypatch, lambda *_: pytest.fail("it started"))
  lines = [x for x in arguments if "=" in x]
  (file := tmp_path / "settings.toml").write_text("\n".join(lines))
  options = [x for x in arguments if x not in lines]
  said = refusal(name, capsys, "--preset", preset, "--config", file, *options)
  assert reason in said, said
  named = [x for x in options if x.startswith("--")] + [
    re.split("[.=]", x)[0] for x in lines
  ]
  assert any(f"{setting} does nothing" in said for setting in named), said


@pytest.mark.parametrize("name", NAMES)
def test_presets_have_no_option_that_does_nothing(name, monkeypatch, tmp_path):
  monkeypatch.chdir(tmp_path)
  begun = mock.Mock(return_value={"rows": [], "seconds": 0})
  replace_run(monkeypatch, begun)
  monkeypatch.setattr(results, "write", lambda *_: None)
  for preset in module(name).PRESETS:
    main(name, "--preset", preset)
  assert begun.call_count == len(module(name).PRESETS)


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
      with pytest.raises(ValueError, match=rf"^{option(field)} must be .*, got -1$"):
        command._check_values(wrong, config)
    command._check_values(config, config)


def in_turn(ends):
  """All of them at the first entry points, one at each of the others: see the frame."""
  ends = list(ends)
  for k, name in enumerate(NAMES):
    yield from ((name, end) for end in (ends if k < 2 else ends[k % len(ends) :][:1]))


@pytest.mark.parametrize(("name", "folder"), [*in_turn(FOLDERS)])
def test_output_that_cannot_be_written_to(name, folder, capsys, monkeypatch, tmp_path):
  def refuse(**_):
    number = {"read-only": errno.EROFS, "full": errno.ENOSPC}[folder]
    raise OSError(number, os.strerror(number))

  (tmp_path / "a file").write_text("")
  output = tmp_path / ("a file/below" if folder == "below a file" else folder)
  if folder in ("read-only", "full"):  # root may write anywhere
    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
  replace_run(monkeypatch, lambda *_: pytest.fail("it started"))
  said = refusal(name, capsys, "--output", output)
  assert said == f"--output {output} cannot be written to: {FOLDERS[folder]}"


@pytest.mark.parametrize(("name", "end"), [*in_turn(ENDS)])
def test_a_run_that_ends_early(name, end, capsys, monkeypatch, tmp_path):
  error, said = ENDS[end]
  replace_run(monkeypatch, mock.Mock(side_effect=error))
  with pytest.raises(type(error)):
    main(name, "--output", tmp_path)
  rest = "nothing is kept yet; the same command begins anew"
  assert capsys.readouterr().err == f"\n{said}{rest}\n"


# What a preset reads.
IMAGE_SETS = {
  "class_hierarchy smoke": "ndsb_plankton", "few_shot smoke": "omniglot",
  "gap_prototypes smoke": "cifar10", "gsp_attributes smoke": "cifar10",
  "gsp_collage smoke": "omniglot", "gsp_screening smoke": "omniglot",
  "norm_count voc": "voc", "plankton smoke": "ndsb_plankton",
  "retrieval cpu": "cars196", "voronoi full": "cifar10",
}  # fmt: skip


@pytest.mark.parametrize("where", IMAGE_SETS)
def test_images_that_are_not_there(where, capsys, monkeypatch, tmp_path):
  def said():
    return refusal(name, capsys, "--preset", preset, "--output", tmp_path / "new")

  name, preset = where.split()
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "nowhere"))
  missing = said()
  assert f"reads the image set {IMAGE_SETS[where]}" in missing
  assert f"TFDS_DATA_DIR={tmp_path / 'nowhere'} is not a folder" in missing
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
  missing = said()
  assert IMAGE_SETS[where] in missing
  assert str(tmp_path) in missing
  monkeypatch.delenv("TFDS_DATA_DIR")
  assert "TFDS_DATA_DIR is not set" in said()
  assert not list((tmp_path / "new").iterdir())  # nothing was begun
