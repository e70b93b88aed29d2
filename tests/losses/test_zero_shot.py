"""Zero-shot prediction: the split, the regression, defaults and masks.

`cases/zero_shot.py` has the values and gradients.
"""

import math

import jax
import numpy as np
import pytest

from spherejax import losses
from tests.losses.cases.zero_shot import fit, values

LABELS_A = np.array([0, 2, 0, 5, 2], np.int32)
LABELS_B = np.array([1, 4, 1], np.int32)
U = np.random.default_rng(2).normal(size=(6, 4))
Z = np.random.default_rng(0).dirichlet(np.full(3, 0.4), 8)
HALVES = Z[:5], LABELS_A, Z[5:], LABELS_B
loss = jax.jit(losses.zero_shot_prediction)


def test_a_class_may_be_in_both_halves(x64):
  first, second = (Z[:5], LABELS_A), (Z[5:], np.zeros(3, np.int32))
  right = values(*first, *second, U, 0.05, 1.0), values(*second, *first, U, 0.05, 1.0)
  np.testing.assert_allclose(loss(*first, *second, U), np.concatenate(right), 1e-10)


def test_printed_equation_counts_the_target_twice(x64):
  """log(1 + sum over the OTHER classes) is the loss; over all it is not."""
  results = loss(*HALVES, U, scale=0.1)
  fitted = fit(Z[5:], U[LABELS_B], 0.05)
  for i, label in enumerate(LABELS_A):
    differences = 0.1 * (U - U[label]) @ (Z[i] @ fitted)
    other = np.delete(np.exp(differences), label).sum()
    np.testing.assert_allclose(results[i], math.log(1 + other), rtol=1e-12)
    assert results[i] < math.log(2 + other) - 0.05


@pytest.mark.parametrize("shape", [(7, 3), (3, 7), (4, 4), (1, 5)])
def test_regression_equals_the_normal_equations(shape, x64):
  z = np.random.default_rng(3).dirichlet(np.full(shape[1], 0.4), shape[0])
  y = np.random.default_rng(4).normal(size=(shape[0], 2))
  for ridge in (1e-5, 1e-3, 0.05, 4.0):
    fitted = jax.jit(losses.ridge_attribute_embeddings)(z, y, ridge=ridge)
    np.testing.assert_allclose(fitted, fit(z, y, ridge), rtol=1e-8, atol=1e-9)


def test_regression_defaults_and_masks(x64):
  z = np.random.default_rng(3).dirichlet(np.full(3, 0.4), 7)
  y = np.random.default_rng(4).normal(size=(7, 2))
  regress, keep = losses.ridge_attribute_embeddings, np.arange(7) % 3 != 1
  row = keep[:, None]
  masked = regress(np.where(row, z, np.nan), np.where(row, y, np.inf), where=keep)
  np.testing.assert_allclose(masked, fit(z[keep], y[keep], 0.05), rtol=1e-10)
  none = regress(np.nan * z, y, where=np.zeros(7, bool))
  np.testing.assert_array_equal(none, np.zeros((3, 2)))


def test_traced_labels_outside_mask_their_rows(x64):
  a, b = np.array([1, 0, 1, 1, 1], bool), np.array([1, 1, 0], bool)
  right = loss(*HALVES, U, where_a=a, where_b=b)
  results = loss(Z[:5], np.where(a, LABELS_A, -1), Z[5:], np.where(b, LABELS_B, 6), U)
  np.testing.assert_allclose(results, right, rtol=1e-12)
  np.testing.assert_array_equal(right == 0, ~np.concatenate([a, b]))


def split_oracle(labels, keep):
  order = list(dict.fromkeys(labels[keep].tolist()))
  first = np.isin(labels, order[: (len(order) + 1) // 2])
  return keep & first, keep & ~first


def test_split_deals_classes_in_order_of_first_appearance():
  generator = np.random.default_rng(8)
  split = jax.jit(lambda labels, where: losses.split_by_class(labels, where=where))
  for _ in range(30):
    labels = generator.integers(-3, generator.integers(-2, 8), 9).astype(np.int32)
    keep = generator.random(9) < 0.8
    np.testing.assert_array_equal(split(labels, keep), split_oracle(labels, keep))
  for labels, first in (([9**9, 4, 9**9], [True, False, True]), ([7] * 3, [True] * 3)):
    halves = losses.split_by_class(np.array(labels))
    np.testing.assert_array_equal(halves, (first, np.logical_not(first)))
  nothing = split(np.arange(9), np.zeros(9, bool))
  np.testing.assert_array_equal(nothing, np.zeros((2, 9), bool))


def test_many_regressions_are_solved_one_after_another_on_a_cpu():
  # Batched, they take a hundred times as long; two batched factorisations beside each
  # other each block a thread of XLA's pool until the others have done its share.
  z, table = np.eye(3, 4, dtype=np.float32), np.ones((5, 2), np.float32)

  def total(z):
    labels = np.arange(3, dtype=np.int32)
    return losses.zero_shot_prediction(z, labels, z[:2], labels[:2] + 3, table).sum()

  program = jax.jit(jax.vmap(jax.grad(total))).lower(np.stack([z, z])).as_text()
  assert "lapack_spotrf" in program
  assert "triangular_solve" not in program  # but LAPACK's or BLAS's trsm
  assert 'num_batch_dims = "1"' not in program
