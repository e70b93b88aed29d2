"""Limits and identities of the poolings by assignment, covariances and norms."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from spherejax import pooling

RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.normal(size=(3, 2, 4, 3)).astype(np.float32)
WHERE = RANDOM.random((3, 2, 4)) < 0.7
PROTOTYPES = RANDOM.normal(size=(5, 3)).astype(np.float32)
AVERAGE = np.stack([x[k].mean(axis=0) for x, k in zip(FEATURES, WHERE, strict=True)])
TOKENS = FEATURES.reshape(3, 8, 3)
otp = jax.jit(pooling.otp, static_argnames="steps")


def test_transport_keeps_the_average():
  one = otp(FEATURES, PROTOTYPES[:1], where=WHERE)
  np.testing.assert_allclose(one, AVERAGE, rtol=1e-5, atol=1e-6)
  for steps in (0, 10):
    for sharpness in (0.0, 1e4):
      blocks = otp(
        FEATURES, PROTOTYPES, inverse_temperature=sharpness, steps=steps, where=WHERE
      ).reshape(3, 5, 3)
      np.testing.assert_allclose(
        blocks.sum(axis=1) / np.sqrt(5), AVERAGE, rtol=1e-5, atol=1e-6
      )
      if not sharpness:
        np.testing.assert_allclose(blocks[:, 2], AVERAGE / np.sqrt(5), atol=1e-6)


def test_netvlad_assigns_by_distance_and_of_one_centre_is_the_average():
  weights, biases = jax.jit(pooling.netvlad_assignment)(PROTOTYPES, sharpness=1.7)
  scores = TOKENS @ np.asarray(weights).T + np.asarray(biases)
  apart = ((TOKENS[:, :, None] - PROTOTYPES) ** 2).sum(axis=-1)
  # Alike up to what a softmax does not see.
  offset = scores + 1.7 * apart
  np.testing.assert_allclose(offset, offset[..., :1] + np.zeros(5), atol=1e-4)
  pool = jax.jit(pooling.netvlad)
  one = pool(FEATURES, PROTOTYPES[:1], weights[:1], biases[:1], where=WHERE)
  expected = AVERAGE - PROTOTYPES[:1]
  expected /= np.linalg.norm(expected, axis=1, keepdims=True)
  np.testing.assert_allclose(one, expected, rtol=1e-5, atol=1e-6)

  # Features that are the centre: a block of zeros, also in the derivative.
  def total(x):
    return jnp.sum(pooling.netvlad(x, PROTOTYPES[:1], weights[:1], biases[:1]))

  value, slope = jax.jit(jax.value_and_grad(total))(
    np.broadcast_to(PROTOTYPES[0], (1, 4, 3))
  )
  assert value == 0
  assert not slope.any()


def test_second_order_gates():
  branch: Any = pooling.GSoPBranch(
    *(np.zeros(s, np.float32) for s in ((3, 2), (2,), (2, 2, 1), (2, 1), (2, 3), (3,)))
  )
  spatial = pooling.GSoPBranch(
    *(np.zeros(s, np.float32) for s in ((3, 2), (2,), (8, 8, 1), (8, 1), (8, 8), (8,)))
  )
  pool = jax.jit(pooling.gsop, static_argnames=("fuse", "centred", "size"))
  positive = np.maximum(FEATURES, 0)
  means = np.stack([x[k].mean(axis=0) for x, k in zip(positive, WHERE, strict=True)])
  # Gates of one half: the larger of x / 2 and relu(x) / 2.
  np.testing.assert_allclose(
    pool(FEATURES, branch, spatial, where=WHERE), means / 2, rtol=1e-5, atol=1e-7
  )
  np.testing.assert_allclose(
    pool(FEATURES, branch, spatial, fuse="sum", where=WHERE),
    (AVERAGE + means) / 2,
    rtol=1e-5,
    atol=1e-6,
  )
  # A constant map has no covariances, whatever the kernels are, but has products.
  random: Any = pooling.GSoPBranch(*(RANDOM.normal(size=x.shape) for x in branch))
  random = random._replace(row_bias=0 * random.row_bias, out_bias=0 * random.out_bias)
  random = jax.tree.map(np.float32, random)
  constant = np.ones((1, 6, 3), np.float32)
  np.testing.assert_allclose(pool(constant, random, None), 0.5, rtol=1e-6)
  products = pool(constant, random, None, centred=False)
  assert np.abs(products - 0.5).max() > 1e-3
  # What a normalisation does to the last axis, it does to the rows.
  factors = np.array([0.5, 3.0], np.float32)

  def normalize(place, x, kept):
    assert kept.shape == {"channel_map": (3, 8, 1), "channel_rows": (3, 1, 1)}[place]
    return x * factors[None, None] if place == "channel_rows" else x

  scaled = random._replace(row_kernel=random.row_kernel * factors[:, None, None])
  np.testing.assert_allclose(
    jax.jit(lambda x: pooling.gsop(x, random, None, normalize=normalize))(FEATURES),
    pool(FEATURES, scaled, None),
    rtol=1e-5,
    atol=1e-7,
  )


def test_match_kernel_weighs_by_norm():
  unit = TOKENS / np.linalg.norm(TOKENS, axis=2, keepdims=True)
  unit[0, 3] = 0
  pool = jax.jit(
    lambda x, **options: pooling.tsmk(
      x,
      np.eye(3, dtype=np.float32),
      np.ones(3, np.float32),
      window=1,
      stop_attention_gradient=False,
      **options,
    ),
    static_argnames="reduction",
  )
  # The zero feature counts in the mean, its bias does not.
  count = np.array([7, 8, 8])[:, None] / 8
  np.testing.assert_allclose(
    pool(unit), unit.mean(axis=1) + count, rtol=1e-5, atol=1e-6
  )
  np.testing.assert_allclose(pool(unit, reduction="sum"), 8 * pool(unit), rtol=1e-5)
  slope = jax.jit(jax.grad(lambda x: pool(x).sum()))(unit)
  assert not slope[0, 3].any()
  assert np.isfinite(slope).all()


def test_dominant_prototypes_take_the_largest_share():
  where = jnp.asarray(WHERE)
  dominant = jax.jit(pooling.dominant_prototypes)(
    np.where(WHERE[..., None], FEATURES, np.nan), PROTOTYPES, where=where
  )
  assert dominant.shape == WHERE.shape
  np.testing.assert_array_equal(dominant == -1, ~WHERE)
  # One position at a time, its attributes are its column of the plan.
  pool = jax.jit(lambda x: pooling.gsp(x, PROTOTYPES, mass=0.5).attributes)
  shares = pool(FEATURES.reshape(24, 1, 3)).reshape(3, 2, 4, 5)
  np.testing.assert_array_equal(dominant[WHERE], shares.argmax(axis=-1)[WHERE])
