"""Sums of shifted maps against XLA's grouped convolution, with both gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from spherejax import _versions
from spherejax.models import _depthwise


def arrays(size, rows, columns, stride, dtype="float32"):
  rng = np.random.default_rng(size + rows)
  outer = (2, -(-rows // stride), -(-columns // stride), 3)
  shapes = (2, rows, columns, 3), (size, size, 1, 3), outer
  return [jnp.asarray(rng.normal(size=shape), dtype) for shape in shapes]


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize(
  ("size", "rows", "columns"), [(3, 8, 7), (5, 9, 12), (5, 2, 1), (1, 5, 4)]
)
def test_equals_the_grouped_convolution(size, rows, columns, stride):
  x, kernel, behind = arrays(size, rows, columns, stride)

  @jax.jit
  def both(x, kernel, behind):
    results = []
    for convolve in (_depthwise.depthwise, _depthwise._grouped):
      y, pull = jax.vjp(lambda *given, f=convolve: f(*given, stride), x, kernel)
      results.append((y, *pull(behind)))
    return results

  found, expected = both(x, kernel, behind)
  for ours, theirs in zip(found, expected, strict=True):
    assert np.abs(ours - theirs).max() < 1e-6 * np.abs(theirs).max()


def test_derivatives_of_second_order():
  with _versions.enable_x64(True):
    x, kernel, _ = arrays(3, 5, 4, 2, "float64")
    convolve = jax.jit(lambda x, kernel: _depthwise.depthwise(x, kernel, 2))
    check_grads(convolve, (x, kernel), 2, ["rev"])


def test_half_precision_is_summed_in_float32():
  x, kernel, behind = arrays(5, 9, 9, 1)
  halves = [value.astype(jnp.bfloat16) for value in (x, kernel, behind)]

  @jax.jit
  def run(x, kernel, behind):
    y, pull = jax.vjp(lambda *given: _depthwise.depthwise(*given, 1), x, kernel)
    return y, *pull(behind)

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
