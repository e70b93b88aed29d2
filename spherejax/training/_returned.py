"""Checks of the results of a user's function, while it is traced.

Without them jax's messages would name internals: "scan body output must be a pair".
"""

import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from spherejax import _checks


def pair(result: Any, name: str = "step") -> tuple[Any, Any]:
  """Checks a pair of state and metrics; raises TypeError for anything else."""
  # A NamedTuple is a state that was returned alone.
  if type(result) not in (tuple, list) or len(result) != 2:
    raise TypeError(
      f"{name} must return (state, metrics), got {_shown(result)}; return state, {{}} "
      "where nothing is reported"
    )
  return result[0], result[1]


def tree(name: str, result: Any) -> Any:
  """Converts the leaves of a tree to arrays; raises TypeError for anything else."""
  try:
    leaves, structure = jax.tree_util.tree_flatten_with_path(result)
  except ValueError as error:  # names that cannot be sorted
    raise TypeError(
      f"{name} must return a tree with names of one kind, got {reprlib.repr(result)}"
    ) from error
  arrays = []
  for path, leaf in leaves:
    try:
      arrays.append(_checks.array(name, leaf))
    except (TypeError, ValueError) as error:
      at = jax.tree_util.keystr(path)
      place = f" as {at}" if at else ""
      raise TypeError(
        f"{name} must return arrays of numbers, got {reprlib.repr(leaf)}{place}"
      ) from error
  return jax.tree.unflatten(structure, arrays)


def alike(name: str, result: Any, before: Any, what: str = "state"):
  """Raises TypeError for a tree of another structure, shape or type."""
  structure, wanted = jax.tree.structure(result), jax.tree.structure(before)
  if structure != wanted:
    raise TypeError(
      f"{name} must return a {what} like the one that it is given, of structure "
      f"{wanted}, got {structure}"
    )
  olds = jax.tree_util.tree_leaves_with_path(before)
  for (path, old), new in zip(olds, jax.tree.leaves(result), strict=True):
    if (new.shape, new.dtype) != (old.shape, old.dtype):
      raise TypeError(
        f"{name} must return a {what} like the one that it is given: "
        f"{what}{jax.tree_util.keystr(path)} is {old.dtype}{list(old.shape)} before "
        f"and {new.dtype}{list(new.shape)} after it"
      )


def scalars(name: str, metrics: Any):
  """Raises ValueError for a metric with axes."""
  for path, leaf in jax.tree_util.tree_leaves_with_path(metrics):
    if leaf.shape:
      raise ValueError(
        f"metrics of {name} must be scalars, got shape {leaf.shape} as "
        f"metrics{jax.tree_util.keystr(path)}"
      )


def rows(name: str, result: Any, count: int) -> Any:
  """Checks a tree of arrays [count, ...]; raises for anything else."""
  result = tree(name, result)
  for path, leaf in jax.tree_util.tree_leaves_with_path(result):
    if leaf.shape[:1] != (count,):
      at = jax.tree_util.keystr(path)
      raise ValueError(
        f"{name} must return a row for each of the {count} rows that it is given, got "
        f"shape {leaf.shape}{' as ' if at else ''}{at}"
      )
  return result


def score(result: Any) -> Array:
  """Checks the result of `evaluate` and returns it as float32; raises unless real."""
  value = tree("evaluate", result)
  if not isinstance(value, jax.Array) or jnp.iscomplexobj(value):
    raise TypeError(f"evaluate must return a real number, got {_shown(result)}")
  if value.shape:
    raise ValueError(f"evaluate must return a scalar, got shape {value.shape}")
  return value.astype(jnp.float32)


def numbers(name: str, result: Any) -> dict[str, float]:
  """Checks numbers by name, on the host; raises for anything else."""
  if not isinstance(result, Mapping):
    raise TypeError(f"{name} must return numbers by name, got {_shown(result)}")
  values = {}
  for key, value in result.items():
    _checks.text(f"the name of a number that {name} returns", key)
    if key == "step":
      raise ValueError(
        f"{name} must not return a number named 'step': the report adds the step itself"
      )
    what = f"{key!r} that {name} returns"
    _checks.single(what, _checks.numbers_of(what, value))
    values[key] = float(value)
  return values


def batches(result: Any) -> Iterator[Any]:
  """Iterator over the result of `batches`; raises TypeError if there is none."""
  if not isinstance(result, Iterable) or isinstance(result, (str, Mapping)):
    raise TypeError(
      f"batches must return an iterable of batches, got {_shown(result)}; write "
      "it as a generator function"
    )
  return iter(result)


def reported(metrics: Sequence[Any]):
  """Raises ValueError if `step` does not report the numbers that `fit` needs."""
  wanted = {"loss", "gradient_norm"}
  for first in metrics[:1]:
    if not isinstance(first, Mapping) or not first.keys() >= wanted:
      raise ValueError(
        "step must report loss and gradient_norm, as that of make_step does, got "
        f"{reprlib.repr(first)}"
      )


def _shown(result: Any) -> str:
  """Describes a result: its type, and the shapes of its arrays."""
  if isinstance(result, (jax.Array, np.ndarray)):
    return f"{result.dtype}{list(result.shape)}"
  if isinstance(result, (tuple, list)):
    return f"a {type(result).__name__} of {len(result)}"
  plain = result is None or isinstance(result, (str, int, float, complex))
  return reprlib.repr(result) if plain else f"a {type(result).__name__}"
