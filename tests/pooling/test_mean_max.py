"""Average and maximum pooling against loops; ties, masks, layouts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import pooling

RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.normal(size=(3, 2, 4, 5)).astype(np.float32)
WHERE = RANDOM.random((3, 2, 4)) < 0.6
WHERE[1] = False


def loop(features, where, of):
  """One number for each image and channel, from the list of its kept values."""
  images = []
  for image, kept in zip(features, where, strict=True):
    values = [
      x for x, keep in zip(image.reshape(-1, 5), kept.ravel(), strict=True) if keep
    ]
    images.append([of([float(x[c]) for x in values]) for c in range(5)])
  return np.array(images)


def mean(values):
  return sum(values) / len(values) if values else 0


def largest(values):
  return max(values) if values else 0


@pytest.mark.parametrize(
  ("pool", "of"),
  [
    (pooling.gap, mean),
    (pooling.gmp, largest),
    (pooling.gap_gmp, lambda values: mean(values) + largest(values)),
  ],
)
def test_equals_the_loop(pool, of):
  everything = np.ones_like(WHERE)
  np.testing.assert_allclose(pool(FEATURES), loop(FEATURES, everything, of), atol=1e-6)
  poisoned = np.where(WHERE[..., None], FEATURES, np.nan)
  np.testing.assert_allclose(
    pool(poisoned, where=WHERE), loop(FEATURES, WHERE, of), atol=1e-6
  )
  tokens = FEATURES.reshape(3, 8, 5)
  np.testing.assert_array_equal(pool(tokens), pool(FEATURES))
  np.testing.assert_array_equal(
    pool(tokens, where=WHERE.reshape(3, 8)), pool(FEATURES, where=WHERE)
  )


@pytest.mark.parametrize("pool", [pooling.gap, pooling.gmp, pooling.gap_gmp])
def test_gradient_of_masked_positions_is_zero(pool):
  poisoned = np.where(WHERE[..., None], FEATURES, np.nan)
  gradient = jax.jit(jax.grad(lambda x: pool(x, where=WHERE).sum()))(poisoned)
  assert (gradient[~WHERE] == 0).all()
  expected = jax.jit(jax.grad(lambda x: pool(x).sum()))(
    FEATURES[:1, :1][:, :, WHERE[0, 0]]
  )
  narrow = jax.jit(jax.grad(lambda x: pool(x, where=WHERE[:1, :1]).sum()))(
    poisoned[:1, :1]
  )
  np.testing.assert_array_equal(narrow[:, :, WHERE[0, 0]], expected)


def test_gradient_of_the_maximum_goes_to_the_first_of_a_tie():
  features = jnp.array([[[1.0], [3.0], [3.0], [2.0]]])
  gradient = jax.jit(jax.grad(lambda x: pooling.gmp(x).sum()))(features)
  assert gradient.ravel().tolist() == [0, 1, 0, 0]
  both = jax.jit(jax.grad(lambda x: pooling.gap_gmp(x).sum()))(features)
  assert both.ravel().tolist() == [0.25, 1.25, 0.25, 0.25]


def test_maximum_of_negative_values_under_a_mask():
  """Masked positions hold 0 inside, which must not win."""
  features = jnp.array([[[-1.0], [-3.0], [5.0]]])
  where = jnp.array([[True, True, False]])
  assert pooling.gmp(features, where=where) == -1


def test_half_precision_sums_are_wide():
  """256 ones and a 1/4: the sum in bfloat16 would stall at 256."""
  features = jnp.ones((1, 1024, 1), jnp.bfloat16)
  pooled = pooling.gap(features)
  assert pooled.dtype == jnp.bfloat16
  assert pooled == 1


@pytest.mark.parametrize("pool", [pooling.gap, pooling.gmp, pooling.gap_gmp])
def test_errors(pool, unchecked):
  with pytest.raises(ValueError, match=r"3 or 4 axes, got shape \(2, 3\)"):
    pool(jnp.ones((2, 3)))
  with pytest.raises(ValueError, match=r"\(2, 0, 3\)"):
    pool(jnp.ones((2, 0, 3)))
  with pytest.raises(TypeError, match="int32"):
    pool(jnp.ones((2, 4, 3), jnp.int32))
  with pytest.raises(ValueError, match=r"\(2, 4\).*got \(2, 5\)"):
    pool(jnp.ones((2, 4, 3)), where=jnp.ones((2, 5), bool))
  with pytest.raises(TypeError, match="float32"):
    pool(jnp.ones((2, 4, 3)), where=jnp.ones((2, 4)))
