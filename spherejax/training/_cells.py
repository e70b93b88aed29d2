"""Cells of an ablation: columns of hyperparameters, one entry per cell."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike

from spherejax import _checks

Column = ArrayLike | Sequence[Any]


def column(name: str, values: Column) -> np.ndarray:
  """Converts values to numbers [cells, ...]; anything else cannot be vmapped."""
  _checks.text("the name of a hyperparameter", name)
  entries = _checks.host(f"hyperparameter {name!r}", values)
  if entries.dtype.kind not in "biuf" and entries.dtype.name != "bfloat16":
    known = entries.ravel().tolist()
    odd = next((x for x in known if not isinstance(x, (int, float))), None)
    if odd is None:
      raise TypeError(
        f"hyperparameter {name!r} must hold numbers that an array can hold, got "
        f"{known[0]!r} in an array of {entries.dtype}"
      )
    raise TypeError(
      f"hyperparameter {name!r} must hold numbers, got {odd!r}: a choice by name is "
      "made when a program is compiled, so it cannot be vmapped; run one sweep for "
      "each of its values"
    )
  if entries.ndim == 0:
    raise ValueError(
      f"hyperparameter {name!r} must hold one value per cell, got a scalar"
    )
  if not len(entries):
    raise ValueError(f"hyperparameter {name!r} must hold at least one value, got none")
  narrow = jax.dtypes.canonicalize_dtype(entries.dtype)
  with np.errstate(over="ignore"):
    narrowed = entries.astype(narrow)
  same = narrowed == entries if entries.dtype.kind in "iu" else np.isfinite(narrowed)
  if lost := entries[~same & np.isfinite(entries)].tolist():
    raise ValueError(
      f"hyperparameter {name!r} must hold numbers of {narrow}, got {lost[0]!r}"
    )
  return entries


def grid(values: Mapping[str, Column]) -> dict[str, np.ndarray]:
  """Builds all combinations of the values of several hyperparameters.

  The last name varies fastest. So results of the cells can be reshaped to one axis for
  each hyperparameter, in the order of the mapping.

  Args:
    values: for each name its values, all numbers.

  Returns:
    For each name a column [cells], as `sweep` takes them.

  Raises:
    TypeError: values that are not numbers, or integers beyond 64 bits.
    ValueError: no name, a name without a value, or a number that is too large for
      int32 or float32, unless x64 is enabled.

  Cost: none.

  Source: the full factorial design.

  Example:
    >>> spherejax.training.grid({"mass": [0.2, 0.3], "margin": [0.5, 1.0]})
    {'mass': array([0.2, 0.2, 0.3, 0.3]), 'margin': array([0.5, 1. , 0.5, 1. ])}
  """
  _checks.mapping("values", values)
  columns = {name: column(name, entries) for name, entries in values.items()}
  if not columns:
    raise ValueError("values must name at least one hyperparameter, got none")
  rows = np.indices([len(entries) for entries in columns.values()])
  return {
    name: entries[index.ravel()]
    for (name, entries), index in zip(columns.items(), rows, strict=True)
  }


def factorial(
  levels: Mapping[str, Sequence[float | int]], *, relation: Sequence[Sequence[str]] = ()
) -> dict[str, np.ndarray]:
  """Builds a two-level design: all combinations, or the fraction that a relation keeps.

  Each word of the relation keeps the cells in which an even number of its
  hyperparameters is low (their signs multiply to +1), and so halves the design. With a
  word of k names, effects of i of them are confounded with effects of the other k - i;
  `metrics.factorial_effects` lists them.

  Args:
    levels: for each name its low and its high value. The last name varies fastest.
    relation: words of the defining relation, sequences of names. Without words
      all 2^names cells are kept, with p independent words 2^(names - p).

  Returns:
    For each name a column [cells], as `sweep` takes them.

  Raises:
    TypeError: levels that are not numbers.
    ValueError: a name without exactly two different levels, a word that is empty,
      names an unknown hyperparameter or one twice, or follows from those before it.

  Cost: none.

  Source: Box, Hunter, Hunter 2005, "Statistics for experimenters", chapter 6; the
  screening of DML table 5.4 has the relation m, mu, beta, lambda.

  Example:
    >>> spherejax.training.factorial(
    ...   {"a": (1, 2), "b": (1, 2), "c": (5, 7)}, relation=["abc"]
    ... )
    {'a': array([1, 1, 2, 2]), 'b': array([1, 2, 1, 2]), 'c': array([7, 5, 5, 7])}
  """
  _checks.mapping("levels", levels)
  if not levels:
    raise ValueError("levels must name at least one hyperparameter, got none")
  _checks.sequence("relation", relation)
  for word in relation:
    if not isinstance(word, Sequence):
      raise TypeError(f"a word of the relation must be names, got {word!r}")
    _checks.texts("a word of the relation", tuple(word))
  for name, pair in levels.items():
    values = column(name, pair)
    if values.shape != (2,) or values[0] == values[1] or np.isnan(values).any():
      raise ValueError(f"levels[{name!r}] must be two different values, got {pair!r}")
  cells = grid(levels)
  signs = dict(
    zip(
      levels,
      2 * np.indices([2] * len(levels)).reshape(len(levels), -1) - 1,
      strict=True,
    )
  )
  mask = np.ones(2 ** len(levels), bool)
  for word in relation:
    if not word or len(set(word)) != len(word) or not set(word) <= set(levels):
      raise ValueError(
        f"a word of the relation must name some of {', '.join(levels)} once, got "
        f"{tuple(word)}"
      )
    after = mask & (math.prod((signs[name] for name in word), start=1) == 1)
    if after.sum() * 2 != mask.sum():
      raise ValueError(
        f"the word {tuple(word)} follows from, or contradicts, the others"
      )
    mask = after
  return {name: entries[mask] for name, entries in cells.items()}
