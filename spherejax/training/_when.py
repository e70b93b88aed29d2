"""Conditional work that is done in some steps only, also in a vmapped program."""

from collections.abc import Callable
from typing import TypeVar

from jax.typing import ArrayLike
from jaxtyping import Bool

from spherejax import _checks, _numerics
from spherejax.training import _returned

_Tree = TypeVar("_Tree")


def when(due: Bool[ArrayLike, ""], fn: Callable[[_Tree], _Tree], value: _Tree) -> _Tree:
  """Returns fn(value) where due and value elsewhere, at the cost of the due work only.

  `jax.lax.cond` computes both branches under vmap. Here the function runs only while
  one of the vmapped runs needs it.

  Args:
    due: boolean scalar, may be traced.
    fn: maps a pytree of arrays to a pytree of the same shapes and types.
    value: such a pytree.

  Returns:
    Such a pytree.

  Raises:
    TypeError: due not boolean, fn not a function, or it returns other shapes or types.
    ValueError: due not a scalar.

  Not differentiable in reverse mode. Cost: that of `fn` if it is due for one run.

  Source: none.

  Example:
    >>> spherejax.training.when(True, lambda x: x + 1, jnp.int32(1))
    Array(2, dtype=int32)
  """
  _checks.function("fn", fn)
  due = _checks.array("due", due, "boolean", rank=0)

  def checked(value: _Tree) -> _Tree:
    after = _returned.tree("fn", fn(value))
    _returned.alike("fn", after, value, "value")
    return after

  return _numerics.replace_if(due, checked, (value,), value)
