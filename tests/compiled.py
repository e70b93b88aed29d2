"""A room of operators, each call compiled as one program.

An operator called by itself compiles every operation on its own, which takes many
times as long as its values are worth.
"""

import functools
from types import ModuleType
from typing import Any

import jax
import numpy as np


def _is_data(leaf: Any) -> bool:
  return isinstance(leaf, float | np.ndarray | np.generic | jax.Array)


@functools.cache
def _compiled(function, tree, static):
  def call(data):
    data = iter(data)
    leaves = [next(data) if is_data else value for is_data, value in static]
    args, kwargs = jax.tree.unflatten(tree, leaves)
    return function(*args, **kwargs)

  return jax.jit(call)


class Compiled:
  """The functions of a room; what is no array or float is static."""

  def __init__(self, room: ModuleType):
    self._room = room

  def __getattr__(self, name: str) -> Any:
    function = getattr(self._room, name)
    if isinstance(function, type):
      return function

    @functools.wraps(function)
    def call(*args, **kwargs):
      leaves, tree = jax.tree.flatten((args, kwargs))
      static = tuple((True, None) if _is_data(x) else (False, x) for x in leaves)
      data = [x for x in leaves if _is_data(x)]
      return _compiled(function, tree, static)(data)

    return call
