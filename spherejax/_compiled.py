"""Compiles public functions, unless the caller compiles them.

Outside jit, a JAX function dispatches each operation on its own and compiles its loops
again at every call. Here the function is compiled as a whole, once for each set of
shapes, types and static arguments. Inside a caller's jit it is simply called.

A function checks known values (labels out of range, a negative radius) while it is
traced, when all values look unknown. `peek` passes the values to these checks, and
repeats the checks at every later call, before the program runs.
"""

import collections.abc
import contextlib
import functools
import inspect
import sys
import threading
import types
import typing
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from spherejax import _arguments
from spherejax._versions import get_opaque_trace_state

_MOST = 512
"""Number of programs that one function keeps, those used last."""
_MOST_WITH_FUNCTIONS = 16
"""Likewise for programs that hold the user's functions, and what these hold."""

_PROBE = np.zeros((), np.float32)
with jax.ensure_compile_time_eval():
  _OUTSIDE = get_opaque_trace_state()


def room(
  module: str, *, host: Collection[str] = (), callbacks: Collection[str] = ()
) -> None:
  """Compiles the exported functions of a sub-package that return JAX arrays.

  Call it at the end of the `__init__`; type checkers see the original functions.

  Args:
    module: its full name.
    host: functions that work on the host, and compile parts themselves.
    callbacks: parameters for functions that may create variables of a Flax module. A
      call with such a function is not compiled: the variables would stay traced.
  """
  names = vars(sys.modules[module])
  for name in names["__all__"]:
    function = names[name]
    if not isinstance(function, types.FunctionType) or name in host:
      continue
    if _holds_arrays(inspect.signature(function).return_annotation):
      # Pickle looks for a function in the module that it names.
      place = vars(sys.modules[function.__module__])
      place[name] = names[name] = _compiled(function, callbacks)


def _compiled(
  function: Callable[..., Any], callbacks: Collection[str] = ()
) -> Callable[..., Any]:
  parameters = inspect.signature(function).parameters
  traced = {name: _holds_arrays(p.annotation) for name, p in parameters.items()}
  # A tuple of numbers, such as means by channel, is no tuple of arrays.
  listed = {name for name, p in parameters.items() if "Sequence[" in str(p.annotation)}
  defaults = {
    name: p.default for name, p in parameters.items() if p.default is not p.empty
  }
  positional = [n for n, p in parameters.items() if p.kind is not p.KEYWORD_ONLY]
  programs = _Programs(function)

  @functools.wraps(function)
  def call(*args: Any, **kwargs: Any) -> Any:
    arguments = dict(zip(positional, args, strict=False))
    if (
      len(args) > len(positional)
      or arguments.keys() & kwargs.keys()
      or not kwargs.keys() <= traced.keys()
      or any(callable(kwargs.get(name)) for name in callbacks)
      or is_inside(*arguments.values(), *kwargs.values())
    ):
      return function(*args, **kwargs)
    arguments = defaults | arguments | kwargs
    data: list[Any] = []
    try:
      parts = {}
      for name, x in arguments.items():
        is_data = traced[name] and not (name in listed and isinstance(x, tuple))
        parts[name] = _arguments.take(x, is_data, data)
      return programs.run(parts, data)
    except _arguments.Unknown:
      pass
    return function(*args, **kwargs)

  return call


def _holds_arrays(annotation: Any) -> bool:
  """True if an annotation names arrays of JAX, and not only of NumPy."""
  for kind in "array_type", "leaftype":  # jaxtyping's arrays and trees
    annotation = getattr(annotation, kind, annotation)
  if isinstance(annotation, typing.TypeVar):
    return True
  if isinstance(annotation, type):
    fields = annotation.__annotations__ if _arguments.is_record(annotation) else {}
    return annotation is jax.Array or any(map(_holds_arrays, fields.values()))
  if typing.get_origin(annotation) is collections.abc.Callable:
    return False
  return any(map(_holds_arrays, typing.get_args(annotation)))


def is_inside(*args: Any) -> bool:
  """True if the caller runs inside a program that is being compiled."""
  if jax.config.jax_disable_jit:  # pyright: ignore[reportAttributeAccessIssue]
    return True
  if get_opaque_trace_state() == _OUTSIDE:
    return False
  # A shortcut for most calls; the result would be right without it.
  if any(type(arg).__name__ == "DynamicJaxprTracer" for arg in args):
    return True
  # Under grad and vmap alone an array stays an array.
  return isinstance(jnp.asarray(_PROBE), jax.core.Tracer)


def at_once(*args: Any) -> contextlib.AbstractContextManager:
  """Computes the block while the program is traced, if no argument is traced."""
  if any(isinstance(_arguments.unwrapped(arg), jax.core.Tracer) for arg in args):
    return contextlib.nullcontext()
  return jax.ensure_compile_time_eval()


# --- Programs, and the checks of their functions on values ---


class _Tracing(threading.local):
  """Program that this thread traces, if any."""

  program: "_Program | None" = None


_tracing = _Tracing()


def peek(check: Callable[..., Any], *args: Any) -> Any:
  """Returns check(*args), with values in place of a program's traced arguments.

  Values that the caller traces stay traced, and `check` must skip them. The result of
  `check`, such as None, a number or a sharding, selects the program.
  """
  program = _tracing.program
  return check(*args) if program is None else program.peek(check, args)


def check(function: Callable[..., Any]) -> Callable[..., Any]:
  """Wraps a function so that `peek` calls it."""

  @functools.wraps(function)
  def checked(*args: Any, **kwargs: Any) -> Any:
    if _tracing.program is None:
      return function(*args, **kwargs)
    named = functools.partial(_named, function, tuple(kwargs))
    return _tracing.program.peek(named, (*args, *kwargs.values()))

  return checked


def _named(function: Callable[..., Any], names: tuple[str, ...], *args: Any) -> Any:
  first = len(args) - len(names)
  return function(*args[:first], **dict(zip(names, args[first:], strict=True)))


def known(check: Callable[..., Any], *args: Any) -> Any:
  """Calls `peek`; returns None where a value is traced, or partly on other hosts."""
  return peek(functools.partial(_if_known, check), *args)


def _if_known(check: Callable[..., Any], *args: Any) -> Any:
  args = tuple(map(_arguments.unwrapped, args))
  for arg in args:
    if isinstance(arg, jax.core.Tracer):
      return None
    if isinstance(arg, jax.Array) and not arg.is_fully_addressable:
      return None
  return check(*args)


def derived(compute: Callable[..., Any], *args: Any) -> Any:
  """Returns compute(*args), NumPy arrays computed from known values; else None.

  Use it for computations that need more digits than JAX has, or the host. In a program
  the result is computed before each call, and is data like the arguments.
  """
  program = _tracing.program
  function = functools.partial(_if_known, compute)
  return function(*args) if program is None else program.derive(function, args)


def leave() -> None:
  """Makes the current program call its function without compilation."""
  if _tracing.program is not None:
    raise _arguments.Unknown


def same(new: Any, old: Any) -> Any:
  """Returns `new`, and tells `peek` that its values equal those of `old`."""
  program = _tracing.program
  if program is not None:
    program.tell(new, old)
  return new


class _Peek(NamedTuple):
  """Check and its result; `places` are the places of arguments that are data."""

  check: Callable[..., Any]
  args: tuple[Any, ...]
  places: tuple[int | None, ...]
  returned: Any

  def again(self, data: list[Any]) -> Any:
    """Result of the check on other data."""
    pairs = zip(self.args, self.places, strict=True)
    return self.check(*(arg if place is None else data[place] for arg, place in pairs))


_OTHER = object()


class _Again(Exception):
  """Raised to trace the function again with one more array of data."""


class _Program:
  """Compiled program for calls that differ in their data."""

  def __init__(self, function: Callable[..., Any], parts: dict[str, Any]):
    self._function, self._parts = function, parts
    self._peeks: list[_Peek] = []
    self._derived: list[_Peek] = []

    def run(data: list[Any], derived: list[Any]) -> list[Any]:
      return self._body(data, derived)

    run.__name__ = run.__qualname__ = function.__name__  # for profiles
    self._run = jax.jit(run)
    self._first: list[Any] | None = None

  def first(self, data: list[Any]) -> Any:
    """Traces, compiles and runs."""
    self._first = data
    try:
      while True:
        self._peeks.clear()
        try:
          results = self._run(data, [look.returned for look in self._derived])
          return self._complete(results)
        except _Again:
          continue
    finally:
      self._first = None

  def again(self, data: list[Any]) -> Any:
    """Runs the program if all checks return the same again; else returns `_OTHER`."""
    for look in self._peeks:
      if look.again(data) != look.returned:
        return _OTHER
    derived = [look.again(data) for look in self._derived]
    return self._complete(self._run(data, derived))

  def peek(self, check: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Implements the function `peek`; keeps the check."""
    look, lasting = self._look(check, args)
    if lasting:
      self._peeks.append(look)
    return look.returned

  def derive(self, compute: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Implements `derived`."""
    look, lasting = self._look(compute, args)
    if not lasting:
      return look.returned
    if self.peek(lambda *values: compute(*values) is None, args):
      return None
    self._number += 1
    if self._number > len(self._derived):
      self._derived.append(look)
      raise _Again
    return self._tracers[self._number - 1]

  def _look(
    self, check: Callable[..., Any], args: tuple[Any, ...]
  ) -> tuple[_Peek, bool]:
    """Runs a check; also returns whether it can be run again."""
    assert self._first is not None
    places = tuple(self._place.get(id(arg)) for arg in args)
    rest = tuple(a if at is None else None for a, at in zip(args, places, strict=True))
    look = _Peek(check, rest, places, None)
    look = look._replace(returned=look.again(self._first))
    here = any(place is not None for place in places)
    return look, here and not any(isinstance(x, jax.core.Tracer) for x in rest)

  def tell(self, new: Any, old: Any) -> None:
    """Implements `same`."""
    if id(old) in self._place:
      self._place[id(new)] = self._place[id(old)]
      self._alive.append(new)

  def _body(self, data: list[Any], derived: list[Any]) -> list[Any]:
    outer = _tracing.program
    # Not the first call: JAX traces again after a change of its settings.
    if self._first is not None:
      _tracing.program = self
    self._place = {id(leaf): place for place, leaf in enumerate(data)}
    self._alive = list(data)  # keeps ids from being reused
    self._tracers, self._number = derived, 0
    rest = iter(data)
    arguments = {name: _arguments.put(part, rest) for name, part in self._parts.items()}
    try:
      returned = self._function(**arguments)
    finally:
      _tracing.program = outer
      self._place, self._alive, self._tracers = {}, [], []
    leaves, self._tree = jax.tree.flatten(returned)
    self._fixed = [None if isinstance(x, jax.Array) else (x,) for x in leaves]
    return [x for x in leaves if isinstance(x, jax.Array)]

  def _complete(self, results: list[Any]) -> Any:
    arrays = iter(results)
    leaves = [next(arrays) if fixed is None else fixed[0] for fixed in self._fixed]
    return jax.tree.unflatten(self._tree, leaves)


def _hold_functions(parts: Iterable[Any]) -> bool:
  """True if functions are among the static parts, alone or in a tuple."""
  static = [part.value for part in parts if isinstance(part, _arguments.Keyed)]
  return any(map(callable, jax.tree.leaves(static)))


class _Programs:
  """Programs of one function."""

  def __init__(self, function: Callable[..., Any]):
    self._function = function
    self._plain = functools.lru_cache(_MOST)(self._none_yet)
    self._with_functions = functools.lru_cache(_MOST_WITH_FUNCTIONS)(self._none_yet)

  @staticmethod
  def _none_yet(wide: Any, parts: Any) -> list[_Program]:
    return []

  def run(self, parts: dict[str, Any], data: list[Any]) -> Any:
    """Runs a call by an existing program or by a new one."""
    of = self._with_functions if _hold_functions(parts.values()) else self._plain
    wide = jax.dtypes.canonicalize_dtype(np.float64)
    programs = of(wide, tuple(parts.items()))
    for program in programs:
      result = program.again(data)
      if result is not _OTHER:
        return result
    program = _Program(self._function, parts)
    result = program.first(data)
    programs.append(program)
    return result
