"""Splits the arguments of a call into data and keys of everything else.

A program keeps the objects that its function read when it was traced: a network's
variables in a lambda, a global name. Two functions count as one only if both come from
the same code and hold the same objects.
"""

import functools
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

_LIBRARIES = "jax", "flax", "optax", "spherejax"
"""Libraries whose globals are constant."""


class Unknown(Exception):
  """Raised for a value that no key tells from others."""


class _Same:
  """Wraps an object so that it equals only itself."""

  __slots__ = ("value",)

  def __init__(self, value: Any):
    self.value = value

  def __eq__(self, other: object) -> bool:
    return isinstance(other, _Same) and self.value is other.value

  def __hash__(self) -> int:
    return id(self.value)


class Keyed(NamedTuple):
  """Value with a key; values with equal keys are equal."""

  key: Any
  value: Any

  def __eq__(self, other: object) -> bool:
    return isinstance(other, Keyed) and self.key == other.key

  def __hash__(self) -> int:
    return hash(self.key)


def keyed(value: Any) -> Keyed:
  """Wraps a value so that it equals all values that may share a program with it.

  Raises `Unknown` if nothing distinguishes it from others.
  """
  return Keyed(_key(value), value)


class Function:
  """A function that equals all functions that may share a program with it."""

  def __init__(self, function: Callable[..., Any]):
    try:
      self._keyed = keyed(function)
    except Unknown:
      self._keyed = Keyed(_Same(self), function)

  def __call__(self, *args: Any, **kwargs: Any) -> Any:
    return self._keyed.value(*args, **kwargs)

  def __eq__(self, other: object) -> bool:
    return isinstance(other, Function) and self._keyed == other._keyed

  def __hash__(self) -> int:
    return hash(self._keyed)


def comparable(function: Callable[..., Any]) -> jax.tree_util.Partial:
  """Wraps a function for a jitted one; arrays of a `Partial` stay operands."""
  if isinstance(function, jax.tree_util.Partial):
    wrapped = Function(function.func)
    return jax.tree_util.Partial(wrapped, *function.args, **function.keywords)
  return jax.tree_util.Partial(Function(function))


def _key(value: Any) -> Any:
  if isinstance(value, tuple | list):
    return type(value), tuple(map(_key, value))
  if callable(value) and not isinstance(value, type):
    return _function(value, None, {})
  try:
    hash(value)
  except TypeError as error:
    raise Unknown from error
  return type(value), value


def _function(value: Any, home: dict[str, Any] | None, numbers: dict[int, int]) -> Any:
  """Key of a function and of what it calls; of globals only those of `home` are read.

  `numbers` counts the functions that are already in the key.
  """
  if isinstance(value, functools.partial):
    held = *value.args, *value.keywords.values()
    inner = _function(value.func, home, numbers)
    return tuple(value.keywords), inner, *(_held(x, home, numbers) for x in held)
  if isinstance(value, types.MethodType):
    return _function(value.__func__, home, numbers), *_object(value.__self__)
  if not isinstance(value, types.FunctionType):
    return _object(value)
  if id(value) in numbers:
    return (numbers[id(value)],)
  numbers[id(value)] = len(numbers)
  ours = (value.__module__ or "").partition(".")[0] in _LIBRARIES
  if home is None and not ours:
    home = value.__globals__
  if not (ours or value.__globals__ is home):
    return (_Same(value),)
  held = [value.__defaults__, value.__kwdefaults__]
  for cell in value.__closure__ or ():
    try:
      held.append(cell.cell_contents)
    except ValueError:  # while it is being defined
      continue
  if not ours and home is not None:
    held += [home[name] for name in sorted(_names(value.__code__)) if name in home]
  return _Same(value.__code__), *(_held(x, home, numbers) for x in held)


@functools.lru_cache(1024)
def _names(code: types.CodeType) -> frozenset[str]:
  """Names that a function and its inner functions may read from its module."""
  inner = (_names(c) for c in code.co_consts if isinstance(c, types.CodeType))
  return frozenset(code.co_names).union(*inner)


def _held(value: Any, home: dict[str, Any] | None, numbers: dict[int, int]) -> Any:
  if isinstance(value, types.ModuleType | type):
    return _Same(value)
  if isinstance(value, types.FunctionType | types.MethodType | functools.partial):
    return _function(value, home, numbers)
  return _object(value)


def _object(value: Any) -> tuple[Any, ...]:
  """Key of an object, its attributes and the arrays in it."""
  if value is None or isinstance(
    value, int | float | complex | str | bytes | np.generic
  ):
    return type(value), value
  parts = [value, *getattr(value, "__dict__", {}).values()]
  leaves = [leaf for part in parts for leaf in jax.tree.leaves(part)]
  if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
    raise Unknown
  # Containers may be new, for example from `vars`, while their entries are the same.
  container = not any(leaf is value for leaf in leaves)
  return container or _Same(value), *map(_Same, leaves)


def unwrapped(value: Any) -> Any:
  """Converts a container to its array; returns any other value as it is."""
  # Traced arrays also have the method.
  if isinstance(value, jax.Array) or not hasattr(value, "__jax_array__"):
    return value
  return value.__jax_array__()


class Data(NamedTuple):
  """Placeholder of an array or number."""

  shape: tuple[int, ...]
  dtype: Any
  weak: bool


class Node(NamedTuple):
  """Placeholder of several arrays or numbers."""

  tree: Any
  parts: tuple[Any, ...]


def take(value: Any, traced: bool, data: list[Any]) -> Any:
  """Moves the arrays and numbers of an argument into `data`; returns the rest."""
  value = unwrapped(value)
  if isinstance(value, jax.Array | np.ndarray | np.generic):
    if traced:
      return _taken(value, data)
    if not isinstance(value, np.generic):
      raise Unknown
  if traced and isinstance(value, (bool, int, float, complex)):
    return _taken(value, data)
  if isinstance(value, jax.tree_util.Partial):
    traced = True
  elif value is None or isinstance(value, str) or not traced or callable(value):
    return keyed(value)
  if isinstance(value, tuple):
    hints = type(value).__annotations__ if is_record(type(value)) else {}
    kinds = hints.values() if hints else [None] * len(value)
    parts = [
      take(part, kind not in (int, float, str, bool), data)
      for part, kind in zip(value, kinds, strict=True)
    ]
    return Node(type(value), tuple(parts))
  leaves, tree = jax.tree.flatten(value)
  if isinstance(value, list) or any(leaf is value for leaf in leaves):
    raise Unknown  # the function reports the error itself
  return Node(tree, tuple(take(leaf, True, data) for leaf in leaves))


def _taken(value: Any, data: list[Any]) -> Data:
  dtype = getattr(value, "dtype", None)
  if not isinstance(value, jax.Array):
    known = np.asarray(value)
    if known.dtype.kind in "OUSM":
      raise Unknown
    dtype, narrow = known.dtype, jax.dtypes.canonicalize_dtype(known.dtype)
    # The function refuses or renumbers integers that JAX would cut silently.
    if narrow != dtype and dtype.kind in "iu" and known.size:
      limits = jnp.iinfo(narrow)
      if known.min() < limits.min or known.max() > limits.max:
        raise Unknown
  data.append(value)
  weak = isinstance(value, int | float | complex) and not isinstance(value, np.generic)
  return Data(np.shape(value), dtype, getattr(value, "weak_type", weak))


def put(part: Any, data: Iterator[Any]) -> Any:
  """Rebuilds the argument that `take` took apart, with other data."""
  if isinstance(part, Data):
    return next(data)
  if isinstance(part, Keyed):
    return part.value
  values = [put(inner, data) for inner in part.parts]
  if not isinstance(part.tree, type):
    return jax.tree.unflatten(part.tree, values)
  return part.tree(*values) if is_record(part.tree) else tuple(values)


def is_record(kind: type) -> bool:
  """True for a NamedTuple."""
  return issubclass(kind, tuple) and hasattr(kind, "_fields")
