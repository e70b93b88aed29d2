"""Ranks by singular values against NumPy and against what is known of matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from spherejax import metrics
from tests import programs

RNG = np.random.default_rng(0)
MATRICES = RNG.normal(size=(3, 9, 5)) * np.geomspace(1, 0.01, 5)


def singular_values(matrix):
  """From the eigenvalues of the smaller product, in float64."""
  a = np.asarray(matrix, np.float64)
  gram = a @ a.T if a.shape[0] < a.shape[1] else a.T @ a
  return np.sqrt(np.maximum(np.linalg.eigvalsh(gram)[::-1], 0))


def by_numpy(matrix, threshold, share):
  s = singular_values(matrix)
  above, relative = (s >= threshold).sum(), (s >= share * s[0]).sum()
  return above, relative, np.exp(stats.entropy(s)), np.log(s)


def measure(matrix, threshold=0.4, share=0.05, **options):
  return (
    metrics.numerical_rank(matrix, threshold, **options),
    metrics.relative_rank(matrix, threshold=share, **options),
    metrics.effective_rank(matrix, **options),
    metrics.log_singular_values(matrix, **options),
  )


def close(actual, expected, rtol):
  for figure, other in zip(actual, expected, strict=True):
    np.testing.assert_allclose(figure, other, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("wide", [False, True])
def test_against_numpy(wide):
  matrices = np.swapaxes(MATRICES, 1, 2) if wide else MATRICES
  found = measure(matrices.astype(np.float32))
  expected = [by_numpy(matrix, 0.4, 0.05) for matrix in matrices]
  close(found, [np.stack(x) for x in zip(*expected, strict=True)], 2e-5)
  assert found[0].dtype == found[1].dtype == jnp.int32
  assert found[2].dtype == found[3].dtype == jnp.float32


def test_float64_and_half_precision(x64):
  found = measure(MATRICES[0])
  close(found, by_numpy(MATRICES[0], 0.4, 0.05), 1e-10)
  assert found[2].dtype == found[3].dtype == jnp.float64
  short = jnp.bfloat16(MATRICES[0])
  found = measure(short)
  assert found[2].dtype == found[3].dtype == jnp.bfloat16
  expected = by_numpy(short.astype(np.float32), 0.4, 0.05)
  close([np.asarray(x, np.float64) for x in found], expected, 2e-2)
  assert found[0] == expected[0]


def test_masked_rows_are_as_deleted():
  kept = np.array([True, False, True, True, True, False, True, True, True])
  hidden = np.where(kept[:, None], MATRICES[0], np.nan).astype(np.float32)
  deleted = MATRICES[0][kept].astype(np.float32)
  close(measure(hidden, where=kept), measure(deleted), 1e-5)
  centred = metrics.log_singular_values(hidden, centre=True, where=kept)
  expected = np.log(singular_values(deleted - deleted.mean(0)))
  np.testing.assert_allclose(centred, expected, rtol=2e-5, atol=2e-5)
  nobody = {"where": np.zeros(9, bool)}
  close(measure(hidden, **nobody), (0, 0, 0, np.full(5, -np.inf)), 0)
  assert np.isneginf(metrics.log_singular_values(hidden, centre=True, **nobody)).all()


def test_zero_and_not_finite():
  close(measure(np.zeros((4, 3), np.float32)), (0, 0, 0, np.full(3, -np.inf)), 0)
  for wrong in (np.nan, np.inf):
    matrix = MATRICES[:2].astype(np.float32)
    matrix[0, 2, 1] = wrong
    found = measure(matrix)
    assert (found[0][0], found[1][0]) == (-1, -1)
    assert np.isnan(found[2][0])
    assert np.isnan(found[3][0]).all()
    close([x[1] for x in found], measure(matrix[1]), 1e-6)


def test_a_threshold_is_reached_where_it_is_equal():
  matrix = np.diag([2.0, 1.0, 0.5]).astype(np.float32)
  assert metrics.numerical_rank(matrix, 1.0) == 2
  assert metrics.numerical_rank(matrix, 1.0001) == 1
  assert metrics.relative_rank(matrix, threshold=0.25) == 3
  assert metrics.relative_rank(matrix, threshold=1.0) == 1
  # A traced threshold of 0 cannot be refused; what is 0 has no rank all the same.
  zero = jax.jit(metrics.numerical_rank)(np.diag([1.0, 0.0]).astype(np.float32), 0.0)
  assert zero == 1


def test_effective_rank_where_it_is_known(x64):
  for d in (1, 4, 7):
    q = np.linalg.qr(RNG.normal(size=(d, d)))[0]
    np.testing.assert_allclose(metrics.effective_rank(q), d, rtol=1e-12)
  outer = np.outer(RNG.normal(size=7), RNG.normal(size=4))
  np.testing.assert_allclose(metrics.effective_rank(outer), 1, rtol=1e-10)
  # k equal singular values of more.
  half = np.diag([3.0, 3, 3, 0, 0])
  np.testing.assert_allclose(metrics.effective_rank(half), 3, rtol=1e-12)
  for matrix in MATRICES:
    found = metrics.effective_rank(matrix)
    assert 1 <= found <= np.linalg.matrix_rank(matrix)
    left, right = (np.linalg.qr(RNG.normal(size=(d, d)))[0] for d in (9, 5))
    turned = metrics.effective_rank(left @ matrix @ right)
    np.testing.assert_allclose(turned, found, rtol=1e-12)


def test_ranks_and_scale():
  matrix = MATRICES[0].astype(np.float32)
  for scale in (1e-30, 1e-3, 1e30):
    scaled = matrix * np.float32(scale)
    np.testing.assert_allclose(
      metrics.effective_rank(scaled), metrics.effective_rank(matrix), rtol=1e-5
    )
    assert metrics.relative_rank(scaled) == metrics.relative_rank(matrix)
  assert metrics.numerical_rank(matrix, 0.1) == by_numpy(matrix, 0.1, 1)[0] == 3
  assert metrics.numerical_rank(matrix * np.float32(1e-3), 0.1) == 0


def test_small_singular_values_keep_their_digits():
  """One of 1e-5 of the largest, which the product of the matrix with itself loses."""
  left = np.linalg.qr(RNG.normal(size=(400, 3)))[0]
  right = np.linalg.qr(RNG.normal(size=(3, 3)))[0]
  matrix = ((left * [1, 0.1, 1e-5]) @ right).astype(np.float32)
  found = np.exp(metrics.log_singular_values(matrix))
  np.testing.assert_allclose(found[2], 1e-5, rtol=0.05)
  assert metrics.relative_rank(matrix, threshold=1e-6) == 3
  lost = np.linalg.eigvalsh(matrix.T @ matrix)[0]
  assert not np.isclose(np.sqrt(max(lost, 0)), 1e-5, rtol=0.5)


def test_many_rows_need_little_memory():
  rows = jax.ShapeDtypeStruct((50_000, 16), jnp.float32)
  assert programs.temporary_bytes(metrics.effective_rank, rows) < 4 * 50_000 * 16 * 4


def test_under_vmap():
  matrices = MATRICES.astype(np.float32)
  found = jax.jit(jax.vmap(metrics.effective_rank))(matrices)
  np.testing.assert_allclose(found, metrics.effective_rank(matrices), rtol=1e-6)
  thresholds = np.array([1e-3, 0.4, 100], np.float32)
  found = jax.jit(jax.vmap(metrics.numerical_rank, (None, 0)))(matrices[0], thresholds)
  expected = [by_numpy(matrices[0], t, 1)[0] for t in thresholds]
  np.testing.assert_array_equal(found, expected)
