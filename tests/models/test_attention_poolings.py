"""Modules of poolings with attention: they call the functions; masked statistics."""

import functools

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import models, pooling

RNG = np.random.default_rng(0)
FEATURES = jnp.asarray(RNG.normal(size=(3, 2, 3, 4)) + 0.5, jnp.float32)
WHERE = np.array([[[1, 1, 0], [1, 0, 1]], [[1, 1, 1], [0, 1, 0]], [[0] * 3] * 2], bool)


def shapes(tree):
  return jax.tree.map(jnp.shape, tree)


def normalizing(pool):
  """The jitted function with normalisation by what is kept, and new statistics."""

  def call(params, features, where):
    updated = {}

    def normalize(place, x, kept):
      axes = tuple(range(x.ndim - 1))
      mean = jnp.mean(x, axes, where=kept, keepdims=True)
      var = jnp.var(x, axes, where=kept, keepdims=True)
      updated[place] = {"mean": 0.1 * mean.ravel(), "var": 0.9 + 0.1 * var.ravel()}
      return (x - mean) / jnp.sqrt(var + 1e-5)

    arrays = {k: v for k, v in params.items() if not isinstance(v, dict)}
    return pool(features, **arrays, normalize=normalize, where=where), updated

  return jax.jit(call)


def assert_close(actual, expected):
  chex.assert_trees_all_equal_shapes(actual, expected)
  chex.assert_trees_all_close(actual, expected, rtol=1e-5, atol=1e-7)


def trained(module, variables, where):
  """Pooled features, NaN where they are masked, and new statistics."""
  spoilt = jnp.where(WHERE[..., None], FEATURES, jnp.nan)
  train = functools.partial(module.apply, train=True, mutable="batch_stats")
  pooled, updated = jax.jit(train)(variables, spoilt, where=where)
  return pooled, updated["batch_stats"]


def test_cbam_owns_its_kernels_and_normalises_what_is_kept():
  module = models.CBAM(reduction=2, kernel_size=3)
  variables = jax.jit(module.init)(jax.random.key(0), FEATURES)
  params = variables["params"]
  assert shapes(params) == {
    "reduce_kernel": (4, 2),
    "reduce_bias": (2,),
    "expand_kernel": (2, 4),
    "expand_bias": (4,),
    "spatial_kernel": (3, 3, 2),
    "positions": {"scale": (1,), "bias": (1,)},
  }
  size = np.abs(params["spatial_kernel"]).max()
  assert 0.5 * np.sqrt(6 / 27) < size <= np.sqrt(6 / 27)  # Glorot-uniform
  expected = normalizing(pooling.cbam)(params, FEATURES, WHERE)
  assert_close(trained(module, variables, WHERE), expected)


def test_solar_starts_as_gem_and_normalises_what_is_kept():
  module = models.SOLAR(power=2.0)
  variables = jax.jit(module.init)(jax.random.key(0), FEATURES)
  params, apply = variables["params"], jax.jit(module.apply)
  kernels = dict.fromkeys(("query_kernel", "key_kernel", "value_kernel"), (4, 2))
  norms = {name: {"scale": (2,), "bias": (2,)} for name in ("queries", "keys")}
  assert shapes(params) == {**kernels, **norms, "output_kernel": (2, 4), "power": ()}
  gem = np.mean(np.maximum(FEATURES, 1e-6) ** 2, axis=(1, 2)) ** 0.5
  np.testing.assert_allclose(apply(variables, FEATURES), gem, rtol=1e-5)
  params["output_kernel"] = jnp.ones((2, 4))
  expected = normalizing(pooling.solar)(params, FEATURES, WHERE)
  assert_close(trained(module, variables, WHERE), expected)
  # A batch of nothing: finite.
  pooled, updated = trained(module, variables, np.zeros_like(WHERE))
  assert not pooled.any()
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(updated))


def test_errors(unchecked):
  key = jax.random.key(0)
  with pytest.raises(ValueError, match="reduction must divide 4 channels, got 3"):
    models.CBAM(reduction=3).init(key, FEATURES)
  with pytest.raises(ValueError, match="odd size, got 2"):
    models.CBAM(reduction=1, kernel_size=2).init(key, FEATURES)
  with pytest.raises(ValueError, match="reduction must divide 4 channels, got 8"):
    models.SOLAR(reduction=8).init(key, FEATURES)


def test_defaults_are_those_of_the_papers():
  cbam, solar = models.CBAM(), models.SOLAR()
  assert (cbam.reduction, cbam.kernel_size, cbam.use_bias) == (16, 7, True)
  assert cbam.norm == "batch"
  assert (solar.reduction, solar.init_output) == (2, nn.initializers.zeros)
  assert models.DeLF().reduction == "sum"
