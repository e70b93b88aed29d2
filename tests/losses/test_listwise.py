"""Identities and limits of the losses that compare each positive with a list."""

import functools

import jax
import numpy as np
import pytest

from spherejax import losses
from tests.losses.cases._parts import project
from tests.losses.slopes import with_slopes


def above(similarities, columns):
  """[rows, entries]: how many of the columns are more similar than each entry."""
  return (columns[:, None] & (similarities[:, None] > similarities[..., None])).sum(2)


def mean(values, positives):
  return (positives * values).sum(1) / np.maximum(positives.sum(1), 1)


def average_precision(similarities, positives, negatives):
  """One minus the average precision of each row, by counting; no ties."""
  near, far = (above(similarities, mask) for mask in (positives, negatives))
  return mean(far / (1 + near + far), positives)


@pytest.fixture
def ranking():
  """Rows whose entries are 30 different squared distances in steps of 0.125."""
  generator = np.random.default_rng(4)
  matrix = np.stack([generator.permutation(31) for _ in range(6)]) * 0.125
  role = generator.integers(0, 3, (6, 31))
  role[4] = 1  # no positive
  role[5] = 0  # no negative
  return matrix, role == 0, role == 1


def test_fast_ap_is_average_precision_on_the_nodes(ranking, x64):
  matrix, positives, negatives = ranking
  loss = jax.jit(functools.partial(losses.fast_ap_from_distance, bins=32))
  right = average_precision(-matrix, positives, negatives)
  np.testing.assert_allclose(loss(matrix, positives, negatives), right, rtol=1e-12)
  gradient = jax.grad(lambda d: loss(d, positives, negatives).sum())(matrix)
  np.testing.assert_array_equal(gradient, np.zeros(matrix.shape))  # 0 at every node


def test_smooth_ap_tends_to_average_precision(ranking, x64):
  matrix, positives, negatives = ranking
  loss = jax.jit(losses.smooth_ap_from_similarity)
  values = loss(-matrix, positives, negatives, temperature=1e-3)
  right = average_precision(-matrix, positives, negatives)
  np.testing.assert_allclose(values, right, atol=1e-15)
  assert right[4] == right[5] == 0
  warm = loss(-matrix, positives, negatives, temperature=1.0)
  assert (warm >= 0).all()
  assert (warm < 1).all()
  # With exponent 1, one negative in the list, PNP "Dq" differs only by its own ranks.
  counts = losses.pnp_from_similarity(-matrix, positives, negatives, temperature=1e-3)
  before = mean(above(-matrix, negatives), positives)
  np.testing.assert_allclose(counts, before, atol=1e-12)


def test_a_class_larger_than_all_others_and_any_order(x64):
  """Loops as long as the largest class, under jit, vmap and grad."""
  x = np.random.default_rng(1).normal(size=(2, 20, 3))
  labels = np.stack([np.zeros(20, int), np.arange(20) // 12])
  labels[0, 7] = 1
  call = with_slopes(lambda x, y: losses.smooth_ap(x, y, temperature=0.1))
  values, gradients = jax.vmap(call)(x, labels)
  for k in range(2):
    value, gradient = call(x[k], labels[k])
    np.testing.assert_allclose(values[k], value, rtol=1e-12)
    np.testing.assert_allclose(gradients[k], gradient, rtol=1e-10, atol=1e-13)
    assert np.abs(gradient).max() > 1e-3


def test_angular_against_references_takes_partners_there(x64):
  generator = np.random.default_rng(3)
  x, memory = generator.normal(size=(4, 3)), generator.normal(size=(7, 3))
  labels, classes = np.array([0, 1, 0, 4]), np.array([0, 0, 1, 2, 2, 0, 1])
  references = losses.References(memory, classes)
  x, z, right = project(x), project(memory), np.zeros((2, 4))
  for i in range(4):
    for p in np.flatnonzero(classes == labels[i]):
      terms = 4 * z[classes != labels[i]] @ (x[i] + z[p]) - 4 * x[i] @ z[p]
      right[:, i] += np.log(1 + np.exp(terms).sum()), np.maximum(terms - 4, 0).sum()

  @jax.jit
  def both(x):
    call = functools.partial(losses.angular, references=references, block_size=3)
    return call(x, labels), call(x, labels, form="hinge")

  assert right.all(axis=0).sum() > 1
  np.testing.assert_allclose(both(x), right, rtol=1e-12)


def test_histogram_of_separated_and_of_mixed_pairs(x64):
  same = np.array([[True, True, False, False]])
  loss = functools.partial(losses.histogram_from_similarity, bins=4)
  assert loss(np.array([[1.0, 0.5, 0.0, -1.0]]), same, ~same) == 0
  assert loss(np.array([[-1.0, -0.5, 0.5, 1.0]]), same, ~same) == 1
  # Equal histograms: half of the pairs before, and those on the same node.
  np.testing.assert_allclose(loss(np.array([[0.0, 0.5, 0.0, 0.5]]), same, ~same), 0.75)


def test_ranked_list_at_temperature_0_is_a_mean(x64):
  d = np.array([[1.0, 1.4, 0.2, 0.9, 1.1]])
  same = np.array([[True, True, True, False, False]])
  loss = functools.partial(losses.ranked_list_from_distance, d, same, ~same)
  values = loss(negative_temperature=0.0, balance=0.25)
  np.testing.assert_allclose(values, 0.75 * 0.4 + 0.25 * 0.2)
  hot = loss(negative_temperature=1e3, balance=1.0)
  np.testing.assert_allclose(hot, 0.3)  # the nearest negative alone
