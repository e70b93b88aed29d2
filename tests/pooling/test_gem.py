"""Generalized mean against a loop; limits, large powers, derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from spherejax import pooling

RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.normal(size=(2, 6, 3)).astype(np.float32)
WHERE = np.array([[1, 1, 0, 1, 0, 1], [1, 0, 1, 1, 1, 1]], bool)


def loop(features, power, where=None):
  where = np.ones(features.shape[:2], bool) if where is None else where
  out = np.zeros((len(features), features.shape[2]))
  for b, image in enumerate(features.astype(np.float64)):
    for c in range(image.shape[1]):
      values = [
        max(x[c], 1e-6) for x, keep in zip(image, where[b], strict=True) if keep
      ]
      exponent = power[c] if np.ndim(power) else power
      out[b, c] = (sum(v**exponent for v in values) / len(values)) ** (1 / exponent)
  return out


@pytest.mark.parametrize(
  "power", [0.5, 1.0, 3.0, np.array([1.0, 2.0, 5.0], np.float32)]
)
def test_equals_the_loop(power):
  np.testing.assert_allclose(
    pooling.gem(FEATURES, power=power), loop(FEATURES, power), rtol=2e-6
  )
  poisoned = np.where(WHERE[..., None], FEATURES, np.nan)
  np.testing.assert_allclose(
    pooling.gem(poisoned, power=power, where=WHERE),
    loop(FEATURES, power, WHERE),
    rtol=2e-6,
  )


def test_limits():
  clamped = np.maximum(FEATURES, 1e-6)
  np.testing.assert_allclose(pooling.gem(FEATURES, power=1), clamped.mean(1), rtol=1e-6)
  large = pooling.gem(FEATURES, power=1000)
  np.testing.assert_allclose(large, clamped.max(1) * (1 / 6) ** 1e-3, rtol=1e-6)
  powers = jnp.array([0.5, 1.0, 2.0, 4.0, 100.0])
  by_power = jax.vmap(lambda power: pooling.gem(FEATURES, power=power))(powers)
  assert (jnp.diff(by_power, axis=0) > 0).all()


def test_large_powers_of_large_and_small_values_stay_finite():
  """x^100 overflows float32 at 2.4 and underflows at 0.4."""
  pool = jax.jit(lambda x: pooling.gem(x, power=100.0))
  differentiate = jax.jit(jax.grad(lambda x: pooling.gem(x, power=100.0).sum()))
  for scale in (1e-4, 1e4):
    features = scale * np.array([[[1.0], [0.5]]], np.float32)
    expected = scale * ((1 + 0.5**100) / 2) ** 0.01
    np.testing.assert_allclose(pool(features), expected, rtol=1e-6)
    gradient = differentiate(features)
    np.testing.assert_allclose(gradient.ravel()[0], 0.5**0.01, rtol=1e-5)


def test_derivatives(x64):
  features = jnp.abs(jnp.asarray(FEATURES, jnp.float64)) + 0.1
  check_grads(
    jax.jit(lambda x, power: pooling.gem(x, power=power, where=WHERE)),
    (features, jnp.float64(2.5)),
    order=2,
    modes=("fwd", "rev"),
  )


def test_gradient_at_the_floor_the_mask_and_nothing_kept():
  features = jnp.array([[[-1.0], [0.0], [2.0]], [[1.0], [1.0], [1.0]]])
  where = jnp.array([[True, True, True], [False, False, False]])
  pool = lambda x, p: pooling.gem(x, power=p, where=where)  # noqa: E731
  assert pool(features, 3.0)[1] == 0
  gradient = jax.jit(jax.grad(lambda x, p: pool(x, p).sum(), (0, 1)))
  by_feature, by_power = gradient(features, 3.0)
  assert np.flatnonzero(by_feature).tolist() == [2]
  np.testing.assert_allclose(by_feature[0, 2, 0], (1 / 3) ** (1 / 3), rtol=1e-6)
  # d/dp of 2 (1/3)^(1/p)
  np.testing.assert_allclose(by_power, 2 * 3 ** (-1 / 3) * np.log(3) / 9, rtol=1e-5)


def test_errors(unchecked):
  with pytest.raises(ValueError, match=r"power .* got 0"):
    pooling.gem(FEATURES, power=0.0)
  with pytest.raises(ValueError, match=r"power .*\(3,\).*got \(2,\)"):
    pooling.gem(FEATURES, power=jnp.ones(2))
  with pytest.raises(TypeError, match="int32"):
    pooling.gem(jnp.ones((2, 4, 3), jnp.int32))
