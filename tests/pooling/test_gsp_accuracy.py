"""Smoothed weights over all masses and inverse temperatures, against a bisection.

The costs, the grid and the bisection are those of `benchmarks.gsp_accuracy`.
"""

import numpy as np
import pytest

from benchmarks import gsp_accuracy


@pytest.mark.parametrize("dtype", gsp_accuracy.LIMITS)
@pytest.mark.parametrize("size", [(128, 64), (16, 196)])
def test_accuracy(size, dtype, x64):
  """The mass left behind says that of the solver, which reports its own error."""
  found = gsp_accuracy.solved(dtype, *size)
  assert found.plan.weights.dtype == dtype
  # Of the reference: 1 only at the root.
  np.testing.assert_allclose(found.expected.sum(1), 1, rtol=1e-13)
  limits = gsp_accuracy.LIMITS[dtype]
  *errors, steps = np.moveaxis(gsp_accuracy.errors(found), 2, 0)
  for error, limit in zip(errors, limits, strict=True):
    assert error.shape == (len(gsp_accuracy.MASSES), len(gsp_accuracy.SHARPNESS))
    assert error.max() <= limit, np.argwhere(error > limit)
  assert steps.max() <= 64
  left = np.float64(found.plan.residual).sum(1)
  assert np.abs(1 - left - found.mass).max() <= limits[0]
  assert found.plan.converged.all()
