"""Converts arguments to JAX arrays without cutting integers, or to NumPy on the host.

JAX silently keeps 32 of 64 bits unless its 64-bit types are enabled. Traced values and
JAX arrays have lost their upper bits before they come here. An object with
`__jax_array__`, such as a Param of flax.nnx, counts as that array.
"""

import numbers
import reprlib
from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from spherejax import _compiled
from spherejax._arguments import unwrapped as unwrapped

AnyArray = jax.Array | np.ndarray
Kind = Literal["floating", "real", "integer", "boolean"]


def array(
  name: str,
  value: Any,
  kind: Kind | None = None,
  *,
  rank: int | tuple[int, ...] | None = None,
  empty: bool = True,
) -> jax.Array:
  """Converts the value to an array that passes `expect`.

  Raises TypeError for a value that is no array, ValueError for an integer that would be
  cut.
  """
  value = unwrapped(value)
  whole(name, value)
  try:
    converted = jnp.asarray(value)
  except (TypeError, ValueError, OverflowError) as error:
    text = f"{name} must be an array of numbers, got {reprlib.repr(value)}"
    raise TypeError(text) from error
  expect(name, converted, kind, rank=rank, empty=empty)
  return converted


def expect(
  name: str,
  array: AnyArray,
  kind: Kind | None = None,
  *,
  rank: int | tuple[int, ...] | None = None,
  empty: bool = True,
) -> None:
  """Raises unless an array has the right kind, number of axes, and a row.

  Args:
    name: of the array, for the error.
    array: of JAX or NumPy.
    kind: of its entries: "real" are floating numbers and integers; None allows any.
    rank: the number of axes; None allows any.
    empty: True allows an array without a row.

  Raises:
    TypeError: another kind.
    ValueError: other axes, or no row.
  """
  if kind is not None and not _is_kind(array.dtype, kind):
    raise TypeError(f"{name} must be {_KINDS[kind]}, got dtype {array.dtype}")
  allowed = rank if isinstance(rank, tuple) else (rank,)
  if rank is not None and array.ndim not in allowed:
    ranks = " or ".join(map(str, allowed))
    axes = "axis" if rank == 1 else "axes"
    raise ValueError(f"{name} must have {ranks} {axes}, got shape {array.shape}")
  if not empty and array.shape[0] == 0:
    raise ValueError(f"{name} must have a row, got shape {array.shape}")


_KINDS: dict[Kind, str] = {
  "floating": "floating",
  "real": "real numbers",
  "integer": "integers",
  "boolean": "boolean",
}


def _is_kind(dtype: Any, kind: Kind) -> bool:
  if kind == "boolean" or dtype == jnp.bool_:
    return kind == "boolean" and dtype == jnp.bool_
  if kind == "real":
    return is_real(dtype)
  return jnp.issubdtype(dtype, getattr(jnp, kind))


def whole(name: str, value: Any) -> None:
  """Raises ValueError for an integer on the host that JAX would cut."""
  for part in _wide_integers(value):
    _raise_outside(name, part, jax.dtypes.canonicalize_dtype(part.dtype))


def integers(name: str, value: Any) -> jax.Array:
  """Converts integers to an int32 array, or int64 where the value and JAX have it.

  A narrow or unsigned type has no room for -1, the number of classes, or a sum. Raises
  as `array`, and ValueError for known unsigned integers that do not fit. Traced
  unsigned integers keep their bits: they turn negative, and different ones stay
  different.
  """
  converted = array(name, value)
  dtype = converted.dtype
  if not jnp.issubdtype(dtype, jnp.integer) or dtype in (jnp.int32, jnp.int64):
    return converted
  signed = jnp.dtype(jnp.int32) if dtype.itemsize < 4 else jnp.result_type(int)
  _fits(name, converted, signed)
  return _compiled.same(converted.astype(signed), converted)


def names(*arguments: tuple[str, Any]) -> list[jax.Array]:
  """Converts labels of which only equality matters, like `integers`.

  If a label needs more bits than JAX has, all labels are renumbered together; -1 stays
  -1.
  """
  values = [value for _, value in arguments]
  if _compiled.peek(_need_numbers, *values):
    _compiled.leave()
    values = _numbered(values)
  return [
    integers(name, value) for (name, _), value in zip(arguments, values, strict=True)
  ]


def host(name: str, value: Any) -> np.ndarray:
  """Converts the value to a NumPy array; raises TypeError for a traced value."""
  value = unwrapped(value)
  if isinstance(value, jax.core.Tracer):
    raise TypeError(
      f"{name} must be concrete, got a traced {value.dtype}{list(value.shape)}: inside "
      "jit, vmap or a sweep even a slice of a known jax array is traced; convert or "
      f"slice it outside, with numpy: np.asarray({name})"
    )
  try:
    return np.asarray(value)
  except ValueError as error:  # rows of different lengths
    raise ValueError(f"{name} must be an array, got {reprlib.repr(value)}") from error


def known(value: Any) -> np.ndarray | None:
  """Converts a fully known value to a NumPy array; returns None for any other."""
  value = _known(value)
  return None if value is None else np.asarray(value)


def numbers_of(name: str, value: object) -> np.ndarray:
  """Real numbers on the host as float64; raises TypeError for anything else."""
  dtype = getattr(value, "dtype", None)
  shown = reprlib.repr(value) if dtype is None else f"dtype {dtype}"
  try:
    array = host(name, value)
  except ValueError:  # rows of different lengths
    array = np.empty(0, object)
  if not is_real(array.dtype):
    raise TypeError(f"{name} must be real numbers, got {shown}")
  return array.astype(np.float64)


def static_number(value: object) -> float | None:
  """Returns the number if it is known at trace time, None if it is traced."""
  value = unwrapped(value)
  if isinstance(value, jax.core.Tracer):
    return None
  if isinstance(value, (numbers.Real, np.generic)) or (
    isinstance(value, (np.ndarray, jax.Array)) and value.ndim == 0
  ):
    return float(value)  # pyright: ignore[reportArgumentType]
  return None


def known_numbers(name: str, value: object) -> np.ndarray:
  """Flattens an untraced value into numbers; raises TypeError for anything else."""
  value = unwrapped(value)
  if isinstance(value, (list, tuple)):
    parts = [known_numbers(name, entry) for entry in value]
    return np.concatenate(parts) if parts else np.empty(0)
  dtype = getattr(value, "dtype", None)  # also of values that only convert to an array
  if isinstance(value, complex) or not (dtype or isinstance(value, numbers.Real)):
    raise TypeError(f"{name} must be a number, got {reprlib.repr(value)}")
  if dtype is not None and not is_real(dtype):
    raise TypeError(f"{name} must be real numbers, got dtype {dtype}")
  number = static_number(value)
  if number is not None:
    return np.array([number])
  traced = isinstance(value, jax.core.Tracer)
  # Each process knows only a part of an array over several processes.
  if isinstance(value, jax.Array) and not traced and not value.is_fully_addressable:
    return np.empty(0)
  if isinstance(value, (np.ndarray, jax.Array)) and not traced:
    return np.asarray(value, np.float64).ravel()
  return np.empty(0)


def is_real(dtype: Any) -> bool:
  """True for a dtype of real numbers, or of booleans."""
  kinds = jnp.floating, jnp.integer, jnp.bool_
  return any(jnp.issubdtype(dtype, kind) for kind in kinds)


def _need_numbers(*values: Any) -> bool:
  """True if a known label needs more bits than JAX has."""
  limits = jnp.iinfo(jnp.result_type(int))
  wide = [part for value in values for part in _wide_integers(_known(value))]
  return any(_outside(part, limits).any() for part in wide)


def _numbered(values: Sequence[Any]) -> Sequence[Any]:
  hosts = [_known(value) for value in values]
  arrays = [np.asarray(host) for host in hosts if host is not None]
  if len(arrays) < len(values) or any(x.dtype.kind not in "iu" for x in arrays):
    return values  # traced, or no integers: the conversion refuses it
  if np.result_type(*arrays).kind == "f":  # int64 next to uint64
    arrays = [x.astype(object) for x in arrays]
  flat = np.concatenate([x.ravel() for x in arrays])
  numbers = np.where(flat == -1, -1, np.unique(flat, return_inverse=True)[1])
  parts = np.split(numbers, np.cumsum([x.size for x in arrays])[:-1])
  return [part.reshape(x.shape) for part, x in zip(parts, arrays, strict=True)]


def _known(value: Any) -> Any:
  """Returns the value, a JAX array as NumPy; None if it is not fully known here."""
  value = unwrapped(value)
  if not isinstance(value, jax.Array):
    return value
  if isinstance(value, jax.core.Tracer) or not value.is_fully_addressable:
    return None
  return np.asarray(value)


def _wide_integers(value: Any) -> list[np.ndarray]:
  """Integers of a value on the host that int32 may not hold."""
  value = unwrapped(value)
  if isinstance(value, (list, tuple)):
    leaves = jax.tree.leaves(value)
    if any(isinstance(leaf, jax.Array) for leaf in leaves):
      return [part for leaf in leaves for part in _wide_integers(leaf)]
  elif isinstance(value, jax.Array) or not (
    isinstance(value, int) or hasattr(value, "__array__")
  ):
    return []
  try:
    known = np.asarray(value).ravel()
  except (TypeError, ValueError, RuntimeError):  # the conversion names it
    return []
  wide = known.dtype.kind in "iu" and jnp.iinfo(known.dtype).max > 2**31 - 1
  return [known] if wide else []


@_compiled.check
def _fits(name: str, value: Any, dtype: Any) -> None:
  for part in _wide_integers(_known(value)):
    _raise_outside(name, part, dtype)


def _outside(known: np.ndarray, limits: Any) -> np.ndarray:
  return (known < limits.min) | (known > limits.max)


def _raise_outside(name: str, known: np.ndarray, dtype: Any) -> None:
  outside = _outside(known, jnp.iinfo(dtype))
  if outside.any():
    raise ValueError(
      f"{name} must fit into {dtype}, got {known[outside][0]}; renumber them with"
      " np.unique(..., return_inverse=True)[1], or enable JAX's 64-bit types"
    )
