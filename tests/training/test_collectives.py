"""Means, rows and gradients over a device axis."""

import jax
import jax.numpy as jnp
import numpy as np

from spherejax import training

VALUES = np.array([1.0, np.nan, 4.0, 2.0, 7.0, np.nan, np.inf, np.nan], np.float32)
KEPT = np.array([1, 0, 1, 1, 1, 0, 0, 0], bool)  # 1, 2, 1 and 0 on the devices


def mean_of_squares(scale, axis_name, values, where):
  """Mean over the kept of (scale v)^2, as a device's share; others are NaN, inf."""
  squares = (scale * jnp.where(where, values, 0)) ** 2
  squares = jnp.where(where, squares, values)
  return training.global_mean(squares, where, axis_name=axis_name)


def test_global_mean_of_unevenly_kept_rows():
  share = jax.value_and_grad(mean_of_squares)

  def mapped(values, where):
    return jax.lax.pmean(share(3.0, "batch", values, where), "batch")

  value, gradient = jax.jit(jax.vmap(mapped, axis_name="batch"))(
    VALUES.reshape(4, 2), KEPT.reshape(4, 2)
  )
  mean = np.mean([v**2 for v in (1.0, 4.0, 2.0, 7.0)])
  np.testing.assert_allclose(value, 9 * mean, rtol=1e-6)
  np.testing.assert_allclose(gradient, 6 * mean, rtol=1e-6)
  alone = share(3.0, None, VALUES, KEPT)
  np.testing.assert_allclose(alone, (9 * mean, 6 * mean), rtol=1e-6)


def test_global_mean_of_nothing_is_zero():
  given = jnp.full(4, jnp.nan), jnp.zeros(4, bool)
  value, gradient = jax.value_and_grad(training.global_mean)(*given)
  assert float(value) == 0
  assert gradient.tolist() == [0, 0, 0, 0]
  # Half precision is added up in float32: 2049 is no bfloat16 or float16.
  mean = training.global_mean(jnp.ones(2049, jnp.float16))
  assert (mean, mean.dtype) == (1, jnp.float16)


def test_gather_sends_gradients_back():
  weights = jnp.arange(1.0, 5.0)

  def local(x):
    everything = training.gather({"x": x}, "batch")["x"]
    mine = jax.lax.axis_index("batch")
    return jnp.sum(everything) * weights[mine]

  rows = jnp.ones((4, 1))
  gradient = jax.vmap(jax.grad(local), axis_name="batch")(rows)
  np.testing.assert_allclose(gradient, np.full((4, 1), 10.0))  # 1 + 2 + 3 + 4
  assert training.gather(rows, None) is rows
