"""Attacks guided by smooth scores and judged by an exact decision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.datasets import load_digits

from spherejax import attacks, prototypes

SCORES = np.array(
  [
    [0.3, 0.2, 0.1],  # decided already
    [0.3, 0.2, 0.1],  # the least is decided
    [0.3, 0.3, 0.3],  # the last of a tie
    [0.0, -0.0, -1.0],  # a tie at 0, where the next number is no normal one
    [-np.inf, 5.0, 4.0],
    [-np.inf, -np.inf, -np.inf],
  ]
)
DECIDED = np.array([0, 2, 2, 1, 0, 2], np.int32)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_decided_class_is_on_top_by_the_least_that_can_be(dtype):
  z = jnp.asarray(SCORES, dtype)
  model = attacks.with_decision(lambda x: x, lambda x: jnp.asarray(DECIDED))
  found = jax.jit(model)(z)
  assert found.dtype == dtype
  np.testing.assert_array_equal(jnp.argmax(found, axis=1), DECIDED)
  own = DECIDED[:, None] == np.arange(3)
  np.testing.assert_array_equal(
    np.where(own, 0, found.astype(float)), np.where(own, 0, z.astype(float))
  )
  np.testing.assert_array_equal(found[0], z[0])  # nothing to raise
  above = found[jnp.arange(5), DECIDED[:5]].astype(float)
  others = np.where(own, -np.inf, z.astype(float)).max(1)[:5]
  assert (above > others).all()
  np.testing.assert_allclose(above[1:], others[1:], rtol=0.01, atol=1e-30)


def test_gradients_are_those_of_the_scores():
  z = jnp.asarray(SCORES[:4], jnp.float32)
  weights = np.random.default_rng(0).normal(size=z.shape).astype(np.float32)
  decided = jnp.asarray(DECIDED[:4])
  model = attacks.with_decision(jnp.sin, lambda x: decided)
  slopes = jax.jit(jax.grad(lambda x: jnp.sum(weights * model(x))))(z)
  np.testing.assert_allclose(slopes, weights * np.cos(z), rtol=1e-6)


def test_votes_of_neighbours_judge_what_smooth_scores_guide():
  """Success is the exact decision's; without it scores and votes disagree."""
  images, digits = load_digits(return_X_y=True)
  images = (images / 16).astype(np.float32)
  sites, labels = images[:100], digits[:100]
  x, y = images[1300:1332], digits[1300:1332]
  options = {"num_classes": 10, "k": 5}

  def smooth(x):
    return prototypes.neighbour_logits(x, sites, labels, sharpness=5.0, **options)

  def votes(x):
    return prototypes.nearest_neighbours(x, sites, labels, **options)

  def run(model):
    ball = {"epsilon": 0.8, "step_size": 0.2, "norm": "l2", "loss": "margin"}
    found = attacks.pgd(model, x, y, key=jax.random.key(0), steps=10, **ball)
    return map(np.asarray, (found.success, votes(found.x_adv) != y))

  success, wrong = run(attacks.with_decision(smooth, votes))
  right = np.asarray(votes(x) == y)
  np.testing.assert_array_equal(success, wrong)
  assert success[right].mean() > 0.1
  assert not success[right].all()
  success, wrong = run(smooth)
  assert (success != wrong).any()
