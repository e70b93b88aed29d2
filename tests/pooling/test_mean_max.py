"""Maximum pooling of ties."""

import jax
import jax.numpy as jnp

from spherejax import pooling


def test_gradient_of_the_maximum_goes_to_the_first_of_a_tie():
  features = jnp.array([[[1.0], [3.0], [3.0], [2.0]]])
  gradient = jax.jit(jax.grad(lambda x: pooling.gmp(x).sum()))(features)
  assert gradient.ravel().tolist() == [0, 1, 0, 0]
  both = jax.jit(jax.grad(lambda x: pooling.gap_gmp(x).sum()))(features)
  assert both.ravel().tolist() == [0.25, 1.25, 0.25, 0.25]
