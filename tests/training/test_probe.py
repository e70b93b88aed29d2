"""The linear probe against scikit-learn, and its invariances."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from spherejax import training


def drawn(seed, dtype=np.float64):
  random = np.random.default_rng(seed)
  labels = random.integers(3, size=120)
  centres = random.normal(size=(3, 5))
  x = centres[labels] + random.normal(size=(120, 5)) * [1, 2, 0.1, 5, 1]
  return x.astype(np.float32).astype(dtype), labels.astype(np.int32)


probed = functools.partial(training.linear_probe, num_classes=3)


def test_it_is_the_optimum_that_scikit_learn_finds(x64):
  x, labels = drawn(0)
  probe = probed(x, labels, penalty=0.01)
  standard = (x - x.mean(0)) / x.std(0)
  # Its objective is the sum of losses times C, plus half of the squared weights.
  other = LogisticRegression(C=1 / (0.01 * len(x)), tol=1e-10, max_iter=10_000)
  other.fit(standard, labels)
  np.testing.assert_allclose(probe.weights.T, other.coef_, atol=2e-5)
  expected = other.predict_log_proba(standard)
  np.testing.assert_allclose(jax.nn.log_softmax(probe.logits(x)), expected, atol=1e-4)


def test_scale_and_shift_of_the_features_do_not_matter(x64):
  x, labels = drawn(1)
  moved = x * [3, 0.1, 100, 1, 2] + [0, 10, -5, 1, 2]
  first, other = (probed(features, labels, penalty=0.1) for features in (x, moved))
  np.testing.assert_allclose(first.logits(x), other.logits(moved), atol=1e-6)


def test_masked_rows_and_constant_features_have_no_part(x64):
  x, labels = drawn(2)
  x[:, 2] = 0.7
  kept = np.arange(len(x)) % 3 > 0
  spoiled = np.where(kept[:, None], x, np.nan)
  masked = probed(spoiled, np.where(kept, labels, -1), penalty=0.1, where=kept)
  alone = probed(x[kept], labels[kept], penalty=0.1)
  np.testing.assert_allclose(masked.logits(x), alone.logits(x), atol=1e-6)
  assert not np.asarray(masked.weights[2]).any()
  assert masked.scale[2] == 1


@pytest.mark.parametrize("shape", [(2, 1), (1, 3), (2,)])
def test_features_of_another_width(shape, unchecked):
  x, labels = drawn(0, np.float32)
  probe = probed(x[:, :2], labels)
  with pytest.raises(ValueError, match=r"features must .*got"):
    probe.logits(np.ones(shape, np.float32))


def test_runs_are_vmapped_and_bfloat16_is_widened():
  sets = [drawn(seed, np.float32) for seed in range(3)]
  x, labels = (np.stack(part) for part in zip(*sets, strict=True))

  def fit(x, labels, penalty):
    return probed(x, labels, penalty=penalty).weights

  together = jax.jit(jax.vmap(fit))(x, labels, jnp.array([0.1, 0.2, 0.3]))
  alone = list(map(fit, x, labels, (0.1, 0.2, 0.3)))
  np.testing.assert_allclose(together, alone, atol=1e-3)
  narrow = probed(jnp.asarray(x[0], jnp.bfloat16), labels[0], penalty=0.1)
  assert narrow.weights.dtype == jnp.float32
  np.testing.assert_allclose(narrow.weights, together[0], atol=0.05)
