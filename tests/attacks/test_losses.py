"""Losses that attacks ascend: against loops, saturation."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import attacks, losses

RANDOM = np.random.default_rng(0)
Z = 3 * RANDOM.normal(size=(40, 5))
Y = RANDOM.integers(0, 5, 40)
T = (Y + RANDOM.integers(1, 5, 40)) % 5
OTHER = RANDOM.normal(size=(40, 5))


def log_p(z, k):
  return z[k] - np.log(np.sum(np.exp(z)))


def expected(z, y, t, reference, loss):
  others = [z[k] for k in range(5) if k != y]
  ordered = sorted(z, reverse=True)
  if loss == "ce":
    return -log_p(z, y) if t is None else log_p(z, t)
  if loss == "kl":
    p = np.exp([log_p(reference, k) for k in range(5)])
    return sum(p[k] * (np.log(p[k]) - log_p(z, k)) for k in range(5))
  if loss == "margin":
    if t is None:
      return max(others) - z[y]
    return z[t] - max(z[k] for k in range(5) if k != t)
  if t is None:
    return -(z[y] - max(others)) / (ordered[0] - ordered[2])
  return -(z[y] - z[t]) / (ordered[0] - (ordered[2] + ordered[3]) / 2)


CASES = [("kl", None), *itertools.product(("ce", "margin", "dlr"), (None, T))]


@pytest.mark.parametrize(("loss", "targets"), CASES)
def test_losses_are_their_formulas(loss, targets, x64):
  reference = OTHER if loss == "kl" else None
  found = attacks.attack_loss(Z, Y, loss=loss, targets=targets, reference=reference)
  rows = zip(Z, Y, [None] * 40 if targets is None else targets, OTHER, strict=True)
  formula = [expected(*row, loss) for row in rows]
  np.testing.assert_allclose(found, formula, rtol=1e-9, atol=1e-12)


def test_what_saturates_and_what_does_not():
  """Float32: a label ahead by 40 leaves the cross-entropy a gradient, by 120 none."""
  z = jnp.array([[40.0, 0.0, -1.0], [120.0, 0.0, -1.0]])
  labels = jnp.zeros(2, int)

  def slopes(loss):
    return jax.grad(lambda z: attacks.attack_loss(z, labels, loss=loss).sum())(z)

  ce = jax.jit(lambda: slopes("ce"))()
  np.testing.assert_allclose(ce[0, 1], np.exp(-40.0), rtol=1e-5)
  assert not np.any(ce[1])
  for loss in ("margin", "dlr"):
    assert np.all(jax.jit(lambda loss=loss: slopes(loss))()[:, 0] < 0)


def test_an_impossible_class_adds_nothing():
  """0 log 0 = 0, in the value and in both gradients, as in `losses.trades`."""
  z, reference = np.float32([[1, 0, -np.inf]]), np.float32([[2, 0, -np.inf]])
  labels = np.zeros(1, int)

  def kl(z, reference):
    return attacks.attack_loss(z, labels, loss="kl", reference=reference).sum()

  def trades(z, reference):
    options = {"weight": 1.0, "divergence": "kl"}
    both = losses.trades(reference, z, labels, **options)
    return (both - losses.trades(reference, z, labels, weight=0.0)).sum()

  for function in (jax.value_and_grad(kl, (0, 1)), jax.value_and_grad(trades, (0, 1))):
    value, slopes = jax.jit(function)(z, reference)
    kept, kept_slopes = jax.jit(jax.value_and_grad(kl, (0, 1)))(
      z[:, :2], reference[:, :2]
    )
    np.testing.assert_allclose(value, kept, rtol=1e-5)
    for slope, expected in zip(slopes, kept_slopes, strict=True):
      np.testing.assert_allclose(slope[:, :2], expected, atol=1e-6)
      assert not np.any(slope[:, 2])
  possible = np.float32([[2, 0, 0]])
  assert np.isinf(jax.jit(kl)(z, possible))
  assert np.isfinite(jax.jit(kl)(possible, z))
  assert np.isnan(jax.jit(kl)(possible, np.float32([[np.nan, 0, 0]])))
