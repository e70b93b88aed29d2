"""Values of a loss, and the gradient of their sum."""

import jax


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
