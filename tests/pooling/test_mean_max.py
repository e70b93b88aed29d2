"""Average and maximum pooling: ties, wide sums, bad arguments."""

import jax
import jax.numpy as jnp

from spherejax import pooling


def test_gradient_of_the_maximum_goes_to_the_first_of_a_tie():
  features = jnp.array([[[1.0], [3.0], [3.0], [2.0]]])
  gradient = jax.jit(jax.grad(lambda x: pooling.gmp(x).sum()))(features)
  assert gradient.ravel().tolist() == [0, 1, 0, 0]
  both = jax.jit(jax.grad(lambda x: pooling.gap_gmp(x).sum()))(features)
  assert both.ravel().tolist() == [0.25, 1.25, 0.25, 0.25]


def test_half_precision_sums_are_wide():
  """256 ones and a 1/4: the sum in bfloat16 would stall at 256."""
  features = jnp.ones((1, 1024, 1), jnp.bfloat16)
  pooled = pooling.gap(features)
  assert pooled.dtype == jnp.bfloat16
  assert pooled == 1
