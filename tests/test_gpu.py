"""A GPU gives the CPU's numbers: products are not rounded, and order does not matter.

pytest -n0 -m gpu
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import attacks, losses, pooling

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def both():
  """The first device of each kind."""
  try:
    return jax.devices("cpu")[0], jax.devices("gpu")[0]
  except RuntimeError as error:
    pytest.skip(f"needs a GPU beside the CPU, and jax says: {error}")


def check(both, fn, *arguments):
  """Compares to 1e-4 of the largest entry, a tolerance that TF32 would exceed."""
  fn = jax.jit(fn)
  expected, found = (fn(*jax.device_put(arguments, device)) for device in both)
  for result, device in zip((expected, found), both, strict=True):
    assert all(leaf.devices() == {device} for leaf in jax.tree.leaves(result))
  for a, b in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-4 * max(np.abs(b).max(), 1e-3))


def rows(seed, *shape):
  return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_generalized_sum_pooling_and_its_gradient(both):
  def loss(features, prototypes):
    result = pooling.gsp(features, prototypes, mass=0.4, inverse_temperature=5.0)
    return jnp.sum(jnp.cos(result.pooled)) + jnp.sum(result.attributes**2)

  check(both, jax.value_and_grad(loss, (0, 1)), rows(0, 3, 7, 64), rows(1, 5, 64))


def test_a_loss_in_blocks_and_its_gradient(both):
  def loss(embeddings, labels):
    return jnp.mean(losses.multi_similarity(embeddings, labels, block_size=5))

  check(both, jax.value_and_grad(loss), rows(2, 12, 64), np.arange(12) // 3)


def test_an_attack(both):
  def attack(weights, x, labels):
    def logits(x):
      return jnp.tanh(jnp.matmul(x, weights, precision=jax.lax.Precision.HIGHEST))

    result = attacks.pgd(
      logits, x, labels, key=jax.random.key(0), epsilon=0.5, norm="l2", steps=3
    )
    return result.x_adv, result.loss

  x = 0.5 + rows(3, 4, 64) / 20
  check(both, attack, rows(4, 64, 3), x, np.arange(4) % 3)
