"""Properties of the proxy losses beyond those of every loss."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import losses
from tests import programs
from tests.losses.cases._frame import LABELS, draw_embeddings
from tests.losses.cases._parts import project as unit
from tests.losses.slopes import with_slopes


@pytest.fixture
def proxies():
  return draw_embeddings(2, 11, 4)


nca_plus_plus = jax.jit(
  losses.proxy_nca_plus_plus, static_argnames=("logit", "normalize")
)


def test_traced_labels_outside(mixed, proxies, x64):
  """Masked rows; for Proxy Anchor, negatives of every proxy."""
  x, labels = mixed
  keep = np.arange(10) % 3 > 0
  outside = np.where(keep, labels, np.where(labels == 0, -1, 11)).astype(np.int32)
  for loss in (losses.proxy_nca, losses.proxy_nca_plus_plus):
    right = loss(x, labels, proxies, where=keep)
    np.testing.assert_allclose(jax.jit(loss)(x, outside, proxies), right, rtol=1e-12)
  values = jax.jit(losses.proxy_anchor)(x, outside, proxies)
  # as if they had a class without a proxy
  far = np.where(keep, labels, 11)[:, None] != np.arange(11)
  push = np.where(far, np.exp(32 * (unit(x) @ unit(proxies).T + 0.1)), 0).sum(axis=0)
  shares = np.log1p(push) / 11 / far.sum(axis=0)
  np.testing.assert_allclose(values[~keep], 10 * shares.sum(), rtol=1e-10)


def test_proxy_nca_leaves_the_own_class_out(mixed, proxies, x64):
  x, labels = mixed
  values = losses.proxy_nca(x, labels, proxies, scale=1.5)
  with_own = nca_plus_plus(x, labels, proxies, temperature=1 / 1.5**2)
  np.testing.assert_allclose(values, with_own + np.log1p(-np.exp(-with_own)), 1e-11)
  assert losses.proxy_nca(4 * proxies[:2], np.arange(2), proxies, scale=3.0).min() < 0
  single = with_slopes(lambda x: losses.proxy_nca(x, 0 * labels, proxies[:1]))
  for leaf in single(x):
    np.testing.assert_array_equal(leaf, 0)


def test_squared_temperature_is_twice_the_cosine_temperature_for_unit_proxies(
  mixed, proxies, x64
):
  """The length of the embedding cancels, that of the proxies does not."""
  x, labels = mixed
  for table, equal in ((unit(proxies), True), (proxies, False)):
    loss = functools.partial(nca_plus_plus, x, labels, table, normalize="none")
    squared, cosine = loss(temperature=0.6), loss(temperature=0.3, logit="cosine")
    difference = np.abs(squared - cosine).max()
    assert difference < 1e-12 if equal else difference > 0.1


def test_low_temperatures_in_float32():
  x, label = np.float32([[1, 0]]), np.array([0])
  p = np.float32([[-1, 0], [0, 1], [0, -1]])
  values = nca_plus_plus(x, label, p, temperature=0.005, logit="cosine")
  np.testing.assert_allclose(values, [200.69314718], rtol=1e-6)
  values = nca_plus_plus(x, label, p, temperature=0.01)
  np.testing.assert_allclose(values, [200.69314718], rtol=1e-6)
  values = losses.proxy_anchor(x, label, p[:1], scale=256.0, margin=0.1)
  np.testing.assert_allclose(values, [256 * 1.1], rtol=1e-6)


def test_the_first_of_equal_largest_similarities_has_the_derivative():
  tied = jax.grad(lambda s: losses.multi_proxy(s, reduction="max").sum())(
    jnp.ones((1, 2, 3))
  )
  np.testing.assert_array_equal(tied, [[[1, 0, 0], [1, 0, 0]]])


def test_soft_triple_with_one_centre_is_cosface(mixed, proxies, x64):
  values = losses.soft_triple(*mixed, proxies[:, None], scale=9.0, margin=0.2)
  cosines = unit(mixed[0]) @ unit(proxies).T
  right = losses.cosface(cosines, LABELS, scale=9.0, margin=0.2)
  np.testing.assert_allclose(values, right, rtol=1e-12)


def test_soft_triple_of_equal_centres_has_no_force_between_them(mixed, proxies):
  x, labels = np.float32(mixed[0]), LABELS
  equal = np.float32(np.stack([proxies, proxies], axis=1))

  @jax.jit
  @functools.partial(jax.value_and_grad, argnums=1)
  def step(weight, centres):
    return losses.soft_triple(x, labels, centres, regularization=weight).sum()

  (value, slope), (right, wanted) = step(5.0, equal), step(0.0, equal)
  np.testing.assert_allclose(value, right, rtol=1e-6)
  np.testing.assert_allclose(slope, wanted, rtol=1e-6, atol=1e-7)
  # opposite centres: 2 over K (K - 1) = 2, for each of the ten rows
  opposite = equal * np.float32([1, -1])[None, :, None]
  gained = step(5.0, opposite)[0] - step(0.0, opposite)[0]
  np.testing.assert_allclose(gained, 10 * 5.0 * 2 / 2, rtol=1e-5)


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
  cosine = nca_plus_plus(*mixed, proxies, temperature=1 / 9, logit="cosine")
  triple = functools.partial(losses.soft_triple, *mixed, proxies[:, None], scale=9.0)
  np.testing.assert_allclose(triple(margin=np.float64(0)), cosine, rtol=1e-11)
  assert (triple(margin=np.float64(0.2)) > cosine).all()
