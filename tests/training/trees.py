"""Trees of arrays and random keys, compared bit by bit."""

import jax
import jax.numpy as jnp
import numpy as np


def bits(tree):
  return [
    np.asarray(jax.random.key_data(leaf)).tobytes()
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    else np.asarray(leaf).tobytes()
    for leaf in jax.tree.leaves(tree)
  ]


def assert_same(actual, expected):
  assert jax.tree.structure(actual) == jax.tree.structure(expected)
  for new, old in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
    assert new.dtype == old.dtype
    assert new.shape == old.shape
  assert bits(actual) == bits(expected)
