"""The command line that every experiment shares.

``--preset`` selects the defaults, and the file of ``--config`` replaces some of them. A
study names the settings that are options, too; these replace both. For a misspelt
option, the error suggests the right one.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import tempfile
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Generic, NamedTuple, TypeVar

import jax
import tyro

from experiments.frame import ending, results, settings
from experiments.frame.settings import Settings

_Settings = TypeVar("_Settings", bound=Settings)
_AT_LEAST_ONE = ("seeds", "steps", "batch")
_NONE = object()


class Arguments(NamedTuple, Generic[_Settings]):
  """Preset, settings and output folder of one run."""

  preset: str
  config: _Settings
  output: pathlib.Path


def parse(
  presets: Mapping[str, _Settings],
  *,
  name: str,
  doc: str | None,
  arguments: Sequence[str] | None = None,
  short: bool = False,
  options: Callable[[_Settings], Sequence[str]] = lambda _: (),
  unused: Callable[[_Settings], settings.Unused] = lambda _: {},
  resolved: Callable[[_Settings], _Settings] = lambda config: config,
) -> Arguments[_Settings]:
  """Preset, settings and output folder from the command line (or `arguments`).

  `options` names the settings that are options; without names, all are. `short` is for
  experiments that compile for as long as they train. A setting that has no effect given
  the others, as `unused` tells, is an error. Results of other settings are not replaced
  without `--overwrite`. Results hold the settings that `resolved` returns, which fills
  in open ones.
  """
  first = argparse.ArgumentParser(name, add_help=False, allow_abbrev=False)
  first.add_argument("--preset", default="cpu")
  first.add_argument("--config", type=pathlib.Path)
  early, rest = first.parse_known_args(arguments)
  if early.preset not in presets:
    first.error(f"--preset must be one of {', '.join(presets)}, got {early.preset!r}")
  preset = presets[early.preset]
  kind, further = type(preset), _further(type(preset), options(preset))
  # tyro keeps a line break unless a letter follows.
  text = re.sub(r"(?<=\S)\n(?=\S)", " ", doc or "")
  if further:
    text += (
      f"\n\nThe file of --config has lines like `seed = 1`. Further settings, for the"
      f" file only, are explained in {kind.__module__}: {', '.join(further)}."
    )
  try:
    _check_options(rest, further)
    config = preset
    if early.config:
      config = settings.from_file(early.config, preset, name)
    output = pathlib.Path("runs") / name / early.preset
    every = _options(list(presets), early.preset, output, config, further)
    parsed = tyro.cli(every, description=text, args=arguments, prog=name)
    config = only(kind, parsed.settings)
    _check_values(config, preset)
    _check_used(config, preset, unused(config))
    _check_used(config, preset, settings.unused(config))
  except ValueError as error:  # settings that do not fit each other
    first.error(_message(error, preset, further))
  if arguments is None:
    _prepare(parsed.output)
    if not parsed.overwrite:
      _keep_results(name, resolved(config), parsed.output)
    ending.in_one_line(parsed.output)
  if parsed.preset == "smoke":
    _compile_quickly(0, "--xla_llvm_disable_expensive_passes=true")
  elif short:
    _compile_quickly(1)
  _keep_compiled_programs()
  return Arguments(parsed.preset, config, parsed.output)


def _message(error: ValueError, preset: Settings, further: Sequence[str]) -> str:
  """The message of an error; options are written as such, and others as in a file."""
  name, _, rest = str(error).partition(" ")
  text = f"{settings.option(name)} {rest}" if hasattr(preset, name) else f"{error}"
  for setting in further:
    text = re.sub(rf"{settings.option(setting)}(?![\w-])", setting, text)
  return text


def _further(kind: type, options: Sequence[str]) -> list[str]:
  """The settings that are no options."""
  return [x for x in settings.chosen(kind) if options and x not in options]


def _options(
  presets: list[str],
  preset: str,
  output: pathlib.Path,
  config: Settings,
  further: Sequence[str],
) -> type:
  """The class whose fields are the options: the study's, and those of every study."""
  arg = tyro.conf.arg
  preset_names = tyro.extras.literal_type_from_choices(presets)
  preset_arg = arg(help="Named settings; the options below change single ones.")
  file_arg = arg(
    name="config", metavar="FILE", help_behavior_hint="",
    help="TOML file of settings, which options replace.",
  )  # fmt: skip
  replaces = arg(help="Replaces results of other settings in that folder.")
  flag = Annotated[bool, replaces, tyro.conf.FlagCreatePairsOff]
  # A subclass keeps the help texts, which tyro reads from the source of the class.
  hints = typing.get_type_hints(type(config), include_extras=True)
  hidden = [
    (name, Annotated[hints[name], tyro.conf.Suppress], getattr(config, name))
    for name in further
  ]
  kind = dataclasses.make_dataclass(
    "Settings", hidden, bases=(type(config),), frozen=True
  )
  return dataclasses.make_dataclass(
    "Options",
    [
      ("preset", Annotated[preset_names, preset_arg], preset),
      ("output", Annotated[pathlib.Path, arg(help="Folder of the results.")], output),
      ("overwrite", flag, False),
      ("file", Annotated[pathlib.Path | None, file_arg], None),
      ("settings", Annotated[kind, arg(name="")], only(kind, config)),
    ],
  )


def _check_options(words: Sequence[str], further: Sequence[str]) -> None:
  """Raises ValueError for a setting among the words that is no option."""
  for word in words:
    name = re.sub("^--(no-)?", "", re.split("[=.]", word)[0]).replace("-", "_")
    if word.startswith("--") and name in further:
      raise ValueError(f"{name} is no option: set it in the file of --config")


def _check_values(config: Settings, preset: Settings) -> None:
  """Rejects negative numbers, 0 for a run size unless the preset has 0, and repeats."""
  for field in dataclasses.fields(config):
    value, option = getattr(config, field.name), settings.option(field.name)
    least = int(field.name in _AT_LEAST_ONE and getattr(preset, field.name) > 0)
    values = value if isinstance(value, tuple) else (value,)
    for number in values:
      if isinstance(number, (int, float)) and not number >= least:
        raise ValueError(f"{option} must be at least {least}, got {number}")
    if all(isinstance(x, str) for x in values) and len({*values}) < len(values):
      raise ValueError(f"{option} must not name anything twice, got {' '.join(values)}")


def _check_used(config: Settings, preset: Settings, unused: settings.Unused) -> None:
  """Raises ValueError for a setting that was changed and does nothing."""
  for reason, names in unused.items():
    for name in names:
      if (value := getattr(config, name)) != getattr(preset, name):
        option = settings.option(name)
        raise ValueError(f"{option} does nothing {reason}: leave it out, got {value!r}")


def _prepare(output: pathlib.Path) -> None:
  """Creates the folder; checks that it can be written to before any work is done."""
  try:
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=output):
      pass
  except OSError as error:
    reason = error.strerror or error
    raise SystemExit(f"--output {output} cannot be written to: {reason}") from error


def _keep_results(name: str, config: Settings, output: pathlib.Path) -> None:
  """Raises SystemExit where the folder has results that this run would replace."""
  path = output / "results.json"
  if not path.exists():
    return
  try:
    existing = json.loads(path.read_text(encoding="utf-8"))
    experiment, old = existing["experiment"], dict(existing["settings"])
  except (OSError, ValueError, TypeError, KeyError):
    experiment, old = None, {}
  if experiment != name:
    content = (
      f"results of {experiment}" if experiment else "a results.json of another kind"
    )
  else:
    new = json.loads(json.dumps(results.standard(dataclasses.asdict(config))))
    names = [x for x in old | new if old.get(x, _NONE) != new.get(x, _NONE)]
    if not names:
      return
    changes = [
      f"{x} was {old.get(x, 'not there')}, is {new.get(x, 'not there')}"
      for x in names[:3]
    ]
    more = f", and {len(names) - 3} more" if len(names) > 3 else ""
    content = f"results of other settings ({'; '.join(changes)}{more})"
  raise SystemExit(
    f"--output {output} holds {content}: choose another folder, or pass "
    "--overwrite to replace them"
  )


def _compile_quickly(level: int, *flags: str) -> None:
  """Lowers XLA's optimisation level; works only before jax first uses a device."""
  level_flag = f"--xla_backend_optimization_level={level}"
  user_flags = os.environ.get("XLA_FLAGS", "")  # of two equal flags, the last counts
  os.environ["XLA_FLAGS"] = " ".join([level_flag, *flags, user_flags]).strip()


def _keep_compiled_programs() -> None:
  """Keeps compiled programs on disk, so that a second run starts at once."""
  if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    jax.config.update("jax_compilation_cache_dir", str(pathlib.Path("runs/.jax_cache")))
  if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)


def only(kind: type[_Settings], settings: Settings) -> _Settings:
  """Selects the fields of `kind` from settings that have more."""
  names = [field.name for field in dataclasses.fields(kind)]  # pyright: ignore
  return kind(**{name: getattr(settings, name) for name in names})
