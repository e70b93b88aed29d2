"""Nonnegative least squares against all supports, and where scipy finds no minimum."""

import itertools
import types

import numpy as np
import pytest
from scipy import optimize

from spherejax import solvers


def least_error(matrix, target):
  """Of the least squares of subsets of the columns that come out nonnegative."""
  best = np.linalg.norm(target)
  for support in itertools.product([False, True], repeat=matrix.shape[1]):
    some = np.linalg.lstsq(matrix[:, support], target)[0]
    if (some >= 0).all():
      best = min(best, np.linalg.norm(matrix[:, support] @ some - target))
  return best


def test_no_support_is_better():
  random = np.random.default_rng(0)
  for _ in range(60):
    rows, _ = shape = tuple(random.integers(1, 7, 2))
    whole = random.integers(-2, 3, shape), random.integers(-3, 4, rows)
    for values in (whole, (random.normal(size=shape), random.normal(size=rows))):
      matrix, target = (value.astype(float) for value in values)
      weights = solvers.host_nonnegative_least_squares(matrix, target)
      assert (weights >= 0).all()
      error = np.linalg.norm(matrix @ weights - target)
      np.testing.assert_allclose(error, least_error(matrix, target), atol=1e-9)


def test_a_minimum_also_where_scipys_is_none(monkeypatch):
  """The example is from scipy 1.17.1, whatever the installed release does."""

  def half(matrix, target, maxiter):
    return real(matrix, target, maxiter=maxiter)[0] / 2, 0.0

  real = optimize.nnls

  def endless(*_, **__):
    raise RuntimeError("Maximum number of iterations reached.")

  matrix = np.random.default_rng(1).normal(size=(5, 3))
  target = matrix @ [1.0, 0.0, 2.0]
  for wrong in (half, lambda *_, **__: (np.full(3, np.nan), 0.0), endless):
    monkeypatch.setattr(optimize, "nnls", wrong)
    weights = solvers.host_nonnegative_least_squares(matrix, target)
    np.testing.assert_allclose(weights, [1, 0, 2], atol=1e-12)
  nothing = types.SimpleNamespace(x=np.zeros(3))
  monkeypatch.setattr(optimize, "lsq_linear", lambda *_, **__: nothing)
  with pytest.raises(RuntimeError, match="no nonnegative least-squares solution"):
    solvers.host_nonnegative_least_squares(matrix, target)


def test_empty_and_equal_columns_and_lengths():
  matrix = np.array([[0.0, 1e6, 1e6, 1e-6], [0.0, 0.0, 0.0, 1e-6]])
  found = solvers.host_nonnegative_least_squares(matrix, np.array([3.0, 2.0]))
  np.testing.assert_allclose(matrix @ found, [3, 2], rtol=1e-9)
  assert found[0] == 0


def test_wrong_arguments_are_named():
  for matrix, target, message in (
    (np.eye(2), np.array([0.0, np.nan]), "target must be finite, got nan"),
    (np.ones((2, 0)), np.ones(2), r"must have a column, got shape \(2, 0\)"),
  ):
    with pytest.raises(ValueError, match=message):
      solvers.host_nonnegative_least_squares(matrix, target)
