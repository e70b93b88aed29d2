"""Robust losses: identities, the cap against the printed margin, wrong calls."""

import functools

import jax
import numpy as np
import pytest
from scipy import special

from spherejax import losses
from tests.losses.slopes import with_slopes

CLEAN, ATTACKED = (np.random.default_rng(seed).normal(size=(4, 3)) for seed in (0, 1))
LABELS = np.array([0, 1, 2, 1])


def cross_entropy(logits):
  return -special.log_softmax(logits, axis=1)[np.arange(4), LABELS]


def test_adversarial_training_is_a_mean_of_two_losses(x64):
  loss = jax.jit(losses.adversarial_training)
  parts = cross_entropy(CLEAN), cross_entropy(ATTACKED)
  mixed = loss(CLEAN, ATTACKED, LABELS, clean_weight=0.5)
  np.testing.assert_allclose(mixed, (parts[0] + parts[1]) / 2, rtol=1e-13)
  unmoved = loss(CLEAN, CLEAN, LABELS, clean_weight=0.2)
  np.testing.assert_allclose(unmoved, parts[0], rtol=1e-13)
  only = loss(CLEAN, ATTACKED, LABELS, clean_weight=0.0)
  np.testing.assert_allclose(only, parts[1], rtol=1e-13)


def test_trades_does_not_move_what_is_not_attacked(x64):
  trades = functools.partial(losses.trades, CLEAN, labels=LABELS, weight=2.0)
  ce, kl = (with_slopes(functools.partial(trades, divergence=d)) for d in ("ce", "kl"))
  p = special.softmax(CLEAN, axis=1)
  entropy = -(p * np.log(p)).sum(1)
  for loss, rest in ((ce, 2 * entropy), (kl, 0)):
    values, slopes = loss(CLEAN)
    np.testing.assert_allclose(values, cross_entropy(CLEAN) + rest, rtol=1e-13)
    np.testing.assert_allclose(slopes, 0, atol=1e-15)
  difference = ce(ATTACKED)[0] - kl(ATTACKED)[0]
  np.testing.assert_allclose(difference, 2 * entropy, rtol=1e-12)


def test_a_class_that_is_ruled_out_in_both_adds_nothing():
  """Logits of -inf, as of masked classes, and a probability that underflows."""
  ruled_out = np.array([[True, False, False], [False, False, True], [False] * 3] * 2)
  labels = np.array([1, 0, 2] * 2)
  z, attacked = (
    np.where(ruled_out, -np.inf, np.tile(x[:3], (2, 1))).astype(np.float32)
    for x in (CLEAN, ATTACKED)
  )
  z[5], attacked[5, 0] = [-200, 0, 1], -np.inf
  for divergence in ("ce", "kl"):
    common = {"labels": labels, "divergence": divergence}
    loss = with_slopes(functools.partial(losses.trades, **common), (0, 1))
    values, slopes = loss(z, attacked)
    less = np.where(np.isinf(attacked), np.float32(-1e4), [z, attacked])
    expected, right = loss(*less)
    np.testing.assert_allclose(values, expected, rtol=1e-6)
    np.testing.assert_allclose(slopes, right, atol=1e-6)
    np.testing.assert_array_equal(np.asarray(slopes)[:, np.isinf(attacked)], 0)
    first = np.where([True, False, False], np.float32(-np.inf), attacked)
    assert np.isposinf(loss(z, first)[0][2])  # what only they rule out


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


def attacked_term(loss):
  """The second term alone, and its gradient."""
  rest, numbers = (np.array([0]), np.full(2, 1.2)), {"clean_weight": 0, "scale": 10}
  return with_slopes(lambda cosines: loss(cosines, cosines, *rest, **numbers))


cap = attacked_term(losses.proxy_cap)
printed = attacked_term(losses.normface_negative_margin)


def test_the_cap_ends_half_way_to_the_next_proxy(x64):
  edge, _ = cap(on_arc((0.6 - 1e-6) / 1.2))
  np.testing.assert_allclose(edge, [np.log(2)], rtol=1e-9)
  assert cap(on_arc(0.49))[0] < np.log(2) < cap(on_arc(0.51))[0]


def test_the_printed_margin_accepts_what_the_cap_refuses(x64):
  wrong = on_arc(0.7)  # nearer to the other proxy
  assert printed(wrong)[0] < np.log(2) < cap(wrong)[0]
  # Nearer to its proxy than the width, nothing pushes away from it.
  _, slopes = printed(on_arc(0.2))
  assert slopes[0, 0] == 0
  assert slopes[0, 1] > 0
  # Beyond it the cosine with its proxy is turned by the width.
  turned, other = 10 * np.cos(0.12 + 1e-6), 10 * np.cos(0.48)
  value, _ = printed(on_arc(0.6))
  np.testing.assert_allclose(value, [np.log1p(np.exp(other - turned))], rtol=1e-9)


@pytest.mark.parametrize(
  ("name", "angles"),
  [("adversarial_training", ()), ("proxy_cap", (np.ones(3, np.float32),))],
)
def test_wrong_calls(name, angles, unchecked):
  """All of the weight on the clean rows is training without an attack."""
  with pytest.raises(ValueError, match=r"clean_weight .*\[0, 1\), got 1"):
    getattr(losses, name)(CLEAN / 4, ATTACKED / 4, LABELS, *angles, clean_weight=1)
