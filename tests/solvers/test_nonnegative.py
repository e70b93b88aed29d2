"""Nonnegative least squares against all supports, and where scipy finds no minimum."""

import itertools
import types

import numpy as np
import pytest
from scipy import optimize

from spherejax import solvers


def by_supports(matrix, target):
  """The least squares of every subset of the columns that come out nonnegative."""
  best, found = np.linalg.norm(target), np.zeros(matrix.shape[1])
  for size in range(1, matrix.shape[1] + 1):
    for support in itertools.combinations(range(matrix.shape[1]), size):
      some = np.linalg.lstsq(matrix[:, support], target)[0]
      error = np.linalg.norm(matrix[:, support] @ some - target)
      if (some >= 0).all() and error < best - 1e-12:
        best, found = error, np.zeros(matrix.shape[1])
        found[list(support)] = some
  return found


def problems():
  random = np.random.default_rng(0)
  for _ in range(60):
    rows, columns = random.integers(1, 7, 2)
    matrix = random.integers(-2, 3, (rows, columns)).astype(float)
    yield matrix, random.integers(-3, 4, rows).astype(float)
    yield random.normal(size=(rows, columns)), random.normal(size=rows)


def test_no_support_is_better():
  for matrix, target in problems():
    found = solvers.host_nonnegative_least_squares(matrix, target)
    assert (found >= 0).all()
    expected = by_supports(matrix, target)
    errors = (np.linalg.norm(matrix @ x - target) for x in (found, expected))
    np.testing.assert_allclose(*errors, atol=1e-9)


def test_a_minimum_also_where_scipys_is_none(monkeypatch):
  """The example is from scipy 1.17.1, whatever the installed release does."""

  def half(matrix, target, maxiter):
    found = real(matrix, target, maxiter=maxiter)[0]
    return found / 2, 0.0

  real = optimize.nnls
  for wrong in (half, lambda *_, **__: (np.full(3, np.nan), 0.0)):
    monkeypatch.setattr(optimize, "nnls", wrong)
    matrix = np.random.default_rng(1).normal(size=(5, 3))
    found = solvers.host_nonnegative_least_squares(matrix, matrix @ [1.0, 0.0, 2.0])
    np.testing.assert_allclose(found, [1, 0, 2], atol=1e-12)

  def endless(*_, **__):
    raise RuntimeError("Maximum number of iterations reached.")

  monkeypatch.setattr(optimize, "nnls", endless)
  found = solvers.host_nonnegative_least_squares(matrix, matrix @ [1.0, 0.0, 2.0])
  np.testing.assert_allclose(found, [1, 0, 2], atol=1e-12)
  nothing = types.SimpleNamespace(x=np.zeros(3))
  monkeypatch.setattr(optimize, "lsq_linear", lambda *_, **__: nothing)
  with pytest.raises(RuntimeError, match="no nonnegative least-squares solution"):
    solvers.host_nonnegative_least_squares(matrix, matrix @ [1.0, 0.0, 2.0])


def test_empty_and_equal_columns_and_lengths():
  matrix = np.array([[0.0, 1e6, 1e6, 1e-6], [0.0, 0.0, 0.0, 1e-6]])
  found = solvers.host_nonnegative_least_squares(matrix, np.array([3.0, 2.0]))
  np.testing.assert_allclose(matrix @ found, [3, 2], rtol=1e-9)
  assert found[0] == 0


def test_wrong_arguments_are_named():
  solve = solvers.host_nonnegative_least_squares
  eye = np.eye(2)
  with pytest.raises(ValueError, match="target must be finite, got nan"):
    solve(eye, np.array([0.0, np.nan]))
  with pytest.raises(ValueError, match=r"must have a column, got shape \(2, 0\)"):
    solve(eye[:, :0], np.ones(2))
