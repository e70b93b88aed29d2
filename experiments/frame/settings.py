"""Limits of settings, declared beside the option that they limit.

steps: Annotated[int, MultipleOf("parts")] = 400
"""

import dataclasses
import difflib
import functools
import math
import pathlib
import tomllib
import typing
from collections.abc import Iterator
from typing import Annotated, ClassVar, Protocol, TypeVar

import tyro

Unused = dict[str, tuple[str, ...]]
"""Ineffective settings, by the reason: "without digits among --sets"."""
_T = TypeVar("_T")
Decided = Annotated[_T, tyro.conf.Suppress]
"""Field that the study or the data set decide; not an option of the command line."""


class Settings(Protocol):
  """A dataclass of settings."""

  __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[object]]]


_Settings = TypeVar("_Settings", bound=Settings)


def chosen(kind: type) -> list[str]:
  """Names of the settings that a user may change."""
  hints = typing.get_type_hints(kind, include_extras=True)
  return [
    field.name
    for field in dataclasses.fields(kind)
    if tyro.conf.Suppress not in getattr(hints[field.name], "__metadata__", ())
  ]


def flat(table: dict[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
  """Names and values; settings of a table within have dotted names, as in TOML."""
  for name, value in table.items():
    if isinstance(value, dict):
      yield from flat(value, f"{prefix}{name}.")
    else:
      yield prefix + name, value


def _words(value: object) -> list[str]:
  """A value, or those of a list of lists, as words of a command line."""
  if isinstance(value, list):
    return [word for item in value for word in _words(item)]
  return [str(value)]


def from_file(path: pathlib.Path, preset: _Settings, command: str) -> _Settings:
  """Replaces settings of a preset by those of a TOML file.

  Wrong values end the command, like those of options; other errors are a ValueError.
  """
  try:
    table = tomllib.loads(path.read_text(encoding="utf-8"))
  except OSError as error:
    raise ValueError(f"--config {path} cannot be read: {error.strerror}") from error
  except ValueError as error:
    raise ValueError(f"--config {path} is not TOML: {error}") from error
  kind, arguments = type(preset), []
  names, hints = chosen(kind), typing.get_type_hints(kind)
  for name in table:
    if name not in names:
      near = difflib.get_close_matches(name, names) or names
      raise ValueError(
        f"--config {path} must hold settings of this preset, got {name!r}; there is "
        + ", ".join(near)
      )
  for name, value in flat(table):
    arguments += (
      [f"--{name}", *_words(value)]
      if isinstance(value, list)
      else [f"--{name}={value}"]
    )
  fields = [(name, hints[name], getattr(preset, name)) for name in table]
  read = tyro.cli(
    dataclasses.make_dataclass("File", fields, frozen=True),
    args=arguments,
    prog=f"{command} --config {path}",
    config=(tyro.conf.FlagConversionOff,),
    use_underscores=True,
  )
  return dataclasses.replace(preset, **{name: getattr(read, name) for name in table})


def option(name: str) -> str:
  """A field as it is written on a command line."""
  return f"--{name.replace('_', '-')}"


@dataclasses.dataclass(frozen=True)
class MultipleOf:
  """Limit: the setting is a multiple of another one."""

  other: str

  def check(self, name: str, value: int | tuple[int, ...], settings: Settings) -> None:
    part = getattr(settings, self.other)
    for number in value if isinstance(value, tuple) else (value,):
      if part < 1 or number % part:
        raise ValueError(
          f"{name} must be a multiple of {self.other} = {part}, got {number}"
        )


@dataclasses.dataclass(frozen=True)
class Within:
  """Limit: the setting, or each of its values, lies between two numbers."""

  low: float
  high: float = math.inf

  def check(
    self, name: str, value: float | tuple[float, ...], settings: Settings
  ) -> None:
    del settings
    for number in value if isinstance(value, tuple) else (value,):
      if not self.low <= number <= self.high:
        ends = f"in [{self.low}, {self.high}]"
        allowed = f"at least {self.low}" if self.high == math.inf else ends
        raise ValueError(f"{name} must be {allowed}, got {number}")


@dataclasses.dataclass(frozen=True)
class Without:
  """Limit: the setting does nothing where another one has any of these values."""

  other: str
  value: object
  because: str = ""
  """Reason to report; empty: the value of the other option."""

  def reason(self, settings: Settings) -> str | None:
    value = getattr(settings, self.other)
    if value not in (self.value if isinstance(self.value, tuple) else (self.value,)):
      return None
    if self.because:
      return self.because
    if isinstance(value, bool):
      return f"with {option(self.other if value else f'no_{self.other}')}"
    if not value:
      return f"without {option(self.other)}"
    return f"with {option(self.other)} {value}"


@dataclasses.dataclass(frozen=True)
class Among:
  """Limit: the setting does nothing unless another one lists any of these values."""

  other: str
  values: tuple[str, ...]
  called: str = ""

  def reason(self, settings: Settings) -> str | None:
    if {*self.values} & {*getattr(settings, self.other)}:
      return None
    called = self.called or " or ".join(self.values)
    return f"without {called} among {option(self.other)}"


Limit = MultipleOf | Within | Without | Among


@functools.cache
def _declared(kind: type) -> dict[str, list[Limit]]:
  """The limits of each field, with those that base classes declare."""
  limits: dict[str, list[Limit]] = {}
  for base in kind.__mro__:
    for name, hint in typing.get_type_hints(base, include_extras=True).items():
      listed = limits.setdefault(name, [])
      declared = getattr(hint, "__metadata__", ())
      listed += [x for x in declared if isinstance(x, Limit) and x not in listed]
  return limits


def unused(settings: Settings) -> Unused:
  """Settings that have no effect given the others, by the reason."""
  by_reason: Unused = {}
  for name, limits in _declared(type(settings)).items():
    for limit in limits:
      if isinstance(limit, Without | Among) and (reason := limit.reason(settings)):
        by_reason[reason] = (*by_reason.get(reason, ()), name)
  return by_reason


@dataclasses.dataclass(frozen=True)
class Limited:
  """Settings that refuse values outside of their declared limits."""

  def __post_init__(self) -> None:
    """Raises ValueError that names the setting, its value and the limit."""
    for name, limits in _declared(type(self)).items():
      for limit in limits:
        if not isinstance(limit, Without | Among):
          limit.check(name, getattr(self, name), self)
