"""Argument checks at trace time, each with the offending value in its message.

They inspect ranks, shapes, dtypes and names, which are static, and values where these
are known. A traced number is never inspected.
"""

import os
import reprlib
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from spherejax import _compiled
from spherejax._arrays import AnyArray, known_numbers
from spherejax._arrays import array as array
from spherejax._arrays import expect as expect
from spherejax._arrays import host as host
from spherejax._arrays import integers as integers
from spherejax._arrays import known as known
from spherejax._arrays import names as names
from spherejax._arrays import numbers_of as numbers_of
from spherejax._arrays import static_number as static_number
from spherejax._arrays import unwrapped as unwrapped
from spherejax._arrays import whole as whole


def batched(name: str, array: AnyArray) -> None:
  """Raises ValueError unless `array` has a batch axis."""
  if array.ndim == 0:
    raise ValueError(f"{name} must have a batch axis, got shape ()")


def shape(
  name: str, array: AnyArray, expected: Sequence[int], to_match: str = ""
) -> None:
  """Raises ValueError unless `array` has exactly the expected shape."""
  if array.shape != tuple(expected):
    reason = f" to match {to_match}" if to_match else ""
    raise ValueError(
      f"{name} must have shape {tuple(expected)}{reason}, got {array.shape}"
    )


@_compiled.check
def between(
  name: str,
  value: object,
  low: ArrayLike = -np.inf,
  high: ArrayLike = np.inf,
  *,
  low_open: bool = False,
  high_open: bool = False,
) -> None:
  """Raises ValueError for a static number outside the interval, or not finite.

  Checks every entry of a known array. Raises TypeError for text and complex numbers.
  """
  # A traced end is not checked here.
  least, most = static_number(low), static_number(high)
  low, high = -np.inf if least is None else least, np.inf if most is None else most
  known = known_numbers(name, value)
  above = known > low if low_open else known >= low
  below = known < high if high_open else known <= high
  wrong = known[~(np.isfinite(known) & above & below)]
  if wrong.size:
    left = "(" if low_open or low == -np.inf else "["
    right = ")" if high_open or high == np.inf else "]"
    raise ValueError(
      f"{name} must be in {left}{low:g}, {high:g}{right}, got {wrong[0]:g}"
    )


@_compiled.check
def number(name: str, value: object) -> None:
  """Raises unless the value is a single number; NaN counts as one."""
  known_numbers(name, value)
  single(name, value)


@_compiled.check
def known_finite(name: str, value: object) -> None:
  """Raises ValueError for a known number that is not finite."""
  known = known_numbers(name, value)
  wrong = known[~np.isfinite(known)]
  if wrong.size:
    raise ValueError(f"{name} must be finite, got {wrong[0]:g}")


@_compiled.check
def not_negative(name: str, value: object) -> None:
  """Raises ValueError for a known number below 0 or NaN; inf is allowed."""
  known = known_numbers(name, value)
  wrong = known[~(known >= 0)]
  if wrong.size:
    raise ValueError(f"{name} must be at least 0, got {wrong.min():g}")


def positive(name: str, value: object) -> None:
  """Raises ValueError for a static number that is not finite and above 0."""
  between(name, value, 0, low_open=True)


def count(name: str, value: object, low: int = 1) -> None:
  """Raises unless `value` is a static integer of at least `low`."""
  if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
    raise TypeError(f"{name} must be a static integer, got {value!r}")
  if value < low:
    raise ValueError(f"{name} must be at least {low}, got {value}")


def counts(name: str, values: Sequence[int], low: int = 1) -> None:
  """Raises unless `values` is a sequence of static integers of at least `low`."""
  sequence(name, values)
  for number, value in enumerate(values):
    count(f"{name}[{number}]", value, low)


def sequence(name: str, value: object) -> None:
  """Raises TypeError unless `value` is a sequence other than text."""
  if isinstance(value, (str, bytes)) or not isinstance(value, Sequence | AnyArray):
    raise TypeError(f"{name} must be a sequence, got {value!r}")


def interval(name: str, value: Any) -> tuple[Any, Any]:
  """Ends of a range; raises an error for anything but two scalars."""
  several = isinstance(value, Sequence | AnyArray) and getattr(value, "ndim", 1) > 0
  if isinstance(value, (str, bytes)) or not several or len(value) != 2:
    raise TypeError(f"{name} must be a pair (low, high), got {reprlib.repr(value)}")
  for place in (0, 1):
    single(f"{name}[{place}]", value[place])
  return value[0], value[1]


def share(name: str, value: object) -> None:
  """Raises unless `value` is a static number in [0, 1]."""
  between(name, value, 0, 1)
  static(name, value)


def static(name: str, value: object) -> float:
  """Number known at trace time; raises TypeError for a traced one, and for several."""
  number = static_number(value)
  if number is None:
    raise TypeError(f"{name} must be a static number, got {reprlib.repr(value)}")
  return number


@_compiled.check
def limits(low: Any, high: Any, expected: Sequence[int] | None = None) -> None:
  """Raises for a known side of a box that is NaN or no number, and for low above high.

  Also raises for a side that does not broadcast to the expected shape. A side may be
  inf.
  """
  known = []
  for name, side in (("low", low), ("high", high)):
    values = known_numbers(name, side)
    if np.isnan(values).any():
      raise ValueError(f"{name} must be a number, got nan")
    if expected is not None and not _broadcasts(np.shape(side), tuple(expected)):
      raise ValueError(
        f"{name} must broadcast to {tuple(expected)}, got shape {np.shape(side)}"
      )
    known.append(values.reshape(np.shape(side)) if values.size else values)
  if all(values.size for values in known):
    least, most = np.broadcast_arrays(*known)
    wrong = least > most
    if wrong.any():
      raise ValueError(
        f"low must be at most high, got {least[wrong][0]} > {most[wrong][0]}"
      )


def _broadcasts(shape: tuple[int, ...], expected: tuple[int, ...]) -> bool:
  try:
    return np.broadcast_shapes(shape, expected) == expected
  except ValueError:
    return False


def text(name: str, value: object) -> None:
  """Raises TypeError unless `value` is text."""
  if not isinstance(value, str):
    raise TypeError(f"{name} must be text, got {reprlib.repr(value)}")


def texts(name: str, values: Any) -> None:
  """Raises TypeError unless `values` is a sequence of text."""
  sequence(name, values)
  for value in values:
    text(name, value)


def pair(name: str, value: Any) -> tuple[Any, Any]:
  """Parts of a pair; raises TypeError for anything but two."""
  if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__len__"):
    raise TypeError(f"{name} must be a pair, got {reprlib.repr(value)}")
  if len(value) != 2:
    raise TypeError(f"{name} must be a pair, got {len(value)} entries")
  return value[0], value[1]


def key(name: str, value: Any) -> None:
  """Raises unless `value` is a single random key of jax."""
  dtype = getattr(value, "dtype", None)
  known = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
  if not known and not (dtype == jnp.uint32 and isinstance(value, AnyArray)):
    raise TypeError(f"{name} must be a key of jax.random, got {reprlib.repr(value)}")
  single = ((),) if known else ((2,), (4,))  # untyped keys are 2 or 4 numbers
  if np.shape(value) not in single:
    raise ValueError(
      f"{name} must be a single key of jax.random, got shape {np.shape(value)}; "
      "jax.vmap gives a function one key after the other"
    )


def floating_type(name: str, value: Any) -> None:
  """Raises TypeError unless `value` names a floating dtype."""
  try:
    known = value is not None and jnp.issubdtype(np.dtype(value), jnp.floating)
  except (TypeError, ValueError):
    known = False
  if not known:
    raise TypeError(f"{name} must be a floating dtype, got {reprlib.repr(value)}")


def initializer(module: Any, name: str) -> Any:
  """Returns a module's initializer; raises unless it is a function."""
  value = getattr(module, name)
  function(name, value)
  return value


def function(name: str, value: object) -> None:
  """Raises TypeError unless `value` can be called."""
  if not callable(value):
    raise TypeError(f"{name} must be a function, got {value!r}")


def flag(name: str, value: object) -> None:
  """Raises TypeError unless `value` is True or False."""
  if not isinstance(value, (bool, np.bool_)):
    raise TypeError(f"{name} must be True or False, got {reprlib.repr(value)}")


def mapping(name: str, value: object) -> None:
  """Raises TypeError unless `value` is a mapping."""
  if not isinstance(value, Mapping):
    raise TypeError(f"{name} must be a mapping, got {reprlib.repr(value)}")


def path(name: str, value: object) -> None:
  """Raises unless `value` names a file or folder, as text."""
  text_path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
  if not isinstance(text_path, str):
    raise TypeError(f"{name} must be a path, got {reprlib.repr(value)}")
  if "\0" in text_path:
    raise ValueError(
      f"{name} must be a path without a null character, got {text_path!r}"
    )


def instance(name: str, value: object, kind: type) -> None:
  """Raises TypeError unless `value` is of that class."""
  if not isinstance(value, kind):
    raise TypeError(f"{name} must be a {kind.__name__}, got {reprlib.repr(value)}")


def one_of(name: str, value: object, allowed: Any) -> None:
  """Raises ValueError unless `value` is one of the names of a Literal, or of a list."""
  options = typing.get_args(allowed) or tuple(allowed)
  if value not in options:  # an unhashable value is none of them
    names = ", ".join(repr(option) for option in options)
    raise ValueError(f"{name} must be one of {names}, got {value!r}")


def labels(array: AnyArray, batch: AnyArray, name: str = "labels") -> None:
  """Raises unless `array` holds one integer for each row of `batch`."""
  expect(name, array, "integer")
  shape(name, array, batch.shape[:1], f"the {batch.shape[0]} rows of {batch.shape}")


@_compiled.check
def known_labels(
  array: AnyArray,
  classes: int,
  where: AnyArray | None = None,
  name: str = "labels",
  low: int = 0,
) -> None:
  """Raises for a kept label outside [low, classes), where both are known."""
  if isinstance(array, jax.core.Tracer) or isinstance(where, jax.core.Tracer):
    return
  known = np.asarray(array)
  if where is not None:
    known = known[np.asarray(where)]
  wrong = known[(known < low) | (known >= classes)]
  if wrong.size:
    raise ValueError(f"{name} must be in [{low}, {classes}), got {wrong[0]}")


def inside(
  array: jax.Array, classes: int, where: jax.Array, name: str = "labels"
) -> jax.Array:
  """Mask of labels in [0, classes); raises for known labels outside."""
  known_labels(array, classes, where, name)
  return (array >= 0) & (array < classes)


def where_mask(
  where: ArrayLike | None, expected: Sequence[int], name: str = "where"
) -> jax.Array:
  """Converts `where` to a mask, all True if it is None; raises as `mask` does."""
  if where is None:
    # Known while tracing, so that known labels are still checked.
    with jax.ensure_compile_time_eval():
      return jnp.ones(tuple(expected), bool)
  mask_given = array(name, where)
  mask(mask_given, expected, name)
  return mask_given


def mask(array: AnyArray, expected: Sequence[int], name: str = "where") -> None:
  """Raises unless `array` is boolean and of the expected shape."""
  expect(name, array, "boolean")
  shape(name, array, expected)


def scalar(name: str, value: ArrayLike, dtype: jnp.dtype) -> jax.Array:
  """Converts the number to an array of type `dtype`.

  Raises ValueError if it has axes, or is known and not finite.
  """
  known_finite(name, value)
  number = jnp.asarray(value, dtype)
  single(name, number)
  return number


def single(name: str, value: Any) -> None:
  """Raises ValueError for numbers along an axis."""
  if np.ndim(value):
    raise ValueError(f"{name} must be a scalar, got shape {np.shape(value)}")
