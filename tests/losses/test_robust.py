"""Robust losses: identities, the cap against the printed margin, wrong calls."""

import functools

import jax
import numpy as np
import pytest

from spherejax import losses
from tests.losses.slopes import with_slopes

LOGITS = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
ATTACKED = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
LABELS = np.array([0, 1, 2, 1])


def probabilities(logits):
  exponentials = np.exp(logits)
  return exponentials / exponentials.sum(1, keepdims=True)


def cross_entropy(logits):
  return -np.log(probabilities(logits)[np.arange(4), LABELS])


def test_adversarial_training_is_a_mean_of_two_losses(x64):
  loss = jax.jit(losses.adversarial_training)
  clean, attacked = LOGITS.astype(float), ATTACKED.astype(float)
  parts = cross_entropy(clean), cross_entropy(attacked)
  mixed = loss(clean, attacked, LABELS, clean_weight=0.5)
  np.testing.assert_allclose(mixed, (parts[0] + parts[1]) / 2, rtol=1e-13)
  unmoved = loss(clean, clean, LABELS, clean_weight=0.2)
  np.testing.assert_allclose(unmoved, parts[0], rtol=1e-13)
  only = loss(clean, attacked, LABELS, clean_weight=0.0)
  np.testing.assert_allclose(only, parts[1], rtol=1e-13)


def test_trades_does_not_move_what_is_not_attacked(x64):
  z, attacked = LOGITS.astype(float), ATTACKED.astype(float)
  common = {"labels": LABELS, "weight": 2.0}
  ce, kl = (
    with_slopes(functools.partial(losses.trades, z, divergence=divergence, **common))
    for divergence in ("ce", "kl")
  )
  p = probabilities(z)
  entropy = -(p * np.log(p)).sum(1)
  for loss, rest in ((ce, 2 * entropy), (kl, 0)):
    values, slopes = loss(z)
    np.testing.assert_allclose(values, cross_entropy(z) + rest, rtol=1e-13)
    np.testing.assert_allclose(slopes, 0, atol=1e-15)
  difference = ce(attacked)[0] - kl(attacked)[0]
  np.testing.assert_allclose(difference, 2 * entropy, rtol=1e-12)


def test_a_class_that_is_ruled_out_in_both_adds_nothing():
  """Logits of -inf, as of masked classes, and a probability that underflows."""
  ruled_out = np.array([[True, False, False], [False, False, True], [False] * 3] * 2)
  labels = np.array([1, 0, 2] * 2)
  z = np.where(ruled_out, -np.inf, np.concatenate([LOGITS[:3]] * 2)).astype(np.float32)
  attacked = np.where(ruled_out, -np.inf, np.concatenate([ATTACKED[:3]] * 2))
  z[5], attacked[5, 0] = [-200, 0, 1], -np.inf
  for divergence in ("ce", "kl"):
    common = {"labels": labels, "divergence": divergence}
    loss = with_slopes(functools.partial(losses.trades, **common), (0, 1))
    values, slopes = loss(z, attacked.astype(np.float32))
    less = np.where(np.isinf(attacked), -1e4, [z, attacked]).astype(np.float32)
    expected, right = loss(*less)
    np.testing.assert_allclose(values, expected, rtol=1e-6)
    for own, other in zip(slopes, right, strict=True):
      np.testing.assert_allclose(own, other, atol=1e-6)
      np.testing.assert_array_equal(np.asarray(own)[np.isinf(attacked)], 0)
    one = np.where([True, False, False], -np.inf, attacked).astype(np.float32)
    assert np.isposinf(loss(z, one)[0][2])  # what only they rule out


def test_angles_to_the_nearest_proxy():
  @jax.jit
  def angles(proxies):
    def total(w, **static):
      return losses.nearest_proxy_angles(w, **static).sum()

    moving = jax.grad(functools.partial(total, stop_gradient=False))(proxies)
    return losses.nearest_proxy_angles(proxies), jax.grad(total)(proxies), moving

  corners = np.eye(3, dtype=np.float32)
  values, slopes, moving = angles(5 * corners)
  np.testing.assert_allclose(values, np.pi / 2, rtol=1e-6)
  np.testing.assert_array_equal(slopes, 0)
  # All are equally near: the first two look at each other, the third at the first.
  right = [[0, -2, -1], [-2, 0, 0], [-1, 0, 0]]
  np.testing.assert_allclose(moving, np.divide(right, 5), atol=1e-6)
  values, _, moving = angles(corners[[0, 0, 0]])
  np.testing.assert_array_equal(values, 0)
  np.testing.assert_array_equal(moving, 0)
  assert jax.jit(losses.nearest_proxy_angles)(corners[:1])[0] == np.float32(np.pi)
  # A matrix product would round this angle to 0.
  values, _, moving = angles(np.float32([[2, 0], [np.cos(3e-4), np.sin(3e-4)]]))
  np.testing.assert_allclose(values, 3e-4, rtol=1e-4)
  np.testing.assert_allclose(moving[:, 1], [-1, 2], rtol=1e-3)


def on_arc(part):
  """Cosines with two proxies 1.2 radians apart, `part` of the way to the second."""
  return np.array([[np.cos(part * 1.2), np.cos((1 - part) * 1.2)]])


@functools.partial(jax.jit, static_argnames="name")
def attacked_term(cosines, name):
  """The second term alone, and its gradient."""
  label, angles = np.array([0]), np.array([1.2, 1.2])

  def term(cosines):
    return getattr(losses, name)(
      cosines, cosines, label, angles, clean_weight=0, scale=10
    )[0]

  return jax.value_and_grad(term)(cosines)


def test_the_cap_ends_half_way_to_the_next_proxy(x64):
  edge, _ = attacked_term(on_arc((0.6 - 1e-6) / 1.2), "proxy_cap")
  np.testing.assert_allclose(edge, np.log(2), rtol=1e-9)
  assert attacked_term(on_arc(0.49), "proxy_cap")[0] < np.log(2)
  assert attacked_term(on_arc(0.51), "proxy_cap")[0] > np.log(2)


def test_the_printed_margin_accepts_what_the_cap_refuses(x64):
  wrong = on_arc(0.7)  # nearer to the other proxy
  assert attacked_term(wrong, "normface_negative_margin")[0] < np.log(2)
  assert attacked_term(wrong, "proxy_cap")[0] > np.log(2)
  # Nearer to the own proxy than the width, nothing pushes away from it.
  _, slopes = attacked_term(on_arc(0.2), "normface_negative_margin")
  assert slopes[0, 0] == 0
  assert slopes[0, 1] > 0
  # Beyond it the own cosine is turned by the width.
  turned, other = 10 * np.cos(0.12 + 1e-6), 10 * np.cos(0.48)
  value, _ = attacked_term(on_arc(0.6), "normface_negative_margin")
  np.testing.assert_allclose(value, np.log1p(np.exp(other - turned)), rtol=1e-9)


@pytest.mark.parametrize(
  ("name", "angles"),
  [("adversarial_training", ()), ("proxy_cap", (np.ones(3, np.float32),))],
)
def test_wrong_calls(name, angles, unchecked):
  """All of the weight on the clean rows is training without an attack."""
  with pytest.raises(ValueError, match=r"clean_weight .*\[0, 1\), got 1"):
    getattr(losses, name)(LOGITS / 4, ATTACKED / 4, LABELS, *angles, clean_weight=1)
