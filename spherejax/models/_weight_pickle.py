"""Reads pickles of tensors without running their code, unlike Python's own reader.

Objects are numbers, text, tuples, lists, dictionaries and results of the caller's
functions. Time and memory grow with the length of the pickle, whatever it claims: an
announced length reserves no memory, and only objects that hash quickly may be keys
(nested tuples, each twice in the next, would take for ever).
"""

import pickletools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

# Opcodes whose argument is the object itself.
_VALUES = frozenset(
  {"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"}
  | {"STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE"}
  | {"SHORT_BINUNICODE", "BINUNICODE8", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8"}
)
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_LONGEST_KEY = 1 << 16
_MOST_ARGUMENTS = 16


class RefusedError(ValueError):
  """Raised when a pickle asks for something other than a tensor."""


class Global(NamedTuple):
  """Placeholder for a global that a pickle may name."""

  name: str
  call: Callable[..., Any] | None = None


class Reader:
  """Reads one pickle.

  Args:
    known: globals it may name, as "module name".
    stored: returns the object at an address outside the pickle.
  """

  def __init__(self, known: Mapping[str, Global], stored: Callable[[Any], Any]):
    self._known = known
    self._stored = stored
    self._stack: list[Any] = []
    self._below: list[list[Any]] = []  # stacks under the marks
    self._memo: dict[int, Any] = {}

  def load(self, pickled: Any) -> Any:
    """Loads the object; raises RefusedError, or any exception for a damaged pickle.

    Args:
      pickled: bytes, or an object with `read`, `readline` and `tell`, which stops after
        the pickle.
    """
    argument: Any
    for opcode, argument, _ in pickletools.genops(pickled):
      name = opcode.name
      if name in _VALUES:
        self._push(argument)
      elif name in _CONSTANTS:
        self._push(_CONSTANTS[name])
      elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
        self._memo[argument] = self._stack[-1]
      elif name in ("GET", "BINGET", "LONG_BINGET"):
        self._push(self._memo[argument])
      elif name not in ("PROTO", "FRAME", "STOP"):
        step = _STEPS.get(name)
        if step is None:
          raise RefusedError(f"it has the opcode {name}, which makes no tensor")
        step(self, argument)
    return self._stack.pop()

  def _push(self, value: Any) -> None:
    self._stack.append(value)

  def _mark(self, _: Any) -> None:
    self._below.append(self._stack)
    self._stack = []

  def _marked(self) -> list[Any]:
    """Takes off and returns the items since the last mark."""
    items, self._stack = self._stack, self._below.pop()
    return items

  def _last(self, count: int) -> list[Any]:
    return [self._stack.pop() for _ in range(count)][::-1]

  def _pop(self, _: Any) -> None:
    self._last(1) if self._stack else self._marked()

  def _memoize(self, _: Any) -> None:
    self._memo[len(self._memo)] = self._stack[-1]

  def _extend(self, items: list[Any]) -> None:
    target = self._stack[-1]
    if type(target) is not list:
      raise ValueError(f"it appends to a {type(target).__name__}")
    target += items

  def _set(self, items: list[Any]) -> None:
    target = self._stack[-1]
    if type(target) is not dict:
      raise ValueError(f"it sets items of a {type(target).__name__}")
    for key, value in zip(items[::2], items[1::2], strict=True):
      if not _is_key(key):
        raise RefusedError(f"it has a key that is no name, a {type(key).__name__}")
      target[key] = value

  def _global(self, path: str) -> None:
    if path not in self._known:
      name = path.replace(" ", ".", 1)
      raise RefusedError(f"it asks for {name}, which is no plain tensor")
    self._push(self._known[path])

  def _stack_global(self, _: Any) -> None:
    name, module = self._stack.pop(), self._stack.pop()
    if type(name) is not str or type(module) is not str:
      raise ValueError("it names something by other than text")
    self._global(f"{module} {name}")

  def _instance(self, path: str) -> None:
    arguments = tuple(self._marked())
    self._global(path)
    self._push(arguments)
    self._call(None)

  def _call(self, _: Any) -> None:
    arguments, function = self._stack.pop(), self._stack.pop()
    if type(function) is not Global or function.call is None:
      called = function.name if type(function) is Global else type(function).__name__
      raise RefusedError(f"it calls {called}")
    if type(arguments) is not tuple or len(arguments) > _MOST_ARGUMENTS:
      raise ValueError(f"it calls {function.name} with other than its arguments")
    self._push(function.call(*arguments))

  def _build(self, _: Any) -> None:
    """Drops the attributes that torch attaches to dictionaries."""
    self._stack.pop()
    target = self._stack[-1]
    if type(target) is not dict:
      named = target.name if type(target) is Global else type(target).__name__
      raise RefusedError(f"it changes {named}")

  def _persistent(self, _: Any) -> None:
    self._push(self._stored(self._stack.pop()))


def _is_key(key: object) -> bool:
  if isinstance(key, str):
    return len(key) < _LONGEST_KEY
  return key is None or (isinstance(key, (int, float)) and abs(key) < 1 << 63)


_STEPS: dict[str, Callable[[Reader, Any], Any]] = {
  "MARK": Reader._mark,
  "POP": Reader._pop,
  "POP_MARK": lambda reader, _: reader._marked(),
  "DUP": lambda reader, _: reader._push(reader._stack[-1]),
  "MEMOIZE": Reader._memoize,
  "TUPLE": lambda reader, _: reader._push(tuple(reader._marked())),
  "TUPLE1": lambda reader, _: reader._push(tuple(reader._last(1))),
  "TUPLE2": lambda reader, _: reader._push(tuple(reader._last(2))),
  "TUPLE3": lambda reader, _: reader._push(tuple(reader._last(3))),
  "EMPTY_LIST": lambda reader, _: reader._push([]),
  "EMPTY_DICT": lambda reader, _: reader._push({}),
  "APPEND": lambda reader, _: reader._extend(reader._last(1)),
  "APPENDS": lambda reader, _: reader._extend(reader._marked()),
  "SETITEM": lambda reader, _: reader._set(reader._last(2)),
  "SETITEMS": lambda reader, _: reader._set(reader._marked()),
  "GLOBAL": Reader._global,
  "STACK_GLOBAL": Reader._stack_global,
  "INST": Reader._instance,
  "REDUCE": Reader._call,
  "BUILD": Reader._build,
  "BINPERSID": Reader._persistent,
}
