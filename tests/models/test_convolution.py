"""Convolutions agree with NumPy, and those by channel with XLA's grouped ones."""

import functools
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from spherejax.models import _convolution, _depthwise
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


def arrays(size, rows, columns, stride, dtype="float32"):
  rng = np.random.default_rng(size + rows)
  outer = (2, -(-rows // stride), -(-columns // stride), 3)
  shapes = (2, rows, columns, 3), (size, size, 1, 3), outer
  return [jnp.asarray(rng.normal(size=shape), dtype) for shape in shapes]


def with_slopes(by_channel, stride, x, kernel, behind):
  y, pull = jax.vjp(lambda *given: by_channel(*given, stride), x, kernel)
  return y, *pull(behind)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize(
  ("size", "rows", "columns"), [(3, 8, 7), (5, 9, 12), (5, 2, 1), (1, 5, 4)]
)
def test_equals_the_grouped_convolution(size, rows, columns, stride):
  @jax.jit
  def both(*data):
    ways = _depthwise.depthwise, _depthwise._grouped
    return [with_slopes(way, stride, *data) for way in ways]

  results = both(*arrays(size, rows, columns, stride))
  for ours, theirs in zip(*results, strict=True):
    assert np.abs(ours - theirs).max() < 1e-6 * np.abs(theirs).max()


def test_derivatives_of_second_order(x64):
  x, kernel, _ = arrays(3, 5, 4, 2, "float64")
  by_channel = jax.jit(lambda x, kernel: _depthwise.depthwise(x, kernel, 2))
  check_grads(by_channel, (x, kernel), 2, ["rev"])


def test_half_precision_is_summed_in_float32():
  halves = [value.astype(jnp.bfloat16) for value in arrays(5, 9, 9, 1)]
  run = jax.jit(functools.partial(with_slopes, _depthwise.depthwise, 1))
  exact = run(*(value.astype(jnp.float32) for value in halves))
  for half, single in zip(run(*halves), exact, strict=True):
    assert half.dtype == jnp.bfloat16
    gap = np.abs(half.astype(jnp.float32) - single).max()
    assert gap <= 2.0**-8 * np.abs(single).max()  # the last rounding alone


def test_only_a_cpu_sums_shifted_maps():
  x, kernel, _ = arrays(3, 8, 8, 1)
  traced = jax.jit(_depthwise.depthwise, static_argnums=2).trace(x, kernel, 1)
  for platform, convolves in (("cpu", False), ("cuda", True)):
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    assert ("stablehlo.convolution" in text) == convolves
