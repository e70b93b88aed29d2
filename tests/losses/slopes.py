"""Losses by name, their values, and the gradient of the sum of values."""

import inspect

import jax
import numpy as np

from spherejax import losses

EMPTY = np.zeros(5, np.float32)


def losses_of(*parameters):
  """Names of all losses that take arguments of these names."""
  return [
    name
    for name, function in inspect.getmembers(losses, inspect.isfunction)
    if {*parameters} <= {*inspect.signature(function).parameters}
  ]


def values_of(name, *data, histogram=EMPTY, **options):
  """Values of the rows; `histogram` goes to the loss that needs it."""
  rest = [histogram] if name.startswith("dynamic_soft_margin") else []
  result = getattr(losses, name)(*data, *rest, **options)
  return result[0] if isinstance(result, tuple) else result


def with_slopes(function, argnums=0):
  """Compiled: of the arguments to the values and the gradients of their sum."""

  def total(*arguments):
    values = function(*arguments)
    return values.sum(), values

  @jax.jit
  def call(*arguments):
    slopes, values = jax.grad(total, argnums, has_aux=True)(*arguments)
    return values, slopes

  return call
