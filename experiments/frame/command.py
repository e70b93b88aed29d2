"""The command line that every experiment shares.

``--preset`` selects the defaults and is read first. Every field of the settings is an
option; for a misspelt option, the error suggests the right one.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import jax
import tyro

from experiments.frame import ending, results, settings
from experiments.frame.settings import Settings

_Settings = TypeVar("_Settings", bound=Settings)
_AT_LEAST_ONE = ("seeds", "steps", "batch")
_NONE = object()


class Arguments(NamedTuple):
  """Preset, settings and output folder of one run."""

  preset: str
  config: Any  # of the preset's class
  output: pathlib.Path


def parse(
  presets: Mapping[str, _Settings],
  *,
  name: str,
  doc: str | None,
  arguments: Sequence[str] | None = None,
  short: bool = False,
  unused: Callable[[_Settings], settings.Unused] = lambda _: {},
  resolved: Callable[[_Settings], _Settings] = lambda config: config,
) -> Arguments:
  """Preset, settings and output folder from the command line (or `arguments`).

  `short` is for experiments that compile for as long as they train. An option that has
  no effect given the others, as `unused` tells, is an error. Results of other settings
  are not replaced without `--overwrite`. Results hold the settings that `resolved`
  returns, which fills in open ones.
  """
  first = argparse.ArgumentParser(name, add_help=False, allow_abbrev=False)
  first.add_argument("--preset", default="cpu")
  preset = first.parse_known_args(arguments)[0].preset
  if preset not in presets:
    first.error(f"--preset must be one of {', '.join(presets)}, got {preset!r}")
  config = presets[preset]
  options = _options(presets, preset, pathlib.Path("runs") / name / preset)
  # tyro keeps a line break unless a letter follows.
  text = re.sub(r"(?<=\S)\n(?=\S)", " ", doc or "")
  try:
    parsed = tyro.cli(options, description=text, args=arguments, prog=name)
    _check_values(parsed.config, config)
    _check_used(parsed.config, config, unused(parsed.config))
    _check_used(parsed.config, config, settings.unused(parsed.config))
  except ValueError as error:  # settings that do not fit each other
    option, _, rest = str(error).partition(" ")
    first.error(
      f"{settings.option(option)} {rest}" if hasattr(config, option) else f"{error}"
    )
  if arguments is None:
    _prepare(parsed.output)
    if not parsed.overwrite:
      _keep_results(name, resolved(parsed.config), parsed.output)
    ending.in_one_line(parsed.output)
  if parsed.preset == "smoke":
    _compile_quickly(0, "--xla_llvm_disable_expensive_passes=true")
  elif short:
    _compile_quickly(1)
  _keep_compiled_programs()
  return Arguments(parsed.preset, parsed.config, parsed.output)


def _options(
  presets: Mapping[str, _Settings], preset: str, output: pathlib.Path
) -> type:
  """The class whose fields are the options: the study's, and those of every study."""
  arg, config = tyro.conf.arg, presets[preset]
  preset_names: Any = Literal[tuple(presets)]  # pyright: ignore
  preset_arg = arg(help="Named settings; the options below change single ones.")
  replaces = arg(help="Replaces results of other settings in that folder.")
  flag = Annotated[bool, replaces, tyro.conf.FlagCreatePairsOff]
  return dataclasses.make_dataclass(
    "Options",
    [
      ("preset", Annotated[preset_names, preset_arg], preset),
      ("output", Annotated[pathlib.Path, arg(help="Folder of the results.")], output),
      ("overwrite", flag, False),
      ("config", Annotated[type(config), arg(name="")], config),
    ],
  )


def _check_values(config: Settings, preset: Settings) -> None:
  """Rejects negative numbers, 0 for a run size unless the preset has 0, and repeats."""
  for field in dataclasses.fields(config):
    value, option = getattr(config, field.name), settings.option(field.name)
    least = int(field.name in _AT_LEAST_ONE and getattr(preset, field.name) > 0)
    values = value if isinstance(value, tuple) else (value,)
    for number in values:
      if isinstance(number, (int, float)) and not number >= least:
        raise SystemExit(f"{option} must be at least {least}, got {number}")
    if all(isinstance(x, str) for x in values) and len({*values}) < len(values):
      raise SystemExit(f"{option} must not name anything twice, got {' '.join(values)}")


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
