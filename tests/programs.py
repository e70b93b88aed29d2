"""Looks into traced and compiled programs."""

from collections.abc import Iterator
from typing import Any

import jax


def equations(program: Any) -> Iterator[Any]:
  """All equations of a jaxpr, also inside loops and calls."""
  for equation in program.eqns:
    yield equation
    for inner in jax.tree.leaves(list(equation.params.values())):
      inner = getattr(inner, "jaxpr", inner)
      if hasattr(inner, "eqns"):
        yield from equations(inner)


def temporary_bytes(function: Any, *arguments: Any) -> int:
  """What the compiled function needs beside its arguments and its results."""
  memory = jax.jit(function).lower(*arguments).compile().memory_analysis()
  assert memory is not None
  return memory.temp_size_in_bytes
