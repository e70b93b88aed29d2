"""Properties of the proxy losses beyond those of every loss."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import losses
from tests import programs
from tests.losses.cases._parts import project as unit


@pytest.fixture(scope="module")
def proxies(embeddings):
  return embeddings(2, 11, 4)


nca_plus_plus = jax.jit(
  losses.proxy_nca_plus_plus, static_argnames=("logit", "normalize")
)


# --- Proxy Anchor ---


@pytest.mark.parametrize("one_class", [False, True])
def test_proxy_anchor_mean_is_the_papers_scalar(one_class, mixed, proxies, x64):
  x, labels = mixed
  if one_class:
    labels = 0 * labels + 3
  total, present = 0.0, len(set(labels.tolist()))
  for c, p in enumerate(unit(proxies)):
    s = unit(x) @ p
    pull = sum(math.exp(-6 * (s[i] - 0.2)) for i in range(10) if labels[i] == c)
    push = sum(math.exp(6 * (s[i] + 0.2)) for i in range(10) if labels[i] != c)
    total += math.log1p(pull) / present + math.log1p(push) / 11
  values = losses.proxy_anchor(x, labels, proxies, scale=6.0, margin=0.2)
  np.testing.assert_allclose(values.mean(), total, rtol=1e-12)


def test_traced_labels_outside(mixed, proxies, x64):
  """Masked rows; for Proxy Anchor, negatives of every proxy."""
  x, labels = mixed
  keep = np.arange(10) % 3 > 0
  outside = np.where(keep, labels, np.where(labels == 0, -1, 11)).astype(np.int32)
  for loss in (losses.proxy_nca, losses.proxy_nca_plus_plus):
    right = loss(x, labels, proxies, where=keep)
    np.testing.assert_allclose(jax.jit(loss)(x, outside, proxies), right, rtol=1e-12)
  values = jax.jit(losses.proxy_anchor)(x, outside, proxies)
  # as if they had a class of their own, without a proxy
  wider = np.concatenate([proxies, proxies[:1]])
  others = np.where(keep, labels, 11).astype(np.int32)
  s = unit(x) @ unit(wider).T
  push = [
    math.log1p(sum(np.exp(32 * (s[others != c, c] + 0.1)))) / 11 for c in range(11)
  ]
  for i in np.flatnonzero(~keep):
    share = sum(push[c] / (others != c).sum() for c in range(11))
    np.testing.assert_allclose(values[i], 10 * share, rtol=1e-10)


# --- ProxyNCA ---


def test_proxy_nca_leaves_the_own_class_out(mixed, proxies, x64):
  x, labels = mixed
  values = losses.proxy_nca(x, labels, proxies, scale=1.5)
  with_own = nca_plus_plus(x, labels, proxies, temperature=1 / 1.5**2)
  np.testing.assert_allclose(values, with_own + np.log1p(-np.exp(-with_own)), 1e-11)
  assert losses.proxy_nca(4 * proxies[:2], np.arange(2), proxies, scale=3.0).min() < 0
  one = jax.value_and_grad(lambda x: losses.proxy_nca(x, 0 * labels, proxies[:1]).sum())
  value, gradient = one(x)
  np.testing.assert_array_equal(value, 0)
  np.testing.assert_array_equal(gradient, np.zeros((10, 4)))


def test_squared_temperature_is_twice_the_cosine_temperature_for_unit_proxies(
  mixed, proxies, x64
):
  """The length of the embedding cancels, that of the proxies does not."""
  x, labels = mixed
  for table, equal in ((unit(proxies), True), (proxies, False)):
    squared = nca_plus_plus(x, labels, table, temperature=0.6, normalize="none")
    cosine = nca_plus_plus(
      x, labels, table, temperature=0.3, logit="cosine", normalize="none"
    )
    difference = np.abs(squared - cosine).max()
    assert difference < 1e-12 if equal else difference > 0.1


def test_low_temperatures_in_float32():
  one = np.array([[1, 0]], np.float32)
  p = np.array([[-1, 0], [0, 1], [0, -1]], np.float32)
  values = nca_plus_plus(one, np.array([0]), p, temperature=0.005, logit="cosine")
  np.testing.assert_allclose(values, [200.69314718], rtol=1e-6)
  values = nca_plus_plus(one, np.array([0]), p, temperature=0.01)
  np.testing.assert_allclose(values, [200.69314718], rtol=1e-6)
  values = losses.proxy_anchor(one, np.array([0]), p[:1], scale=256.0, margin=0.1)
  np.testing.assert_allclose(values, [256 * 1.1], rtol=1e-6)


# --- several proxies a class ---


def test_coincident_proxies_are_one_for_averages_over_pairs(mixed, proxies, x64):
  x, labels = mixed
  values = [
    losses.contrastive(
      x,
      labels,
      references=losses.References(
        np.repeat(proxies, times, axis=0), np.repeat(np.arange(len(proxies)), times)
      ),
    )
    for times in (1, 3)
  ]
  np.testing.assert_allclose(*values, rtol=1e-12)


def test_the_first_of_equal_largest_similarities_has_the_derivative():
  tied = jax.grad(lambda s: losses.multi_proxy(s, reduction="max").sum())(
    jnp.ones((1, 2, 3))
  )
  np.testing.assert_array_equal(tied, [[[1, 0, 0], [1, 0, 0]]])


def test_soft_triple_with_one_centre_is_cosface(mixed, proxies, x64):
  x, labels = mixed
  values = losses.soft_triple(x, labels, proxies[:, None], scale=9.0, margin=0.2)
  cosines = unit(x) @ unit(proxies).T
  right = losses.cosface(cosines, labels, scale=9.0, margin=0.2)
  np.testing.assert_allclose(values, right, rtol=1e-12)


def test_soft_triple_of_equal_centres_has_no_force_between_them(mixed, proxies):
  x, labels = (mixed[0].astype(np.float32), mixed[1])
  equal = np.stack([proxies, proxies], axis=1).astype(np.float32)

  @jax.jit
  @functools.partial(jax.value_and_grad, argnums=1)
  def step(weight, centres):
    return losses.soft_triple(x, labels, centres, regularization=weight).sum()

  (value, slope), (right, wanted) = step(5.0, equal), step(0.0, equal)
  np.testing.assert_allclose(value, right, rtol=1e-6)
  np.testing.assert_allclose(slope, wanted, rtol=1e-6, atol=1e-7)
  apart = equal * np.array([1, -1], np.float32)[None, :, None]
  # opposite centres: 2 over K (K - 1) = 2, for each of the ten rows
  gained = step(5.0, apart)[0] - step(0.0, apart)[0]
  np.testing.assert_allclose(gained, 10 * 5.0 * 2 / 2, rtol=1e-5)


# --- blocks of rows ---

# Losses of one proxy a class or of several.
SEVERAL = ("proxy_anchor", "proxy_nca", "proxy_nca_plus_plus", "soft_triple")


@pytest.mark.parametrize("name", [*SEVERAL, "proxy_distance_ratio"])
def test_blocks_raise_for_the_same_labels(name, mixed, proxies):
  x, labels = mixed
  table = jnp.asarray(proxies)  # jax remembers an array that a trace has converted
  table = jnp.stack([table, table[::-1]], 1) if name in SEVERAL else table
  loss = functools.partial(getattr(losses, name), block_size=4)
  wrong = jnp.asarray(np.where(labels == 5, 11, labels))  # known while it is traced
  with pytest.raises(ValueError, match=r"labels must be in \[0, 11\), got 11"):
    jax.eval_shape(lambda x: loss(x, wrong, table), x)


def test_pairs_of_many_centres_are_not_all_in_memory():
  """16 classes of 64 centres: less than a fourth of the differences of all pairs."""
  x = jax.ShapeDtypeStruct((2, 32), jnp.float32)
  labels = jax.ShapeDtypeStruct((2,), jnp.int32)
  centres = jax.ShapeDtypeStruct((16, 64, 32), jnp.float32)

  def total(x, labels, centres):
    return losses.soft_triple(x, labels, centres).sum()

  size = programs.temporary_bytes(jax.grad(total, 2), x, labels, centres)
  assert size < 16 * 64 * 64 * 32 * 4 / 4


def test_soft_triple_with_one_centre_is_nca_plus_plus_only_without_a_margin(
  mixed, proxies, x64
):
  x, labels = mixed
  cosine = nca_plus_plus(x, labels, proxies, temperature=1 / 9, logit="cosine")
  triples = {
    margin: losses.soft_triple(
      x, labels, proxies[:, None], scale=9.0, margin=np.float64(margin)
    )
    for margin in (0.0, 0.2)
  }
  np.testing.assert_allclose(triples[0.0], cosine, rtol=1e-11)
  assert (triples[0.2] > cosine).all()
