"""The two ways of computing a convolution agree, and with NumPy."""

import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax.models import _convolution
from tests.models.oracles import convolve


@pytest.mark.parametrize(("size", "stride"), [(3, 1), (3, 2), (1, 2), (5, 1)])
@pytest.mark.parametrize("extent", [(6, 6), (7, 5)])
def test_both_methods_equal_numpy(size, stride, extent, x64):
  rng = np.random.default_rng(0)
  x = rng.normal(size=(2, *extent, 3))
  modules = [
    _convolution.Convolution(4, size, stride, True, method)
    for method in typing.get_args(_convolution.Method)
  ]
  start = jax.eval_shape(modules[0].init, jax.random.key(0), x)
  params = {"kernel": rng.normal(size=(size, size, 3, 4)), "bias": np.arange(4.0)}
  expected = convolve(x, params["kernel"], stride) + params["bias"]
  assert jax.tree.map(np.shape, params) == jax.tree.map(jnp.shape, start["params"])

  def loss(params, x, module):
    values = module.apply({"params": params}, x)
    return jnp.sum(values**2), values

  slope = jax.grad(loss, has_aux=True)
  both = jax.jit(lambda *data: [slope(*data, module) for module in modules])
  gradients, values = zip(*both(params, x), strict=True)
  for found in values:
    np.testing.assert_allclose(found, expected, rtol=1e-10)
  for a, b in zip(*map(jax.tree.leaves, gradients), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-10)


def test_initial_kernels_have_the_variance_of_he():
  # fan out: 9 * 64 terms reach every input, so the deviation is sqrt(2 / 576).
  start = jax.jit(_convolution.Convolution(64, use_bias=True).init)
  params = start(jax.random.key(0), jnp.zeros((1, 4, 4, 64)))["params"]
  np.testing.assert_allclose(params["kernel"].std(), np.sqrt(2 / 576), rtol=0.02)
  assert not np.any(params["bias"])
