"""Poolings of copies, ties, channels that are never active; what settings do."""

import jax
import jax.numpy as jnp
import numpy as np

from spherejax import pooling
from tests.losses.slopes import with_slopes

RANDOM = np.random.default_rng(0)


def test_gradient_of_the_maximum_goes_to_the_first_of_a_tie():
  features = jnp.array([[[1.0], [3.0], [3.0], [2.0]]])
  for pool, expected in (
    (pooling.gmp, [0, 1, 0, 0]), (pooling.gap_gmp, [0.25, 1.25, 0.25, 0.25])
  ):  # fmt: skip
    _, gradient = with_slopes(pool)(features)
    assert gradient.ravel().tolist() == expected


def test_gemax_has_the_same_product_with_every_feature(x64):
  """Features are independent; copies count once, longer features count less."""
  pool = jax.jit(lambda x: pooling.gemax(x, ridge=1e-10))
  features = RANDOM.normal(size=(1, 3, 8))
  copied, evenly = features[:, [0, 1, 1, 1, 2, 0]], features[:, [0, 1, 2, 0, 1, 2]]
  pooled = pool(copied)
  np.testing.assert_allclose(copied[0] @ pooled[0], 1, rtol=1e-6)
  np.testing.assert_allclose(pooled, pool(evenly), rtol=1e-6)
  np.testing.assert_allclose(pool(3 * copied), pooled / 3, rtol=1e-6)


def test_gemax_of_long_copies_in_float32():
  """Rounding makes their matrix of products indefinite: it has no Cholesky factor."""
  long = 100 * RANDOM.normal(size=(1, 3, 32))
  pool = jax.jit(lambda x: pooling.gemax(x, ridge=1e-3))
  for number in (5, 64):  # of both systems
    copies = np.repeat(long, number, axis=1).astype(np.float32)
    np.testing.assert_allclose(copies[0] @ pool(copies)[0], 1, atol=1e-4)


def test_strong_ties_of_weldon_count_as_often_as_asked():
  """After a relu many values are 0."""
  weldon = with_slopes(
    lambda x: pooling.weldon(x, num_highest=2, num_lowest=1, reduction="sum")
  )
  pooled, gradient = weldon(np.float32([[[2], [0], [0], [0]]]))
  assert pooled == 2
  # The first of the ties in the highest two and again in the lowest one.
  assert gradient.ravel().tolist() == [1, 2, 0, 0]


def test_a_channel_that_is_never_active_weighs_nothing_in_crow():
  x = np.array([[[4.0, 0.0, 1.0], [0.0, -3.0, 1.0]]], np.float32)
  strengths = np.sqrt([5, 1] / np.sqrt(26))
  rarities = np.log((3e-6 + 1.5) / (1e-6 + np.array([0.5, 0, 1])))
  expected = rarities * [4 * strengths[0], 0, strengths.sum()]

  def total(x):
    pooled = pooling.crow(x)
    return pooled[0, 1], pooled

  gradient, pooled = jax.jit(jax.grad(total, has_aux=True))(x)
  np.testing.assert_allclose(pooled[0], expected, rtol=1e-6)
  assert not gradient.any()


def test_soft_shares_of_crow_weigh_channels_almost_alike():
  """Strengths are 1 for a large root: two channels of one sum, one active once."""
  x = np.ones((1, 6, 2), np.float32)
  x[0, :, 1] = [6, 0, 0, 0, 0, 0]
  always, once = pooling.crow(x, root=1e9, soft=False)[0]
  assert once > 10 * always > 0
  always, once = pooling.crow(x, root=1e9, soft=True)[0]
  assert always < once < 1.5 * always
