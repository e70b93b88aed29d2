"""Limits and identities of the poolings by assignment, covariances and norms."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np

from spherejax import pooling
from tests.losses.cases._parts import project
from tests.losses.slopes import with_slopes

RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.normal(size=(3, 2, 4, 3)).astype(np.float32)
WHERE = RANDOM.random((3, 2, 4)) < 0.7
PROTOTYPES = RANDOM.normal(size=(5, 3)).astype(np.float32)


def averages(features):
  """Of the positions that are not masked, [3, 3]."""
  return np.stack([x[k].mean(axis=0) for x, k in zip(features, WHERE, strict=True)])


AVERAGE = averages(FEATURES)
TOKENS = FEATURES.reshape(3, 8, 3)
otp = jax.jit(pooling.otp, static_argnames="steps")


def test_transport_keeps_the_average():
  single = otp(FEATURES, PROTOTYPES[:1], where=WHERE)
  np.testing.assert_allclose(single, AVERAGE, rtol=1e-5, atol=1e-6)
  for steps, sharpness in itertools.product((0, 10), (0.0, 1e4)):
    options = {"inverse_temperature": sharpness, "steps": steps, "where": WHERE}
    blocks, root = otp(FEATURES, PROTOTYPES, **options).reshape(3, 5, 3), np.sqrt(5)
    np.testing.assert_allclose(blocks.sum(axis=1) / root, AVERAGE, rtol=1e-5, atol=1e-6)
    if not sharpness:
      np.testing.assert_allclose(blocks[:, 2], AVERAGE / root, atol=1e-6)


def test_netvlad_assigns_by_distance_and_of_one_centre_is_the_average():
  weights, biases = jax.jit(pooling.netvlad_assignment)(PROTOTYPES, sharpness=1.7)
  scores = TOKENS @ np.asarray(weights).T + np.asarray(biases)
  squares = ((TOKENS[:, :, None] - PROTOTYPES) ** 2).sum(axis=-1)
  # Alike up to what a softmax does not see.
  offset = scores + 1.7 * squares
  np.testing.assert_allclose(offset, offset[..., :1] + np.zeros(5), atol=1e-4)
  parts = PROTOTYPES[:1], weights[:1], biases[:1]
  single = jax.jit(pooling.netvlad)(FEATURES, *parts, where=WHERE)
  expected = project(AVERAGE - PROTOTYPES[:1])
  np.testing.assert_allclose(single, expected, rtol=1e-5, atol=1e-6)
  # Features that are the centre: a block of zeros, also in the derivative.
  blocks = with_slopes(lambda x: pooling.netvlad(x, *parts))
  for leaf in blocks(np.broadcast_to(PROTOTYPES[0], (1, 4, 3))):
    assert not leaf.any()


def test_second_order_gates():
  def zeros(rows, gates):
    shapes = (3, 2), (2,), (rows, rows, 1), (rows, 1), (rows, gates), (gates,)
    return pooling.GSoPBranch(*(np.zeros(shape, np.float32) for shape in shapes))

  branch, spatial = zeros(2, 3), zeros(8, 8)
  pool = jax.jit(pooling.gsop, static_argnames=("fuse", "centred", "size"))
  means = averages(np.maximum(FEATURES, 0))
  # Gates of one half: the larger of x / 2 and relu(x) / 2.
  larger = pool(FEATURES, branch, spatial, where=WHERE)
  np.testing.assert_allclose(larger, means / 2, rtol=1e-5, atol=1e-7)
  both = pool(FEATURES, branch, spatial, fuse="sum", where=WHERE)
  np.testing.assert_allclose(both, (AVERAGE + means) / 2, rtol=1e-5, atol=1e-6)
  # A constant map has no covariances, whatever the kernels are, but has products.
  random = jax.tree.map(lambda x: np.float32(RANDOM.normal(size=x.shape)), branch)
  random = random._replace(row_bias=branch.row_bias, out_bias=branch.out_bias)
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
  run = jax.jit(lambda x: pooling.gsop(x, random, None, normalize=normalize))
  expected = pool(FEATURES, scaled, None)
  np.testing.assert_allclose(run(FEATURES), expected, rtol=1e-5, atol=1e-7)


def test_match_kernel_weighs_by_norm():
  unit = project(TOKENS)
  unit[0, 3] = 0
  kernel, bias = np.eye(3, dtype=np.float32), np.ones(3, np.float32)

  @functools.partial(jax.jit, static_argnames="reduction")
  def pool(x, reduction="mean"):
    options = {"window": 1, "stop_attention_gradient": False, "reduction": reduction}
    return pooling.tsmk(x, kernel, bias, **options)

  # The zero feature counts in the mean, its bias does not.
  count = np.array([7, 8, 8])[:, None] / 8
  mean, slope = with_slopes(pool)(unit)
  np.testing.assert_allclose(mean, unit.mean(axis=1) + count, rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(pool(unit, reduction="sum"), 8 * mean, rtol=1e-5)
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
