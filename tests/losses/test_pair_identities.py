"""Identities and edges of single pair losses, and their errors."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from spherejax import losses
from tests.losses.cases._frame import LABELS


def apart(x):
  z = x / np.linalg.norm(x, axis=1, keepdims=True)
  return np.linalg.norm(z[:, None] - z[None], axis=-1)


def test_lifted_structure_of_a_pair_with_negatives_at_one_end():
  x, labels = jnp.array([[1, 0], [0.6, 0.8], [0, 1]]), np.array([0, 0, 1])

  def miner(values, positives, negatives):
    return positives, negatives.at[0].set(False)

  d = apart(x)
  one = (1 - d[1, 2] + d[0, 1]) ** 2 / 4
  loss = losses.lifted_structure(x, labels, miner=miner)
  np.testing.assert_allclose(loss, [one, one, 0], rtol=1e-5)


def test_nca_of_hopeless_and_of_certain_rows():
  d = jnp.array([[4.0, 0.0], [0.0, 4.0]])
  positives = jnp.array([[True, False], [True, False]])
  loss = losses.nca_from_distance(d, positives, ~positives, scale=10.0)
  np.testing.assert_allclose(loss, [40, math.exp(-40)], rtol=1e-5, atol=0)


def test_margin_of_a_traced_label_without_a_boundary_is_that_of_a_masked_row(mixed):
  x, labels = mixed[0].astype(np.float32), LABELS.copy()
  labels[4] = 77
  boundaries = jnp.linspace(-0.2, 0.2, 10)
  loss = jax.jit(lambda y, w: losses.margin(x, y, class_boundaries=boundaries, where=w))
  every = np.ones(10, bool)
  np.testing.assert_allclose(loss(labels, every), loss(LABELS, np.arange(10) != 4))


def test_n_pair_takes_the_first_two_rows_of_a_class_whatever_its_label(mixed):
  x, labels = mixed[0].astype(np.float32), LABELS
  loss = jax.jit(losses.n_pair)
  values = loss(x, labels)
  assert set(np.flatnonzero(values)) == {0, 1, 3}
  names = np.array([2**31 - 1, -(2**31), 0, 7, 0, -1], np.int32)
  np.testing.assert_allclose(loss(x, names[labels]), values, rtol=1e-6)
  np.testing.assert_array_equal(loss(x, np.where(labels == 0, 0, np.arange(10) + 1)), 0)


def test_matrices_without_a_column_have_no_loss():
  d, nothing = np.zeros((2, 0), np.float32), np.zeros((2, 0), bool)
  values = losses.n_pair_from_similarity(d, nothing, nothing)
  np.testing.assert_array_equal(values, [0, 0])
  seen = np.array([0.25, 0.75], np.float32)
  values, histogram = losses.dynamic_soft_margin_from_distance(
    d, nothing, nothing, seen
  )
  np.testing.assert_array_equal(values, [0, 0])
  np.testing.assert_array_equal(histogram, seen)


def test_signal_to_noise_without_a_signal_and_the_pull_of_the_mean(mixed, x64):
  x, labels = mixed
  x = np.concatenate([x, np.full((1, 4), 0.1)])
  labels = np.append(labels, 0)
  options = {"negative_margin": 0.0, "normalize": "none"}
  loss = functools.partial(losses.signal_to_noise_contrastive, **options)
  plain, centred = (jax.jit(loss)(x, labels, mean_weight=w) for w in (0.0, 0.3))
  assert plain[10] == 0
  np.testing.assert_allclose(centred - plain, 0.3 * np.abs(x.sum(1)), rtol=1e-10)


def test_dynamic_soft_margin_ranks_by_its_running_histogram(x64):
  same = np.array([[True, False]] * 4)
  d = np.array([[1.0, 1.5], [1.0, 1.5], [0.75, 0.25], [0.5, 0.5]])
  form = jax.jit(losses.dynamic_soft_margin_from_distance, static_argnames="axis_name")
  loss, first = form(d[:2], same[:2], ~same[:2], np.zeros(5))
  np.testing.assert_allclose(first, [0, 0.5, 0.5, 0, 0])  # t = -1/2, bins one apart
  np.testing.assert_allclose(loss, [-0.25, -0.25])
  loss, second = form(d[2:], same[2:], ~same[2:], first, momentum=0.4)
  np.testing.assert_allclose(second, [0, 0.3, 0.6, 0.1, 0])  # t = 1/2 and 0
  np.testing.assert_allclose(loss, [0.9 * 0.5, 0])
  _, third = form(d, same, same & False, second)
  np.testing.assert_array_equal(third, second)
  spread = jax.vmap(
    lambda d: form(d, same[:2], ~same[:2], first, momentum=0.4, axis_name="batch"),
    axis_name="batch",
  )
  _, shared = spread(d.reshape(2, 2, 2))
  np.testing.assert_allclose(shared, [form(d, same, ~same, first, momentum=0.4)[1]] * 2)
